"""The exactness check: the cut model computes the same logits and gradients as the uncut model.

- ``exactness``: check one model for every k. Start reading here.
- ``cut_comparison``: compare the cut model with the uncut model on one batch, also with NaN in all weights below the cut.
- ``differences``: relative differences of logits and gradients, and the model's state restored after a check.
- ``batches``: the examples of the check.
- ``head_token``: which token the classifier head reads, and which modules of the last layer can run for that token only.
- ``packed_pass``: whether packed batches are exact in the forward pass over the frozen layers.
- ``stacking``: whether several runs can be trained as one stack.
"""
