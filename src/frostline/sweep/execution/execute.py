"""Execute a sweep: train every run that has no result, and publish each result when its run ends.

When checkpoints of a run are kept: every ten minutes of training, and when a long run has to stop.

How much memory of a GPU the copies of hidden states may take while a stack trains.

What is tried again when memory runs out.

First runs are trained without copies of hidden states on the GPU, then a stack in two halves, then a single run with smaller
micro-batches. If memory runs out while examples are scored, :mod:`frostline.training.forward` scores smaller chunks, and nothing
is trained again.
"""

import traceback
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from time import monotonic, perf_counter, sleep

import numpy as np
import torch
from safetensors import SafetensorError

from frostline import FrostlineError
from frostline.data.wording import first_line
from frostline.fast.switch import memory_reused
from frostline.frozen.forward_pass import Rows
from frostline.frozen.hidden_states import load_or_compute
from frostline.model.device import memory_limit, memory_ran_out, release_unused
from frostline.sweep.execution.cuts import check_cuts
from frostline.sweep.execution.queue import POLL, Queue, Stack, shared_out
from frostline.sweep.execution.stacks import in_stacks, stack_size
from frostline.sweep.execution.stopping import STOP, WORTH_KEEPING
from frostline.sweep.execution.workers import run_concurrently, workers_for
from frostline.sweep.operations import CostModel
from frostline.sweep.plan import Plan, recipe_of, rows_needed
from frostline.sweep.progress import Progress
from frostline.sweep.results.leases import SILENT_AFTER, Leases
from frostline.sweep.results.store import DamagedError, other_result
from frostline.sweep.results.tensor_files import UNUSABLE, BestWeights, CheckpointFiles, not_stored
from frostline.training.experiment import Experiment, starting_cut
from frostline.training.forward import subset_key
from frostline.training.result import Failure, Result
from frostline.training.run import Checkpoints, Run, State, trainings_of
from frostline.training.train import run, run_stacked

EVERY = 600.0  # seconds of training


@dataclass
class RunCheckpoints(Checkpoints):
    """The checkpoints of one run, or of a stack of runs.

    Attributes:
        files: Where they are.
        stack: The runs.
        context: How many examples are computed together: a state is continued only with the same number.
        note: Called with a sentence on what goes wrong.
    """

    files: CheckpointFiles
    stack: Sequence[Run]
    context: Experiment
    note: Callable[[str], None]
    since: float = field(default_factory=monotonic)

    def load(self) -> State | None:
        return self.files.load(self.stack[0].digest, self._about(), self.note)

    def after_step(self, state: Callable[[], State]) -> None:
        """Keep the state if it is time.

        Raises:
            Stopped: Training is asked to stop.
        """
        if monotonic() - self.since > (WORTH_KEEPING if STOP.made else EVERY):
            self._keep(state())
        STOP.stop_if_made()

    def _keep(self, state: State) -> None:
        steps = state["present"]["training"]["step"] + sum(phase["records"][0]["steps"] for phase in state["finished"])
        try:
            self.files.save(self.stack[0].digest, steps, state, self._about())
        except (OSError, SafetensorError, FrostlineError) as error:  # training can go on without it
            self.note(f"A checkpoint of {self.stack[0].recipe}, seed {self.stack[0].seed} could not be kept ({error}).")
        self.since = monotonic()
        STOP.since = self.since

    def _about(self) -> dict[str, object]:
        """What a state belongs to. With anything else, the run starts again."""
        return {
            "runs": [spec.digest for spec in self.stack],
            "micro_batch": self.context.micro_batch(self.stack[0]),
            **{package: version(package) for package in ("frostline", "torch")},
        }


def limit_copies(stack: Sequence[Run], prepared: Plan) -> None:
    """Limit the copies to what the training of this stack leaves free. Only CUDA GPUs have copies."""
    spec, context = stack[0], prepared.context
    device, copies = context.machine.device, context.worker.copies
    if device.type != "cuda":
        return
    cell = prepared.cells([spec]).get(spec.digest)
    if cell is not None and len(stack) <= cell.stack:
        needed = cell.memory_bytes
    else:  # not forecast: an upper bound
        bound = CostModel(context, prepared.cached).memory_bound(spec)
        needed = torch.cuda.memory_allocated(device) - copies.bytes + len(stack) * bound
    copies.keep_within(memory_limit(device) - int(needed))


def smaller_parts(
    stack: Sequence[Run], context: Experiment, reason: str, *, ran_out: bool
) -> tuple[str, list[Sequence[Run]]]:
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
    had_copies = ran_out and context.worker.copies.refuse()
    release_unused(context.machine.device)
    if had_copies:
        note = f"Memory ran out in runs of {spec.recipe} ({reason}); they are retried without hidden states on the GPU."
        return note, [stack]
    if count > 1:
        half = count // 2
        note = f"A stack of {count} runs of {spec.recipe} failed ({reason}); it is retried in two halves."
        return note, [stack[:half], stack[half:]]
    size = context.micro_batch(spec)
    if not ran_out or size == 1:
        return "", []
    context.worker.micro_batches[spec.stack_key] = smaller = (size + 1) // 2
    note = (
        f"Memory ran out with {size} examples at a time in a run of {spec.recipe} ({reason}); it is retried with {smaller}. "
        f"An optimizer step still has {spec.batch_size} examples."
    )
    return note, [stack]


# These errors fail one run. Any other error ends the sweep.
FAILURES = (RuntimeError, MemoryError, AssertionError, ArithmeticError, ValueError)


def execute(
    prepared: Plan,
    runs: Sequence[Run],
    progress: Progress,
    *,
    weights: BestWeights | None = None,
    wait: bool = True,
    silent_after: float = SILENT_AFTER,
    shared: bool = False,
) -> None:
    """Train those of ``runs`` that have no result, and publish their results. Other processes may train some of them.

    Args:
        prepared: The sweep.
        runs: The requested runs.
        progress: Shows progress.
        weights: Stores the trained parameters of the best run of each k; None stores none.
        wait: Whether to wait for the runs that other processes train.
        silent_after: Seconds after which this process takes over the runs of another one, if it does not hear from it.
        shared: Whether other processes are known to train runs, too.
    """
    context, store = prepared.context, prepared.store
    context.worker.forward_pass_seconds = 0.0
    ended = store.ended()
    missing = [run for run in runs if run.digest not in ended]
    if not missing:
        return
    from_cache, workers = runs_from_cache(prepared, missing), workers_for(prepared, runs)
    rows = rows_needed(context, from_cache) if from_cache else None
    alone, in_seconds = prepared.costs(missing)
    costs = {digest: cost / min(workers, len(missing)) for digest, cost in alone.items()}  # so many at the same time
    forward_pass_cost = 0.0
    if prepared.forecast and in_seconds:
        forward_pass_cost = prepared.forecast.forward_pass_seconds
    elif rows is not None:
        forward_pass_cost = CostModel(context, prepared.cached).forward_pass_operations(rows)
    progress.start(len(missing), sum(costs.values()) + forward_pass_cost, seconds=in_seconds)
    prepare_hidden_states(prepared, missing, progress, forward_pass_cost)
    context.worker.copies.keep_within(0)  # stacks take precedence
    size_of = partial(stack_size, context=context, wanted=prepared.spec.stack, note=progress.note, workers=workers)
    stacks = list(in_stacks(missing, size_of))
    context.worker.at_a_time = min(workers, len(stacks))

    def cost_of(stack: Sequence[Run]) -> float:
        return sum(costs[spec.digest] for spec in stack)

    def show(run: Run) -> None:
        show_ended(run, prepared, costs[run.digest], progress)

    # alone, seed by seed: an interrupted sweep then has complete curves
    queue = _by_group(stacks, context, cost_of) if shared or workers > 1 else Queue.as_given(stacks)
    leases = Leases(store.out, silent_after, at_a_time=context.worker.at_a_time)
    train = partial(_train_stack, prepared=prepared, costs=costs, weights=weights)

    def end(stack: Sequence[Run]) -> None:
        leases.release([run.digest for run in stack])

    dealt = shared_out(queue, store, leases, wait=wait, on_other=show)
    all_cut = all(context.cut(spec) is not None for spec in missing)
    with memory_reused(release_large=all_cut), closing(dealt) as tasks, STOP.heeded():
        if workers > 1:
            run_concurrently(tasks, context.worker.at_a_time, train, _name, progress, end)
        else:
            for stack in tasks:
                if stack is None:
                    progress.begin("waiting for other processes")
                    sleep(POLL)
                else:
                    STOP.since = monotonic()
                    train(stack, progress)
                    end(stack)
                STOP.since = None
    context.worker.copies.keep_within(0)


def _by_group(stacks: Sequence[Stack], context: Experiment, cost_of: Callable[[Stack], float]) -> Queue:
    """Stacks in groups that start from one cut and train on the same rows."""
    targets = context.problem.targets[context.splits["train"]]

    def group_of(spec: Run) -> Hashable:
        return context.cut(spec), subset_key(spec, targets, context.folds)

    return Queue.by_group(stacks, group_of, cost_of)


def show_ended(run: Run, prepared: Plan, cost: float, progress: Progress) -> None:
    """Show a run that another process has ended. If its record is damaged, a note says so."""
    progress.finish(cost)
    try:
        ended = prepared.store.record(run.digest)
    except DamagedError as error:
        progress.note(str(error))
        return
    if ended is not None:
        progress.result(ended)


def _train_stack(
    stack: Sequence[Run],
    progress: Progress,
    prepared: Plan,
    costs: Mapping[str, float],
    weights: BestWeights | None,
) -> None:
    """Train a stack and publish its results. What fails is retried in smaller parts; a run that fails for good is recorded."""
    spec, cost = stack[0], sum(costs[run.digest] for run in stack)
    progress.begin(_name(stack))

    def on_step(step: int, total: int) -> None:
        progress.set_done(cost * step / total)

    failed: Failure | None = None
    ran_out = False
    files = CheckpointFiles(prepared.checkpoints_in or prepared.store.out)
    checkpoints = RunCheckpoints(files, stack, prepared.context, progress.note)
    limit_copies(stack, prepared)
    if prepared.context.states is not None:
        prepared.context.states.begin_group(prepared.context.cut(spec))
    try:
        if len(stack) == 1:
            results = [run(spec, prepared.context, on_step=on_step, checkpoints=checkpoints)]
        else:
            results = run_stacked(stack, prepared.context, on_step=on_step, checkpoints=checkpoints)
    except FrostlineError:
        raise
    except FAILURES as error:
        failed, ran_out = _failure(spec, error), memory_ran_out(error)
    if failed:  # outside of the except block, where the error would still hold the memory of the stack
        note, parts = smaller_parts(stack, prepared.context, failed.reason, ran_out=ran_out)
        if parts:
            progress.note(note)
            for part in parts:
                _train_stack(part, progress, prepared, costs, weights)
            return
        prepared.store.fail(failed)
        progress.result(failed)
    else:
        for spec, result in zip(stack, results, strict=True):
            if not prepared.store.publish(result) and (found := other_result(spec, prepared.store, result.logits)):
                progress.note(found)
                prepared.store.publish(result)  # if the other one was damaged
            progress.result(result.record)
        if weights:
            _save_best(stack, results, weights, progress)
    files.remove([spec.digest for spec in stack])
    progress.finish(cost)


def _name(stack: Sequence[Run]) -> str:
    """What the progress display shows while a stack is trained."""
    first, count = stack[0], len(stack)
    return f"{first.recipe}, seed {first.seed}" if count == 1 else f"a stack of {count} runs of {first.recipe}"


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


def prepare_hidden_states(prepared: Plan, runs: Sequence[Run], progress: Progress, cost: float = 0.0) -> None:
    """Run the exactness check, and load or compute the hidden states that these runs read.

    ``cost`` is the predicted cost of the forward pass over the frozen layers, for the progress display.
    """
    check_cuts(prepared)
    if from_cache := runs_from_cache(prepared, runs):
        rows, states = rows_needed(prepared.context, from_cache), prepared.context.states
        if states is not None and states.selection == prepared.cached:
            if states.has(rows):
                return
            rows = np.union1d(rows, states.rows)
        _load_hidden_states(prepared, rows, progress, cost)


def runs_from_cache(prepared: Plan, runs: Sequence[Run]) -> list[Run]:
    """Those of the runs that start from cached hidden states."""
    cached, anatomy = prepared.cached, prepared.context.pretrained.anatomy
    return [
        spec
        for spec in runs
        if any(starting_cut(cached, anatomy, one) is not None for one in trainings_of(spec, anatomy))
    ]


def _load_hidden_states(prepared: Plan, rows: Rows, progress: Progress, cost: float) -> None:
    """Load the hidden states of these rows from the cache, and compute those that are not there."""
    context, pretrained, cached = prepared.context, prepared.context.pretrained, prepared.cached
    progress.begin("hidden states")
    pretrained.restore()  # an earlier call on the same sweep leaves the parameters as its last run trained them
    loaded = 0.0

    def advance(more: float) -> None:
        nonlocal loaded
        loaded += more
        progress.set_done(cost * loaded / len(rows))

    forward_pass = context.forward_pass(cached)
    recipe, begun = recipe_of(pretrained, context.machine, forward_pass), perf_counter()
    with memory_reused():
        context.worker.states = load_or_compute(
            forward_pass, context.tokens, rows, recipe, progress=advance, warn=progress.note
        )
    context.worker.forward_pass_seconds = perf_counter() - begun
    progress.finish(cost)


def _failure(spec: Run, error: BaseException) -> Failure:
    return Failure(digest=spec.digest, spec=spec, reason=first_line(error), traceback=traceback.format_exc())
