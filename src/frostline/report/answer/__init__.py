"""The answer to how many layers should be fine-tuned, and its words.

- ``answer``: the answer for a sweep and for one train size; ``recommendation``: which k and which of its runs.
- ``sentence``, ``undecided``, ``remarks``, ``comparison``: the answer in words.
- ``scores_on_test``: test scores, added after every choice; ``search_outcome``: what a search contributes.
- ``groups``: results of many models and tasks; ``analysis``, ``across_groups``, ``across_tasks``: what they show together.
"""
