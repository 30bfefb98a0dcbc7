"""The output of a sweep for people: the answer, tables, figures, the page, and the saved model with its card.

- ``names``, ``formatting``: printed names and numbers.
- ``answer/``: the recommendation and its sentence, for one sweep or an analysis of many results.
- ``explanations``: the sentences beside the answer.
- ``tables/``, ``figures/``, ``pages/``, ``templates/``: the content of report.html and its files.
- ``error_analysis``: confusion matrix and largest errors; ``probe_report``: what is reported of linear probes.
- ``recommended_model``: the saved model with its card.
- ``rebuild``: the steps after the last run; answer, tables and page from the results in a folder.

May import from data, statistics, fast, model, frozen, training and sweeps.
"""
