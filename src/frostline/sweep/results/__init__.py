"""The results of a sweep on disk.

``store`` publishes the result of each run in one rename; ``folder`` reads a folder without loading a model; ``rows`` stores
the scored rows; ``tables`` makes data frames; ``search_record`` stores the decisions of a search.
"""
