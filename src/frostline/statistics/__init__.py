"""Metrics, confidence intervals, cells of a curve, operating points and comparison of tasks. No torch."""
