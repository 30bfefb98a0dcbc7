"""The memory that a run needs for the parameters that it trains, and that a process needs for oneDNN's kernels.

In addition to the pretrained values, a run holds the values that it trains and, if it keeps its best epoch, the best values. Its
optimizer holds AdamW's two moments. A training step adds gradients. All of them are fp32. Activations are not counted here.

On a CPU, oneDNN compiles kernels for every number of tokens that it meets in bfloat16, and keeps the last 1,024 of them.
"""

from frostline.model.device import Machine

COPY_BYTES = 4  # per trained parameter: the values in training, or the best values so far
SCORED_BYTES = 8  # per updated parameter, while examples are scored: AdamW's two moments
STEP_BYTES = 12  # per updated parameter, in a training step: AdamW's two moments and the gradient
COPIES = (2 * COPY_BYTES + STEP_BYTES) // COPY_BYTES  # all of the above, as copies of the trained parameters

KERNEL_BYTES = 560_000  # of a kernel; for layers of width 384 and 768 alike
KERNELS = 5  # for each number of tokens: those of products and of their gradients; measured with MiniLM
KEPT_KERNELS = 1024  # oneDNN's default


def kernel_bytes(machine: Machine, sizes: int) -> int:
    """An estimate of the bytes that a process holds for oneDNN's kernels.

    Args:
        machine: What trains.
        sizes: How many different numbers of tokens its batches have, approximately.
    """
    if machine.device.type != "cpu" or machine.precision != "bfloat16":
        return 0
    return KERNEL_BYTES * min(KEPT_KERNELS, KERNELS * sizes)
