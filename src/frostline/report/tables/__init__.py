"""Tables for pages, CSV and LaTeX.

``table`` defines a table. ``curve_tables`` are those of one curve, ``sweep_tables`` those of a whole sweep, and
``analysis_tables`` those over many models and tasks.
"""
