"""The answer to how many layers should be fine-tuned, as data (``statistics.answer``) and as sentences.

- ``run_groups``: the runs that an answer is about, of sweeps and of tables.
- ``make_answer``: the answer of a model on a task, and the recommended k with its best run; ``sentence``: its sentences.
- ``recommended_classes``, ``scores_on_test``, ``next_command``: what is added for the recommended model.
- ``analysis``: answers of many models and tasks, and what they have in common.
"""
