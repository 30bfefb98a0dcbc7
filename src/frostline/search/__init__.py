"""The search for the k to tune, with as little training as possible.

Start with ``race.py``: it decides what to train next from the scores seen so far, and touches no model. ``scoreboard.py`` holds
these scores, and ``trials.py`` has the data types. ``search.py`` trains the steps of the race, and ``recorder.py`` writes
``search.json``. ``probing.py`` and ``estimates.py`` estimate k before any training. ``defaults.py`` has the default settings.
May import data, statistics, fast, model, frozen, training, sweep and report.
"""
