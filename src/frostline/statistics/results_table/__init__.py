"""Anybody's table of results as runs: one row per run and metric, with its columns mapped to ours.

- ``read.py``: ``read_results``, the entry point, and checks that need several rows.
- ``columns.py``: which column of the table is which of ours.
- ``row.py``: one row as a run.
- ``metric.py``: which metric of a task is used, and the score of its constant baseline.
"""
