"""The frozen layers: run them once over all examples, cache their hidden states, and train the model above the cut.

- ``cut``: run the model from a cut on, without the layers below. Start reading here.
- ``forward_pass``: compute hidden states of many examples, also with one layer in memory. ``logits``: so for new texts.
- ``hidden_states``: the hidden states on disk. ``cache``: list and remove them. ``readers``: read them on a GPU.
- ``exactness``: the exactness checks of the cut and of stacks.
- ``trunk``: several classifiers that share their frozen layers.

May import from data, statistics, fast and model.
"""
