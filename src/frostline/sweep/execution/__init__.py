"""Carrying a sweep out."""
