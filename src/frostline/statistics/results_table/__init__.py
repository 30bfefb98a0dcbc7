"""Reads a table of results from any source as runs. It has one row per run and metric; its columns are mapped to ours.

- ``read.py``: ``read_results``, the entry point, and checks that need several rows.
- ``columns.py``: maps the table's columns to ours.
- ``row.py``: reads one row as a run.
- ``metric.py``: chooses the metric of each task, and finds the score of its constant baseline.
"""
