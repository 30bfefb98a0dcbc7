"""Figures of pages, each in the module of its name.

``style`` has what they share; ``files`` turns them into SVG, PNG and PDF.
"""
