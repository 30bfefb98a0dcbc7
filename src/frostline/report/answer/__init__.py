"""The answer to how many layers should be fine-tuned, as data (``statistics.answer``) and as sentences.

- ``make_answer``: the answer for a sweep and for one train size, and the recommended k with its best run.
- ``sentence``: its sentences; ``search_outcome``: the state of a search that they depend on.
- ``recommended_classes``, ``scores_on_test``, ``next_command``: what is added for the recommended model.
- ``analysis``: answers of many models and tasks, and what they have in common.
"""
