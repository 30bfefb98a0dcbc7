"""The frozen layers: the cut, the forward pass, cached hidden states, the exactness check."""
