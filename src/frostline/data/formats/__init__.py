"""Tables in any format: one module for each format, and ``reader.py``, which chooses the module.

To add a file format, write a function ``path -> Table`` in a module here, and give its file endings in
``reader.FILE_READERS``. Frames in memory are in ``reader.FRAME_READERS``. Errors must name the file, the row and the remedy.
"""
