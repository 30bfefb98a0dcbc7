"""The functions and classes for Python users. ``frostline/__init__.py`` exports them.

Start with ``sweep.py``. ``find.py`` is the search. Both return the object of ``results.py``. ``probe.py``, ``prediction.py`` and
``bundle.py`` are independent of them. May import every folder except ``studies`` and ``cli``.
"""
