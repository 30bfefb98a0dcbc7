"""Tables for pages, CSV and LaTeX.

``table`` and ``latex`` define what a table is; ``by_depth`` and ``rules`` hold what several tables share. Every other
module builds the tables that it is named after.
"""
