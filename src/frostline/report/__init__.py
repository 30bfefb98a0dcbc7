"""The output of a sweep for people: the answer, tables, figures, the page, and the saved model with its card.

- ``finish``: the steps after the last run; ``rebuild``: answer and tables from the results in a folder.
- ``answer/``: the recommendation and its sentence, for one sweep or an analysis of many results.
- ``tables/``, ``figures/``, ``pages/``, ``templates/``: the content of report.html and its files.
- ``recommended_model``, ``model_folder``, ``card``: the saved model.
- ``error_analysis``: confusion matrix and largest errors.
- ``names``, ``formatting``: printed names and numbers.

May import from data, statistics, fast, model, frozen, training and sweep.
"""
