"""Simulations behind `benchmarks/coverage.py`: scores with a known truth, and what the code that makes the answer finds."""
