"""The frozen layers: run them once over all examples, cache their hidden states, and train the model above the cut.

- ``cut``: run the model from a cut on, without the layers below. Start reading here.
- ``selection``: which hidden states are computed and cached.
- ``batches``: split examples into batches for the forward pass over the frozen layers.
- ``forward_pass``: compute hidden states of many examples.
- ``layer_by_layer``: the same with one layer in memory. ``logits``: so for the logits of new texts.
- ``cache/``: the hidden states on disk.
- ``check/``: the exactness check of the cut.
- ``bundle/``: several classifiers that share their frozen layers.

May import from data, statistics, fast and model.
"""
