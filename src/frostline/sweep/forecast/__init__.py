"""The forecast of a sweep's time and memory.

Start with ``prediction``. ``operations`` and ``workload`` count what runs do; ``calibration``, ``timer`` and ``pace`` time a
few steps; ``record`` stores the forecast beside the measured time.
"""
