"""What is tried again when memory runs out.

First runs are trained without copies of hidden states on the GPU, then a stack in two halves, then a single run with smaller
micro-batches. If memory runs out while examples are scored, :mod:`frostline.training.forward` scores smaller chunks, and nothing
is trained again.
"""

from collections.abc import Sequence

from frostline.model.memory import release_unused
from frostline.training.context import RunContext
from frostline.training.specification import RunSpec


def smaller_parts(
    stack: Sequence[RunSpec], context: RunContext, reason: str, *, ran_out: bool
) -> tuple[str, list[Sequence[RunSpec]]]:
    """The parts in which a failed stack is trained again, and a sentence that says so; no parts if it has failed for good.

    A single run has the same batches as before, but their gradients are computed in parts. The context remembers the size of
    these parts for all runs with the same key.

    Args:
        stack: The runs that failed.
        context: What the runs share.
        reason: Why they failed.
        ran_out: Whether memory ran out.
    """
    spec, count = stack[0], len(stack)
    had_copies = ran_out and context.copies.refuse()
    release_unused(context.machine.device)
    if had_copies:
        note = (
            f"Memory ran out in runs of {spec.trainable} ({reason}); they are retried without hidden states on the GPU."
        )
        return note, [stack]
    if count > 1:
        half = count // 2
        note = f"A stack of {count} runs of {spec.trainable} failed ({reason}); it is retried in two halves."
        return note, [stack[:half], stack[half:]]
    size = context.micro_batch(spec)
    if not ran_out or size == 1:
        return "", []
    context.micro_batches[spec.stack_key] = smaller = (size + 1) // 2
    note = (
        f"Memory ran out with {size} examples at a time in a run of {spec.trainable} ({reason}); it is retried with {smaller}. "
        f"An optimizer step still has {spec.batch_size} examples."
    )
    return note, [stack]
