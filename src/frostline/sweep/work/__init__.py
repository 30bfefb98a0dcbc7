"""The work of a sweep, counted without running anything: operations, batches, memory per trained parameter, wall-clock time.

Start with ``workload``. It also has the memory per parameter. ``operations`` is the cost model; the forecast, the search and
the execution have ``makespan`` in common.
"""
