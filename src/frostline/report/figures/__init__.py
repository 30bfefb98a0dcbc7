"""Figures of pages.

``drawing`` has the style that they share, and turns them into SVG, PNG and PDF.
"""
