"""What Python users call; ``frostline/__init__.py`` exports it. May import every folder except ``studies`` and ``cli``.

Start with ``sweep.py``. ``probe.py`` and ``prediction.py`` are independent of it; ``demo.py`` is a sweep over generated data.
"""
