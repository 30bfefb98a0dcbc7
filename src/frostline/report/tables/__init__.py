"""Tables for pages, CSV and LaTeX.

``table`` and ``latex`` define a table; ``by_depth`` and ``rules`` have what several tables share. Every other module builds the
tables in its name.
"""
