"""Results of runs, the answer, metrics, confidence intervals, curves and decisions. Imports no torch.

To add a metric, add an entry to ``_ALL`` of ``metrics``. Start with ``curve``, which compares all k of one train size:

- ``recipe``, ``run_result``, ``run_group``: what a run trains, what it says, and the runs that an answer is about.
- ``answer``: the answer and its parts, as in answer.json.
- ``analysis_settings``: the settings, and the goal; ``cells``: the runs that count, and their summary by k.
- ``inference``: the formulas; ``evidence`` and ``predictions``: the scores that they are applied to.
- ``posterior``: what is known about all choices together; ``decision``: which one is recommended; ``next_step``: what more runs
  would gain.
- ``metrics``; ``class_outputs``: scores of classes, calibration and thresholds (``threshold_rule`` is the setting).

``train_sizes`` compares curves of train sizes and of tasks. ``results_table`` reads tables of results from other sources.

May import from data.
"""
