"""Metrics, confidence intervals, cells of a curve, operating points and comparison of tasks. Imports no torch.

To add a metric, add an entry to ``metrics.METRICS``. ``curve`` compares all k of one train size: ``cells`` and ``outcomes``
say which runs count, ``inference/`` has the formulas, ``operating_points``, ``curve_rules`` and ``pareto`` name k.
``train_sizes``, ``learning_rates`` and ``across_tasks`` compare curves. ``results_table/`` reads the results of others. May
import from data.
"""
