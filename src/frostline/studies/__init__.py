"""Published protocols that run as sweeps, and comparisons with their published numbers. May import every folder except ``cli``.

A study is a TOML file in this folder. Its numbers are in ``published/``. Start with ``protocol.py``, which reads the file.
``sweeps.py`` runs the study. ``comparison.py`` compares measured with published numbers.
"""
