"""The folder of a sweep: results, tables and records.

``store`` publishes the result of each run with one rename; ``folder`` reads a folder without loading a model; ``rows`` stores
the scored examples; ``tables`` makes data frames. ``search_record`` and ``forecast_record`` store the decisions of a search and
the forecast of a sweep. ``alternatives`` stores the predictions of models that train no layer.

``set_aside`` moves what no longer counts, and ``agreement`` compares two results of one run.
``checkpoint_files`` keeps the state of a run that is under way.
``leases`` shows which process trains which run.
"""
