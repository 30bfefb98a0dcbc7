"""Tables for pages, CSV and LaTeX.

``table`` defines a table; ``by_depth`` has what tables by k share. Every other module builds the tables in its name.
"""
