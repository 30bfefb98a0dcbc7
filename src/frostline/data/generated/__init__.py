"""The data of ``frostline demo``: English sentences from two small grammars, ``polarity.py`` and ``agreement.py``.

The content words of the test split never occur in train and validation. A model can know them only from pretraining. The
splits share only function words, adverbs of degree and the forms of "be". ``tables.py`` generates the tables.
"""
