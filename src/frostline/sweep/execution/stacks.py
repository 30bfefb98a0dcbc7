"""Which runs of a sweep are trained as one, and how many at a time."""

from collections.abc import Callable, Iterator, Sequence
from math import ceil, isfinite

from frostline.frozen.check.stacking import stack_refusal
from frostline.model.memory import memory_limit
from frostline.training.context import RunContext
from frostline.training.seeds import generator_seed
from frostline.training.specification import RunSpec
from frostline.training.step_profile import profile_step

WORTH = 0.9  # a stack grows while a run's share of a step falls below this part of what it was
TOO_LARGE = (RuntimeError, MemoryError)  # memory that ran out bears several names on a GPU
COPIES = 5  # of what a run trains: values, gradients, two moments, best values


def in_stacks(runs: Sequence[RunSpec], size_of: Callable[[list[RunSpec]], int]) -> Iterator[list[RunSpec]]:
    """The runs in their order, but those that are trained as one together, at the place of the first.

    ``size_of`` says of all runs of one kind how many to train as one; it is asked when the first of them comes.
    """
    kinds = [run.stack_key for run in runs]
    alike: dict[str, list[int]] = {}  # places of the runs of a kind
    for place, kind in enumerate(kinds):
        alike.setdefault(kind, []).append(place)
    sizes: dict[str, int] = {}
    for place, kind in enumerate(kinds):
        if kind not in sizes:
            sizes[kind] = size_of([runs[other] for other in alike[kind]])
        nth = alike[kind].index(place)
        if nth % sizes[kind] == 0:  # the first of its stack
            yield [runs[other] for other in alike[kind][nth : nth + sizes[kind]]]


def stack_size(
    runs: Sequence[RunSpec], context: RunContext, wanted: int | str, note: Callable[[str], None], *, workers: int = 1
) -> int:
    """How many of these runs, all of one kind, to train as one; ``note`` is told where it is fewer than was asked for.

    By default (``auto``) a GPU's memory decides, and whether a step of more runs is cheaper for each. On a CPU only
    heads alone that look at one token are stacked, some for each of the ``workers``: most of what they cost is starting
    small operations. Deeper runs keep a CPU busy on their own. What was found is remembered.
    """
    spec, pretrained, device = runs[0], context.pretrained, context.machine.device.type
    one_token = context.states is not None and context.states.selection.head
    head_alone = one_token and context.cut(spec) == pretrained.anatomy.count
    if len(runs) == 1 or wanted == 1 or (wanted == "auto" and device != "cuda" and not head_alone):
        return 1
    kind = (spec.stack_key, context.cut(spec), len(runs), wanted)
    if kind not in context.stack_sizes:
        context.stack_sizes[kind] = _largest(runs, context, wanted, head_alone=head_alone)
    size, refusal = context.stack_sizes[kind]
    if refusal:
        note(f"Runs of {spec.trainable} are trained one by one. {refusal}")
    return size if isinstance(wanted, int) else min(size, ceil(len(runs) / workers))


def _largest(
    runs: Sequence[RunSpec], context: RunContext, wanted: int | str, *, head_alone: bool
) -> tuple[int, str | None]:
    """How many of these runs one worker would train as one, and why no two can be."""
    spec, pretrained, device = runs[0], context.pretrained, context.machine.device.type
    names = spec.to_train.parameters(pretrained.anatomy)
    parameters = pretrained.start_run(names, generator_seed(spec.seed, "head"))
    refusal = stack_refusal(
        pretrained.model,
        pretrained.anatomy,
        names,
        context.cut(spec),
        packed=context.packed,
        as_one=device != "cpu",
        head_token=context.head_token,
    )
    if refusal:
        return 1, refusal
    if isinstance(wanted, int):
        return min(wanted, len(runs)), None
    limit = memory_limit(context.machine.device)
    if head_alone:
        needed = COPIES * sum(p.numel() * p.element_size() for p in parameters.values())
        return max(1, min(len(runs), limit // needed)), None
    return _grown(lambda size: profile_step(runs[:size], context), len(runs), limit), None


def _grown(rehearsal: Callable[[int], tuple[float, int]], most: int, limit: int) -> int:
    """Doubled from 1 while that makes a run's share of a step cheaper and fits into ``limit`` bytes.

    ``rehearsal`` gives, for a number of runs, the seconds of a step (infinite where none could be timed) and the bytes in use.
    """
    size = 1
    try:
        seconds, used = rehearsal(1)
    except TOO_LARGE:  # the run itself will say so
        return 1
    while size < most and isfinite(seconds):
        more = min(2 * size, most)
        if used * more > limit * size:
            break
        try:
            longer, used = rehearsal(more)
        except TOO_LARGE:
            break
        if longer / more > WORTH * seconds / size:
            break
        size, seconds = more, longer
    return size
