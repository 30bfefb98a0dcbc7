"""Models that train no layer: linear probes on cached hidden states, and a TF-IDF model.

- fitting.py: fit and score probes after every layer. Start reading here.
- inputs.py, examples.py: the features of a probe: one vector of each example, after one layer or several layers.
- linear.py: ridge and logistic regression with a cross-validated penalty, without torch.
- words.py: the TF-IDF model of words and word pairs.
- alternatives.py: the best probe and the TF-IDF model, which compete with every k of a search.
- saved.py: save a probe, load it, and predict with it; saved_files.py reads the files of any saved model.
"""
