"""Read tables, decide the prediction task, hold out validation and test rows, draw training subsets.

Start reading in ``load.py``. ``specification.py`` lists what a user can choose. To add a file format, write one module
in ``formats/``, name its reader in ``formats/reader.py`` and its endings in ``formats/endings.py``; for a data set with
splits, see ``dataset_sources.py``. ``wording.py`` formats values for messages, ``parsing.py`` parses values of options,
``files.py`` reads and writes files of folders that may come from others, ``sealed.py`` adds checksums, ``locks.py`` locks
files. Imports no other folder.
"""
