"""The answer to how many layers should be fine-tuned, as data and as a sentence.

- ``answer``: the answer for a sweep and for one train size; ``recommendation``: the recommended k and its best run.
- ``sentence``, ``undecided``, ``remarks``, ``comparison``: the sentences.
- ``scores_on_test``: test scores, added after every choice; ``search_outcome``: the state of a search.
- ``groups``: results of many models and tasks; ``analysis``, ``across_groups``, ``across_tasks``: what they have in common.
"""
