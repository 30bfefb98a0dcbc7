"""The search for the smallest k that reaches the target, with as little training as possible.

Start with ``race.py``: it decides what to train next from the scores seen so far, and touches no model. ``scoreboard.py`` holds
these scores, ``trials.py`` the settings and the vocabulary. ``probing.py`` and ``guesses.py`` have the estimates before any
training. ``running.py`` carries the race out. May import data, statistics, fast, model, frozen, training, sweep and report.
"""
