"""The data of ``frostline demo``: English sentences from two small grammars, ``polarity.py`` and ``agreement.py``.

The test split uses content words that never occur in train and validation: what a model gets right there it knows from
pretraining. Only function words, adverbs of degree and the forms of "be" are shared. ``tables.py`` generates the tables.
"""
