"""The search for what to tune, with as little training as possible.

Start with ``race.py``: it decides what to train next from the scores and times seen so far, and touches no model.
``scoreboard.py`` holds them, and ``outlook.py`` says what they tell about every choice. ``opening.py`` has the first steps, and
``plan.py`` forecasts them. ``trials.py`` has the data types. ``search.py`` trains the steps of the race and writes
``search.json``. ``probing.py`` fits models that train no layer, and estimates k from them. ``defaults.py`` has the defaults.
May import data, statistics, fast, model, frozen, training, sweep and report.
"""
