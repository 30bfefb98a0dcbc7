"""The results of a sweep on disk."""
