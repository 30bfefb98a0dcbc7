"""Speed-ups for CPUs, each in one file. ``switch`` turns them off, all at once or one by one.

May import from data and statistics only. ``optimizer``, ``forwards`` and ``glibc`` are what several speed-ups share.
"""
