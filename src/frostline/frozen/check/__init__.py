"""The exactness check: on the model at hand, shared hidden states give the results of computing them every time.

- ``exactness``: the check for every k.
- ``trial``: one model and one batch, compared for one k after another.
- ``comparison``: relative differences of logits and gradients.
- ``batches``: the examples of the check.
- ``head_token``: which token the head reads, and what the last layer needs for it.
- ``packed_pass``: whether a packed forward pass over the frozen layers is exact.
- ``stacking``: whether several runs can be trained as one stack.
- ``restoring``: leave the model as it was.
"""
