"""The folder of a sweep: results, tables and records.

- ``store``: publish the result of each run with one rename, read it verified, and set aside what no longer counts.
- ``folder``: read a folder without loading a model; the scored examples, and the predictions of models that train no layer.
- ``tables``: the results table and the table of scores.
- ``search_record``, ``forecast_record``: the decisions of a search, and the forecast of a sweep.
- ``tensor_files``: checkpoints of runs under way, and the trained parameters of the best run of each k.
- ``leases``: which process trains which run.
"""
