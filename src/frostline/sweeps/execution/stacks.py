"""Stacks: runs of one k that are trained together as one model, each with its own weights, and how a stack is trained.

What is tried again when memory runs out: first runs are trained without copies of hidden states on the GPU, then a stack in two
halves, then a single run with smaller micro-batches. If memory runs out while examples are scored,
:mod:`frostline.training.forward` scores smaller chunks, and nothing is trained again.
"""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from math import ceil, isfinite
from time import monotonic
from typing import Any

import torch
from safetensors import SafetensorError

from frostline import FrostlineError
from frostline.data.wording import first_line
from frostline.frozen.exactness import stack_refusal
from frostline.model.device import memory_limit, memory_ran_out, release_unused
from frostline.sweeps.execution.stopping import STOP
from frostline.sweeps.operations import COPIES
from frostline.sweeps.plan import Plan
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.store import Store, other_result
from frostline.sweeps.results.tensor_files import UNUSABLE, BestWeights, TensorFiles, not_stored
from frostline.training.experiment import Experiment
from frostline.training.result import Failure, Result
from frostline.training.run import Checkpoints, Run, State
from frostline.training.train import profile_step, run, run_stacked, start_values

MAX_RELATIVE_TIME = 0.9  # a stack is doubled while this lowers the time of a step per run to at most this share
OUT_OF_MEMORY = (RuntimeError, MemoryError)  # GPU libraries raise different errors when memory runs out
FAILURES = (*OUT_OF_MEMORY, AssertionError, ArithmeticError, ValueError)  # they fail one run; others end the sweep
EVERY = 600.0  # seconds of training after which a checkpoint is kept


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
    runs: Sequence[Run], experiment: Experiment, wanted: int | str, note: Callable[[str], None], *, workers: int = 1
) -> int:
    """The size of the stacks for these runs, which all have the same key.

    ``auto`` on a GPU: as large as memory allows and as long as larger stacks are faster per run. ``auto`` on a CPU: 1, except for
    k = 0 if the head reads one token. Such runs spend most of their time on starting small operations, so each worker gets one
    large stack.

    Args:
        runs: All runs with one key.
        experiment: What the runs share. It remembers sizes that were found before.
        wanted: The specification's ``stack``: a size or ``auto``.
        note: Called with a sentence if the runs cannot be stacked.
        workers: The number of workers that share the runs.
    """
    spec, device = runs[0], experiment.machine.device.type
    experiment = experiment.for_run(spec)
    head_only = experiment.one_token_cached and experiment.cut(spec) == experiment.pretrained.anatomy.count
    if len(runs) == 1 or wanted == 1 or spec.way.alone or (wanted == "auto" and device != "cuda" and not head_only):
        return 1
    key = (spec.stack_key, experiment.cut(spec), len(runs), wanted)
    if key not in experiment.worker.stack_sizes:
        size, refusal = _largest(runs, experiment, wanted, head_only=head_only)
        experiment.worker.stack_sizes[key] = spec, size, refusal
    _, size, refusal = experiment.worker.stack_sizes[key]
    if refusal:
        note(f"Runs of {spec.recipe} are trained one by one. {refusal}")
    return size if isinstance(wanted, int) else min(size, ceil(len(runs) / workers))


def _largest(
    runs: Sequence[Run], experiment: Experiment, wanted: int | str, *, head_only: bool
) -> tuple[int, str | None]:
    """The largest stack of these runs for one worker, and the reason if they cannot be stacked."""
    spec, pretrained = runs[0], experiment.pretrained
    names = spec.parameters(pretrained.anatomy)
    parameters = start_values(spec, experiment)
    refusal = stack_refusal(
        pretrained.model,
        pretrained.anatomy,
        names,
        experiment.cut(spec),
        packed=experiment.packed,
        batched=experiment.batched,
        head_token=experiment.head_token,
    )
    if refusal:
        return 1, refusal
    if isinstance(wanted, int):
        return min(wanted, len(runs)), None
    limit = memory_limit(experiment.machine.device)
    if head_only:  # nothing is timed; the activations of one token per example are small
        needed = COPIES * sum(p.numel() * p.element_size() for p in parameters.values())
        return max(1, min(len(runs), limit // needed)), None
    known = _known_size(spec, names, experiment)
    return _fastest_size(lambda size: profile_step(runs[:size], experiment), len(runs), limit, known=known), None


def _known_size(spec: Run, names: Set[str], experiment: Experiment) -> int:
    """A size that pays for these runs, which train ``names``: that of runs which train all of these parameters and more."""
    anatomy = experiment.pretrained.anatomy
    return max(
        (
            size
            for other, size, _ in experiment.worker.stack_sizes.values()
            if other.recipe.is_way == spec.recipe.is_way  # k and k, because a way changes more than the layers
            and other.model_copy(update={"recipe": spec.recipe}).stack_key == spec.stack_key
            and other.parameters(anatomy) >= names
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


def train_stack(
    stack: Sequence[Run],
    progress: Progress,
    plan: Plan,
    costs: Mapping[str, float],
    weights: BestWeights | None,
) -> None:
    """Train a stack and publish its results. What fails is retried in smaller parts; a run that fails for good is recorded.

    Args:
        stack: The runs, which have the same key.
        progress: Shows what is under way.
        plan: The sweep.
        costs: The cost of each run, by digest, in which progress is shown.
        weights: Stores the trained parameters of the best run of each k; None stores none.
    """
    spec, cost, experiment = stack[0], sum(costs[run.digest] for run in stack), plan.experiment
    progress.begin(name_of(stack))

    def on_step(step: int, total: int) -> None:
        progress.set_done(cost * step / total)

    failed: Failure | None = None
    ran_out = False
    files = TensorFiles(plan.checkpoints_in or plan.store.out, "checkpoints")
    more: dict[str, Any] = {
        "on_step": on_step,
        "checkpoints": RunCheckpoints(files, stack, experiment, progress.note),
    }
    limit_copies(stack, plan)
    try:
        results = [run(spec, experiment, **more)] if len(stack) == 1 else run_stacked(stack, experiment, **more)
    except FrostlineError:
        raise
    except FAILURES as error:
        ran_out = memory_ran_out(error)
        failed = Failure(digest=spec.digest, spec=spec, reason=first_line(error), traceback=traceback.format_exc())
    if failed:  # outside of the except block, where the error would still hold the memory of the stack
        note, parts = smaller_parts(stack, experiment, failed.reason, ran_out=ran_out)
        if parts:
            progress.note(note)
            for part in parts:
                train_stack(part, progress, plan, costs, weights)
            return
        plan.store.fail(failed)
    else:
        for one, result in zip(stack, results, strict=True):
            publish(one, plan.store, partial(plan.store.publish, result), result.logits, progress.note)
        if weights:
            _save_best(stack, results, weights, progress)
    files.remove(file for spec in stack for file in files.of(spec.digest))


def name_of(stack: Sequence[Run]) -> str:
    """What the progress display shows while a stack is trained."""
    first, count = stack[0], len(stack)
    return f"{first.recipe}, seed {first.seed}" if count == 1 else f"a stack of {count} runs of {first.recipe}"


def publish(
    run: Run, store: Store, add: Callable[[], bool], logits: Mapping[str, Any], note: Callable[[str], None]
) -> None:
    """Publish a result with ``add``. The first result of a run stands; a note says if it differs from this one.

    If the first one is damaged or gone, a note says so, and this one takes its place.
    """
    if not add() and (found := other_result(run, store, logits)):
        note(found)
        add()


def limit_copies(stack: Sequence[Run], plan: Plan) -> None:
    """Limit the copies of hidden states on a GPU to what the training of this stack leaves free. A CPU has no copies."""
    spec, experiment = stack[0], plan.experiment
    device, copies = experiment.machine.device, experiment.worker.copies
    if device.type != "cuda":
        return
    cell = plan.cells([spec]).get(spec.digest)
    if cell is not None and len(stack) <= cell.stack:
        needed = int(cell.memory_bytes)
    else:  # not forecast: an upper bound
        bound = plan.cost_model.memory_bound(spec)
        needed = torch.cuda.memory_allocated(device) - copies.bytes + len(stack) * bound
    copies.keep_within(memory_limit(device) - needed)


def smaller_parts(
    stack: Sequence[Run], experiment: Experiment, reason: str, *, ran_out: bool
) -> tuple[str, list[Sequence[Run]]]:
    """The parts in which a failed stack is trained again, and a sentence that says so; no parts if it has failed for good.

    A single run has the same batches as before, but their gradients are computed in parts. The experiment remembers the size of
    these parts for all runs with the same key.

    Args:
        stack: The runs that failed.
        experiment: What the runs share.
        reason: Why they failed.
        ran_out: Whether memory ran out.
    """
    spec, count = stack[0], len(stack)
    had_copies = ran_out and experiment.worker.copies.refuse()
    release_unused(experiment.machine.device)
    if had_copies:
        note = f"Memory ran out in runs of {spec.recipe} ({reason}); they are retried without hidden states on the GPU."
        return note, [stack]
    if count > 1:
        half = count // 2
        note = f"A stack of {count} runs of {spec.recipe} failed ({reason}); it is retried in two halves."
        return note, [stack[:half], stack[half:]]
    size = experiment.micro_batch(spec)
    if not ran_out or size == 1:
        return "", []
    experiment.worker.micro_batches[spec.stack_key] = smaller = (size + 1) // 2
    note = (
        f"Memory ran out with {size} examples at a time in a run of {spec.recipe} ({reason}); it is retried with {smaller}. "
        f"An optimizer step still has {spec.batch_size} examples."
    )
    return note, [stack]


def _save_best(stack: Sequence[Run], results: Sequence[Result], weights: BestWeights, progress: Progress) -> None:
    """Store the trained parameters of the best run of a stack if it is the best of its k so far."""
    usable = [
        (score, -spec.seed, spec, result.learned)
        for spec, result in zip(stack, results, strict=True)
        if result.learned and result.record.outcome == "ok" and (score := result.record.validation_best) is not None
    ]
    if not usable:
        return
    score, _, spec, learned = max(usable, key=lambda one: one[:2])
    try:
        weights.save_if_best(spec, score, learned)
    except UNUSABLE as error:
        progress.note(not_stored(spec, error))


@dataclass
class RunCheckpoints(Checkpoints):
    """The checkpoints of one run, or of a stack of runs.

    Attributes:
        files: Where they are.
        stack: The runs.
        experiment: How many examples are computed together: a state is continued only with the same number.
        note: Called with a sentence on what goes wrong.
    """

    files: TensorFiles
    stack: Sequence[Run]
    experiment: Experiment
    note: Callable[[str], None]
    since: float = field(default_factory=monotonic)

    def load(self) -> State | None:
        return self.files.load(self.stack[0].digest, self._about(), self.note)

    def after_step(self, state: Callable[[], State]) -> None:
        """Keep the state if it is time.

        Raises:
            Stopped: Training is asked to stop.
        """
        if monotonic() - self.since > (STOP.WORTH_KEEPING if STOP.made else EVERY):
            self._keep(state())
        STOP.stop_if_made()

    def _keep(self, state: State) -> None:
        steps = state["present"]["training"]["step"] + sum(phase["records"][0]["steps"] for phase in state["finished"])
        try:
            self.files.save(f"{self.stack[0].digest}.{steps}", (steps,), self._about(), state)
        except (OSError, SafetensorError, FrostlineError) as error:  # training can go on without it
            self.note(f"A checkpoint of {self.stack[0].recipe}, seed {self.stack[0].seed} could not be kept ({error}).")
        self.since = monotonic()
        STOP.since = self.since

    def _about(self) -> dict[str, object]:
        """What a state belongs to. With anything else, the run starts again."""
        return {
            "runs": [spec.digest for spec in self.stack],
            "micro_batch": self.experiment.micro_batch(self.stack[0]),
            **{package: version(package) for package in ("frostline", "torch")},
        }
