"""Linear probes on frozen features: ridge and logistic regression on cached hidden states.

- fitting.py: fit and score probes after every layer. Start reading here.
- inputs.py: the features of a probe: one vector of each example, after one layer or several layers
- linear.py: ridge and logistic regression with a cross-validated penalty, without torch
- baseline.py: the TF-IDF baseline
- saved.py: save a probe, load it, and predict with it
"""
