"""GLUE: the nine tasks (``tasks.py``), their tables in any layout (``tables.py``), and their files (``files.py``)."""
