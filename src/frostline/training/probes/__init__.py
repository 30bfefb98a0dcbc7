"""Linear probes on frozen features: ridge and logistic regression on cached hidden states.

- inputs.py: what a probe reads: one vector of each example, after one layer or several
- linear.py: ridge and logistic regression with a cross-validated penalty, without torch
- fitting.py: fit and score probes after every layer
- baseline.py: the TF-IDF baseline
- saved.py: a probe on disk, and its predictions
"""
