"""Figures of pages, each in the module of its name.

``style`` and ``depth_axis`` have what they share; ``files`` turns them into SVG, PNG and PDF.
"""
