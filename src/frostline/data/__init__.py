"""Read tables, decide the prediction task, hold out validation and test rows, draw training subsets.

Start reading in ``load.py``. To add a file format, name its endings in ``kinds.py`` and call its reader in ``reader.py``; for a
data set with splits, see ``dataset_sources.py``. ``wording.py`` formats values for messages and parses values of options,
``files.py`` reads and writes files of folders that may come from others. Imports no other folder.
"""
