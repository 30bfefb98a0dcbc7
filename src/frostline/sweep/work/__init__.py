"""The work of a sweep, counted without running anything: operations, batches, memory per trained parameter, wall-clock time.

Start with ``workload``. ``operations`` is the cost model; ``memory`` and ``makespan`` are what the forecast, the search and the
execution have in common.
"""
