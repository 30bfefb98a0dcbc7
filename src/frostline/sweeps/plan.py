"""The plan of a sweep: its experiment, its runs, and the hidden states that they share, as far as they fit on the disk."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path

import numpy as np

from frostline import FrostlineError
from frostline.data.load import Data
from frostline.fast.last_layer import HeadTokenPart
from frostline.fast.switch import release_freed_memory
from frostline.frozen.cache import CacheKey, cache_folder, similar_recipes
from frostline.frozen.exactness import Check, check
from frostline.frozen.forward_pass import ForwardPass, Rows, StateSelection, selection_for
from frostline.frozen.hidden_states import RESERVED_BYTES, SHARD_ROWS, missing_rows
from frostline.model.anatomy import count_parameters
from frostline.model.device import DeviceMemory, Machine, free_bytes
from frostline.model.pretrained import Pretrained
from frostline.model.terms import OWN_HEAD, HeadKind
from frostline.statistics.recipe import FULL, NAMED, Recipe
from frostline.sweeps.grid import Identity, Origin, expand, one_of_each, read_sweep
from frostline.sweeps.operations import CostModel
from frostline.sweeps.parameter_groups import Group, groups_by_tune
from frostline.sweeps.results.forecast_record import Forecast, KindForecast
from frostline.sweeps.results.store import Store
from frostline.sweeps.settings import Settings
from frostline.training.experiment import Batching, Experiment, starting_cut
from frostline.training.forward import subset_rows, train_rows
from frostline.training.probes import features_after
from frostline.training.run import Run, trainings_of

OTHER_FILES = 2_000_000  # bytes of the report with figures and tables, of the tokenizer and of the card


@dataclass(frozen=True)
class PlannedStates:
    """The hidden states that the runs of a sweep share."""

    rows: int  # distinct examples in the forward pass over the frozen layers
    tokens: int  # of these examples
    wanted: StateSelection  # what the runs could use
    cached: StateSelection  # the part of it that fits into the limit
    bytes: int  # of the cached ones, on disk
    limit_bytes: int  # that they may take
    free_bytes: int  # of the disk


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A sweep that is ready to run: its experiment, its runs, and what they share.

    Attributes:
        spec: The settings of this call.
        identity: What identifies the sweep besides its settings.
        origin: Where it was started.
        data: The examples.
        experiment: The model, the encoded examples and the device.
        store: The results in its folder.
        requested: The runs of this call.
        runs: These, and the runs of earlier calls in the folder.
        states: The hidden states that the runs share.
        memory: Of the device that trains.
        processes: How many processes train. With several GPUs, each trains on one of its own.
        notes: Sentences that the user should read.
        forecast: Time and memory of the runs without a result; None until steps are timed.
        checkpoints_in: The folder of the sweep that keeps checkpoints; None: that of ``store``.
    """

    spec: Settings
    identity: Identity
    origin: Origin
    data: Data
    experiment: Experiment
    store: Store
    requested: tuple[Run, ...]
    runs: tuple[Run, ...]
    states: PlannedStates
    memory: DeviceMemory
    processes: int
    notes: tuple[str, ...]
    forecast: Forecast | None = None
    checkpoints_in: Path | None = None

    @property
    def cached(self) -> StateSelection:
        """The hidden states that are cached."""
        return self.states.cached

    def check_cuts(self) -> None:
        """Check in fp32, once, that the cuts are exact with every head. That also chooses packed or padded batches.

        Raises:
            FrostlineError: A cut is not exact.
        """
        experiment, by_head = self.experiment, {OWN_HEAD: list[Run]()}
        if experiment.worker.batching is not None:
            return
        for spec in (spec for spec in self.runs if spec.way.in_loop):
            by_head.setdefault(experiment.for_run(spec).pretrained.head, []).append(spec)
        checks_of = {kind: self._checks(runs, kind) for kind, runs in by_head.items()}
        release_freed_memory()
        checks = [one for some in checks_of.values() for one in some]
        for one in (one for one in checks if one.refused):
            at = "" if one.recipe is None else f" with {one.recipe}"
            raise FrostlineError(
                f"The model {experiment.pretrained.name} cannot be cut exactly{at}: {one.refused} Run `frostline check` for "
                "details, or choose another model."
            )
        head_tokens: dict[HeadKind, HeadTokenPart | None] = {}
        for kind, some in checks_of.items():
            as_checked = all(one.head_token and one.batches == checks[0].batches for one in some)
            head_tokens[kind] = some[0].head_token if as_checked else None
        experiment.worker.batching = Batching(all(one.batches == "packed" for one in checks), head_tokens)

    def _checks(self, runs: Sequence[Run], kind: HeadKind) -> list[Check]:
        """The check of the smallest k and the largest one of some runs, and of full fine-tuning, with the head of these runs."""
        pretrained = self.experiment.pretrained.with_head(kind)
        depths = [spec.depth(pretrained.anatomy) for spec in one_of_each(runs) if spec.recipe != NAMED]
        ks = {max(depth, kind.layers) for depth in depths if depth is not None}
        ends = {min(ks), max(ks)} if ks else set()
        all_cut = all(starting_cut(self.cached, pretrained.anatomy, spec) is not None for spec in runs)
        return check(
            pretrained.model,
            # always with full fine-tuning: a sweep to which it is added later then uses the same kind of batches
            tune=[*sorted(ends), FULL],
            tune_modules=next((spec.way.modules for spec in runs if spec.recipe == NAMED), None),
            max_uncut_layers=max(ends) if ends and all_cut else None,
        )

    @cached_property
    def cost_model(self) -> CostModel:
        """Operations and memory of the runs. They depend on packing and head tokens, which the check of the cuts chooses."""
        self.check_cuts()
        return CostModel(self.experiment, self.cached)

    @property
    def refit_rows(self) -> int | None:
        """The number of rows that the saved model is trained on once more; None if it is that of a run."""
        if not (self.identity.folds if self.spec.refit is None else self.spec.refit):
            return None
        splits = self.experiment.splits
        return len(splits["validation"]) + (0 if self.identity.folds else len(splits["train"]))

    def missing(self, runs: Sequence[Run]) -> list[Run]:
        """Those of ``runs`` that have no result in the folder."""
        done = self.store.done()
        return [run for run in runs if run.digest not in done]

    def cells(self, runs: Sequence[Run]) -> dict[str, KindForecast]:
        """The forecast of each of ``runs`` that has one, by digest."""
        cells = self.forecast.by_kind if self.forecast else {}
        return {run.digest: cells[run.kind] for run in runs if run.kind in cells}

    def costs(self, runs: Sequence[Run]) -> tuple[dict[str, float], bool]:
        """The predicted cost of each of ``runs`` if it is trained alone, by digest, and whether these are wall-clock seconds.

        They are operations unless all of the runs have a forecast.
        """
        cells = self.cells(runs)
        if self.forecast and len(cells) == len(runs):
            return {digest: self.forecast.workers * cell.seconds for digest, cell in cells.items()}, True
        return {run.digest: self.cost_model.operations(run) for run in runs}, False

    def grown(self) -> bool:
        """Whether another call has added runs to the folder since. Their examples are not tokenized here."""
        older, known = read_sweep(self.store), {run.digest for run in self.runs}
        return older is not None and any(run.digest not in known for run in expand(older.spec, self.identity))

    @cached_property
    def groups(self) -> dict[Recipe, tuple[Group, ...]]:
        """The groups of parameters, trained and frozen, by recipe."""
        return groups_by_tune(self.runs, self.experiment)

    @property
    def trained(self) -> dict[Recipe, int]:
        """The number of parameters that are trained, by recipe."""
        return {k: sum(one.parameters for one in some if one.trained) for k, some in self.groups.items()}

    @property
    def parameters(self) -> int:
        """The number of parameters of the model."""
        return count_parameters(self.experiment.pretrained.model)

    @property
    def truncated(self) -> dict[str, float]:
        """The share of the examples in use that are truncated, by split."""
        return {name: self.experiment.tokens.truncated(rows) for name, rows in self.experiment.splits.items()}

    @property
    def truncated_by_class(self) -> dict[str, float]:
        """The share of truncated training examples, by class."""
        rows, tokens = self.experiment.splits["train"], self.experiment.tokens
        shares = {
            name: tokens.truncated(rows[self.data.train.with_label(n)]) for n, name in enumerate(self.identity.labels)
        }
        return {label: share for label, share in shares.items() if not np.isnan(share)}

    @property
    def disk_bytes(self) -> int:
        """The most space that the output folder takes: results, report, model, and the trained parameters of the best runs."""
        splits, values = self.experiment.splits, prod(self.experiment.problem.predictions_per_row)
        rows = 2 * len(splits["validation"]) + len(splits.get("test", ()))
        result = 4 * rows * values * max(1, len(self.identity.labels)) + 16_000
        return len(self.runs) * result + OTHER_FILES + 4 * (self.parameters + sum(self.trained.values()))


def states_wanted(spec: Settings, runs: Sequence[Run], experiment: Experiment, *, probes: bool) -> StateSelection:
    """The hidden states that these runs (and probes after every layer) could use, if there were enough disk space."""
    anatomy = experiment.pretrained.anatomy
    different = one_of_each(runs)
    probes = probes or any(run.way.estimator == "probe" for run in different)
    trainings = [training for run in different if run.way.in_loop for training in trainings_of(run, anatomy)]
    own: set[int] = set()
    others: set[int] = set()  # of heads that read all tokens
    for training in trainings:
        depth = None if spec.frozen_dropout else training.depth(anatomy)
        if depth is not None and depth != anatomy.count:
            of_head = own if training.way.head == OWN_HEAD else others
            of_head.add(anatomy.count - max(depth, training.way.head.layers))
    wanted = selection_for(sorted(own), anatomy, experiment.head_reads)
    wanted = replace(wanted, cuts=tuple(sorted({*wanted.cuts, *others})))
    if not probes:
        return wanted
    features = features_after(range(anatomy.count + 1), of_words=experiment.tokens.of_words)
    return replace(wanted, pooled=features.pooled, cuts=features.cuts or wanted.cuts)


def planned_states(
    wanted: StateSelection, experiment: Experiment, runs: Sequence[Run], limit: float | None
) -> PlannedStates:
    """The part of the wanted hidden states that the disk has space for, with a ``limit`` in GB that the user allows."""
    needed, tokens, pretrained = rows_needed(experiment, runs), experiment.tokens, experiment.pretrained
    unique = needed[np.unique(tokens.keys[needed], return_index=True)[1]]  # one row of each distinct example
    count, width = int(tokens.lengths[unique].sum()), pretrained.anatomy.width
    free = max(0, free_bytes(nearest_existing(cache_folder())) - RESERVED_BYTES)
    most = math.inf if limit is None else limit * 1e9

    def fits(part: StateSelection) -> bool:
        """Whether the disk has space for the states that are not cached yet, and the limit allows all of them."""
        recipe = recipe_of(pretrained, experiment.machine, experiment.forward_pass(part))
        # if states after the last layer are cached, it ran for all tokens
        whole = pretrained.anatomy.count in (*part.pooled, *part.cuts)
        recipes = [one for one in similar_recipes(recipe) if bool(one.head_token) != whole]
        missing = min((missing_rows(tokens, unique, part, one) for one in recipes), key=len, default=unique)
        lengths = tokens.lengths[missing]
        between = 0  # bytes of the hidden states between layers while examples are streamed
        if pretrained.stream:
            between = 4 * width * int(np.sort(lengths)[-SHARD_ROWS:].sum())
        more = part.bytes(len(missing), int(lengths.sum()), width) + between
        return more <= free and part.bytes(len(unique), count, width) <= most

    cached = wanted.largest_part(fits)
    size = cached.bytes(len(unique), count, width)
    return PlannedStates(len(unique), count, wanted, cached, size, int(min(free, most)), free)


def rows_needed(experiment: Experiment, runs: Sequence[Run]) -> Rows:
    """The rows of the pool that these runs train on or are scored on."""
    parts = [rows for name, rows in experiment.splits.items() if name != "train"]
    parts += [train_rows(experiment, spec) for spec in _one_per_subset(runs)]
    return np.unique(np.concatenate(parts))


def rows_trained(runs: Sequence[Run], data: Data) -> Rows | None:
    """The training rows that at least one of these runs trains on; None: all."""
    if any(spec.train_size == len(data.train) for spec in runs):
        return None
    subsets = [subset_rows(spec, data.train.targets, data.folds) for spec in _one_per_subset(runs)]
    return np.unique(np.concatenate(subsets))


def _one_per_subset(runs: Sequence[Run]) -> Iterable[Run]:
    """One run of each set of training examples."""
    return {(spec.seed if spec.subset == "per-seed" else spec.fold, spec.train_size): spec for spec in runs}.values()


def recipe_of(pretrained: Pretrained, machine: Machine, forward_pass: ForwardPass) -> CacheKey:
    """Everything that determines this model's hidden states on this machine."""
    facts = machine.facts()
    return CacheKey(
        model=pretrained.name,
        weights=pretrained.weights,
        precision=machine.precision,
        machine={
            "attention": str(pretrained.model.config._attn_implementation),
            **{name: facts[name] for name in ("device_name", "threads", "instructions", "torch", "transformers")},
        },
        head_reads=forward_pass.head_reads,
        packed=forward_pass.packed,
        head_token=" ".join(forward_pass.head_token.modules) if forward_pass.head_token else "",
    )


def nearest_existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return path if path.exists() else nearest_existing(path.parent)
