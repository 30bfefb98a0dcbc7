"""Metrics, confidence intervals, curves, operating points and comparison of tasks. Imports no torch.

To add a metric, add an entry to ``metrics.METRICS``. ``tune`` names what a run trains. Start with ``curve``, which compares all k
of one train size:

- ``outcomes``, ``learning_rates``, ``cells``: the runs that count, and their summary by k.
- ``inference``: the formulas; ``evidence`` with ``scores`` and ``predictions``: the scores that they are applied to.
- ``posterior``, ``joint``: what is known about all choices together; ``decision``: which one is recommended;
  ``next_step``: what more runs would gain; ``alternatives``: the models that train no layer.
- ``operating_points``: the smallest k that reaches each target; ``goal``: the target.
- ``analysis_settings``: the settings of all of it.

``train_sizes`` compares curves of train sizes and of tasks. ``results_table`` reads tables of results from other sources.

May import from data.
"""
