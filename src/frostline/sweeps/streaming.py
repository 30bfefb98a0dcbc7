"""Whether a sweep streams the layers of its model, and which of them its runs need in memory.

Streamed layers are read from the model folder one at a time (:mod:`frostline.model.streaming`). Only the forward pass over the
frozen layers can do that, so each run must start from cached hidden states.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from frostline import FrostlineError
from frostline.model.anatomy import Anatomy, count_parameters
from frostline.model.device import Machine, device_memory
from frostline.model.model_files import Streams
from frostline.model.pretrained import Pretrained
from frostline.model.streaming import Stream
from frostline.model.terms import layer_number
from frostline.model.ways import Way, way_named
from frostline.statistics.recipe import FULL, Recipe
from frostline.sweeps.grid import one_of_each
from frostline.sweeps.operations import COPIES, COPY_BYTES
from frostline.sweeps.plan import Plan
from frostline.sweeps.settings import Settings
from frostline.training.experiment import starting_cut
from frostline.training.run import Run, trainings_of

LOAD_ANYWAY = "or load the whole model with --no-stream"


def whether_to_stream(asked: bool | None, device: torch.device) -> Streams:
    """Whether the layers are streamed: as asked, or else if all weights do not fit into the memory that is free."""
    return lambda needed: needed > device_memory(device).free if asked is None else asked


def searchable(
    tunes: Sequence[Recipe], pretrained: Pretrained, machine: Machine, own: Mapping[str, Way]
) -> tuple[Recipe, ...]:
    """The values of ``tune`` for a search. If layers are streamed, full fine-tuning and what does not fit are left out.

    Nothing is left out of a list that the user gives, in which some k are missing. ``own`` are the user's ways.
    """
    every_k = {FULL, *map(Recipe, range(pretrained.anatomy.count + 1))} <= {*tunes}
    if pretrained.stream is None or not every_k:
        return tuple(tunes)
    anatomy, free = pretrained.anatomy, device_memory(machine.device).free
    numbers = [k for k in tunes if k.k is not None and k.k < anatomy.count]
    fit = [k for k in numbers if _bytes_for(pretrained, k.k or 0, Way(tune=k).parameters(anatomy)) <= free]
    *smaller, largest = fit if len(fit) > 1 else numbers[:2]
    depths = {one: anatomy.depth(way_named(one, own).parameters(anatomy)) for one in tunes if one.is_way}
    ways = [one for one, depth in depths.items() if depth is not None and depth <= (largest.k or 0)]
    return (*smaller, *ways, largest)


def load_upper_layers(plan: Plan) -> Plan:
    """Load the layers that the runs need for good. Returns the plan with a sentence about streaming.

    Raises:
        FrostlineError: A run cannot start from cached hidden states, or its layers do not fit into memory.
    """
    spec, pretrained, machine = plan.spec, plan.experiment.pretrained, plan.experiment.machine
    stream = pretrained.stream
    if stream is None:
        return plan
    anatomy = pretrained.anatomy
    different = one_of_each(plan.runs)
    lowest = min(_lowest_cut(plan, run, anatomy) for run in different)
    free = device_memory(machine.device).free
    needed, largest = max(
        (_bytes_for(pretrained, anatomy.count - lowest, run.parameters(anatomy)), run.recipe) for run in different
    )
    if needed > free and plan.missing(plan.runs):
        raise FrostlineError(
            f"tune {largest} needs at least {_gb(needed)} for its layers and their optimizer, but {_gb(free)} of memory "
            "are free: tune fewer layers, or free memory."
        )
    stream.keep(stream.in_layers(anatomy, range(lowest, anatomy.count)))
    note = (
        f"{_note(spec, pretrained, stream, free)} Training takes at least {_gb(needed)} for weights and optimizer "
        f"(tune {largest})."
    )
    return replace(plan, notes=(note, *plan.notes))


def _lowest_cut(plan: Plan, run: Run, anatomy: Anatomy) -> int:
    """The lowest cut from which a training of this run starts. Refuses one that needs the whole model."""
    if run.way.estimator == "words":
        return anatomy.count
    cuts = []
    for training in trainings_of(run, anatomy):
        cut = starting_cut(plan.cached, anatomy, training)
        if cut is None:
            depth = training.depth(anatomy)
            raise FrostlineError(_refusal(plan.spec, run, uncached=depth is not None and depth < anatomy.count))
        cuts.append(cut)
    return min(cuts)


def _refusal(spec: Settings, run: Run, *, uncached: bool) -> str:
    """Why this run cannot be streamed, and what to do."""
    what = f"tune {run.recipe} cannot be streamed"
    if spec.frozen_dropout:
        return f"{what}, because with --frozen-dropout no hidden states are cached: leave that out, {LOAD_ANYWAY}."
    if uncached:
        return (
            f"{what}, because its hidden states do not fit on the disk (--cache-limit): free disk space, {LOAD_ANYWAY}."
        )
    return f"{what}, because it needs all layers in every step: tune fewer layers, {LOAD_ANYWAY}."


def _bytes_for(pretrained: Pretrained, depth: int, trained: frozenset[str]) -> int:
    """Bytes of the weights above a cut at this depth, and of what a run holds for the parameters that it trains."""
    anatomy, model = pretrained.anatomy, pretrained.model
    lower = range(anatomy.count - max(1, depth))  # the last layer is always in memory
    held = frozenset(name for name, place in anatomy.places.items() if layer_number(place) not in lower)
    return COPY_BYTES * (count_parameters(model, held) + COPIES * count_parameters(model, trained))


def _note(spec: Settings, pretrained: Pretrained, stream: Stream, free: int) -> str:
    """The sentences about streaming in a plan."""
    model, anatomy = pretrained.model, pretrained.anatomy
    numbers = sorted({n for name in stream.absent if (n := layer_number(anatomy.places[name])) is not None})
    sizes = [COPY_BYTES * count_parameters(model, frozenset(stream.in_layers(anatomy, [n]))) for n in numbers]
    held = frozenset(anatomy.places) - stream.absent
    why = (
        "--stream"
        if spec.stream
        else f"all weights take {_gb(COPY_BYTES * count_parameters(model))}, {_gb(free)} are free"
    )
    return (
        f"Streams ({why}): {len(numbers)} of {anatomy.count} layers are read from {pretrained.folder} one at a time, "
        f"{_gb(max(sizes, default=0))} each. Embeddings, head and the other layers stay in memory: "
        f"{_gb(COPY_BYTES * count_parameters(model, held))}."
    )


def _gb(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 5e7 else f"{count / 1e6:.1f} MB"
