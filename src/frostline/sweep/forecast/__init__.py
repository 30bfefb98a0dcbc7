"""The forecast of a sweep's time and memory, from a few steps that are timed.

Start with ``prediction``. ``calibration`` chooses what to time, ``timer`` times it and interpolates between timed points.
"""
