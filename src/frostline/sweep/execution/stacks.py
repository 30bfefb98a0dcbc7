"""Group runs into stacks: runs of one k that are trained together as one model, each with its own weights."""

from collections.abc import Callable, Iterator, Sequence, Set
from math import ceil, isfinite

from frostline.frozen.exactness import stack_refusal
from frostline.model.device import memory_limit
from frostline.sweep.operations import COPIES
from frostline.training.experiment import Experiment, StackSize
from frostline.training.run import Run
from frostline.training.train import profile_step, start_values

MAX_RELATIVE_TIME = 0.9  # a stack is doubled while this lowers the time of a step per run to at most this share
OUT_OF_MEMORY = (RuntimeError, MemoryError)  # GPU libraries raise different errors when memory runs out


def in_stacks(runs: Sequence[Run], size_of: Callable[[list[Run]], int]) -> Iterator[list[Run]]:
    """Split the runs into stacks. The stacks are in the order of their first runs.

    ``size_of`` gives the size of the stacks for all runs with the same key. It is called once per key, first for the runs of the
    largest k: what it finds out about them holds for the others.
    """
    keys = [run.stack_key for run in runs]
    by_key: dict[str, list[int]] = {}  # indices of the runs with this key
    for index, key in enumerate(keys):
        by_key.setdefault(key, []).append(index)
    largest_first = sorted(by_key, key=lambda key: runs[by_key[key][0]].recipe.order, reverse=True)
    sizes = {key: size_of([runs[index] for index in by_key[key]]) for key in largest_first}
    for index, key in enumerate(keys):
        number = by_key[key].index(index)
        if number % sizes[key] == 0:  # the first run of its stack
            yield [runs[other] for other in by_key[key][number : number + sizes[key]]]


def stack_size(
    runs: Sequence[Run], context: Experiment, wanted: int | str, note: Callable[[str], None], *, workers: int = 1
) -> int:
    """The size of the stacks for these runs, which all have the same key.

    ``auto`` on a GPU: as large as memory allows and as long as larger stacks are faster per run. ``auto`` on a CPU: 1, except for
    k = 0 if the head reads one token. Such runs spend most of their time on starting small operations, so each worker gets one
    large stack.

    Args:
        runs: All runs with one key.
        context: What the runs share. It remembers sizes that were found before.
        wanted: The specification's ``stack``: a size or ``auto``.
        note: Called with a sentence if the runs cannot be stacked.
        workers: The number of workers that share the runs.
    """
    spec, device = runs[0], context.machine.device.type
    context = context.for_run(spec)
    head_only = context.one_token_cached and context.cut(spec) == context.pretrained.anatomy.count
    if len(runs) == 1 or wanted == 1 or spec.way.alone or (wanted == "auto" and device != "cuda" and not head_only):
        return 1
    key = (spec.stack_key, context.cut(spec), len(runs), wanted)
    if key not in context.worker.stack_sizes:
        size, refusal = _largest(runs, context, wanted, head_only=head_only)
        context.worker.stack_sizes[key] = StackSize(spec, size, refusal)
    _, size, refusal = context.worker.stack_sizes[key]
    if refusal:
        note(f"Runs of {spec.recipe} are trained one by one. {refusal}")
    return size if isinstance(wanted, int) else min(size, ceil(len(runs) / workers))


def _largest(runs: Sequence[Run], context: Experiment, wanted: int | str, *, head_only: bool) -> tuple[int, str | None]:
    """The largest stack of these runs for one worker, and the reason if they cannot be stacked."""
    spec, pretrained, device = runs[0], context.pretrained, context.machine.device.type
    names = spec.parameters(pretrained.anatomy)
    parameters = start_values(spec, context)
    refusal = stack_refusal(
        pretrained.model,
        pretrained.anatomy,
        names,
        context.cut(spec),
        packed=context.packed,
        batched=device != "cpu",
        head_token=context.head_token,
    )
    if refusal:
        return 1, refusal
    if isinstance(wanted, int):
        return min(wanted, len(runs)), None
    limit = memory_limit(context.machine.device)
    if head_only:  # nothing is timed; the activations of one token per example are small
        needed = COPIES * sum(p.numel() * p.element_size() for p in parameters.values())
        return max(1, min(len(runs), limit // needed)), None
    known = _known_size(spec, names, context)
    return _fastest_size(lambda size: profile_step(runs[:size], context), len(runs), limit, known=known), None


def _known_size(spec: Run, names: Set[str], context: Experiment) -> int:
    """A size that pays for these runs, which train ``names``: that of runs which train all of these parameters and more."""
    anatomy = context.pretrained.anatomy
    return max(
        (
            found.size
            for found in context.worker.stack_sizes.values()
            if found.spec.recipe.is_way == spec.recipe.is_way  # k and k, because a way changes more than the layers
            and found.spec.model_copy(update={"recipe": spec.recipe}).stack_key == spec.stack_key
            and found.spec.parameters(anatomy) >= names
        ),
        default=1,
    )


def _fastest_size(profile: Callable[[int], tuple[float, int]], most: int, limit: int, *, known: int = 1) -> int:
    """Double the size while larger stacks are faster per run and fit into ``limit`` bytes.

    Args:
        profile: Gives for a stack of this size the seconds of a step (infinite if none could be timed) and the bytes in use.
        most: The largest size.
        limit: Bytes that the device has.
        known: A size that fits and is faster than smaller ones.
    """
    size = min(known, most)
    if size == most:
        return size
    try:
        seconds, used = profile(size)
    except OUT_OF_MEMORY:
        return _fastest_size(profile, most, limit) if size > 1 else 1  # a single run itself reports the error
    while size < most and isfinite(seconds):
        larger = min(2 * size, most)
        if used * larger > limit * size:
            break
        try:
            larger_seconds, used = profile(larger)
        except OUT_OF_MEMORY:
            break
        if larger_seconds / larger > MAX_RELATIVE_TIME * seconds / size:
            break
        size, seconds = larger, larger_seconds
    return size
