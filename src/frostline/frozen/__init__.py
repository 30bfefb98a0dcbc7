"""The frozen layers: cut them off, run them once over all examples, cache the result, check that nothing changes.

- ``cut``: run the real model from a cut on.
- ``selection``: which hidden states are computed and cached.
- ``batches``: split examples into batches for the forward pass.
- ``forward_pass``: compute hidden states of many examples.
- ``cache``: the hidden states on disk.
- ``check``: the exactness check on the model at hand.

May import from data, statistics, fast and model.
"""
