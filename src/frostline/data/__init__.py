"""Data: reads tables, decides the prediction task, draws training subsets, holds out validation and test rows.

``load.py`` tells the whole story; ``specification.py`` lists what a user can choose. To add a file format, write one module
in ``formats/`` and name its reader in ``formats/reader.py``; for a data set with splits, see ``dataset_sources.py``.
``wording.py`` and ``parsing.py`` write and read the values in messages and options; ``files.py`` writes files safely.
Imports no other folder.
"""
