"""Published protocols that run as sweeps, compared with their published numbers. May import every folder except ``cli``.

A study is a TOML file here, with its numbers in ``published/`` and model configurations in ``configurations/``. Start with
``protocol.py``, which reads it. ``sweeps.py`` runs it, ``parameters.py`` counts what each k trains, ``comparison.py`` compares.
"""
