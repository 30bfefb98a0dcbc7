"""The memory that a run needs for the parameters that it trains, in addition to their pretrained values.

A run holds the values that it trains and, if it keeps its best epoch, the best values. Its optimizer holds AdamW's two
moments. A training step adds gradients. All of them are fp32. Activations are not counted here.
"""

COPY_BYTES = 4  # per trained parameter: the values in training, or the best values so far
SCORED_BYTES = 8  # per updated parameter, while examples are scored: AdamW's two moments
STEP_BYTES = 12  # per updated parameter, in a training step: AdamW's two moments and the gradient
COPIES = (2 * COPY_BYTES + STEP_BYTES) // COPY_BYTES  # all of the above, as copies of the trained parameters
