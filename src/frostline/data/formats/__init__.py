"""Read tables in any format. There is one module for each format; ``reader.py`` chooses among them.

To add a file format, write a function ``path -> Table`` in a new module. Call it in ``reader.read_table``, and add its file
endings to ``endings.py``. Readers of tables in memory are in ``reader.FRAME_READERS``. Error messages must contain the file, the
row and the remedy.
"""
