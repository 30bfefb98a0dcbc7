"""Speed-ups for CPUs, each in one file. Start reading at ``switch``, which lists them and turns them off.

Several speed-ups share ``optimizer``, ``forwards`` and ``malloc``. May import from data and statistics only.
"""
