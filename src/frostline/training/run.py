"""One run: a specification in, a result out. The whole story of the product on one screen."""

import hashlib
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from frostline.data import subset_indices
from frostline.fast.dropout import Dropout
from frostline.fast.embedding import few_rows
from frostline.fast.gradients import gradient_of
from frostline.fast.last_layer import Narrow
from frostline.fast.linear import ready_weights
from frostline.fast.memory import peak_memory
from frostline.frozen.cut import Upper, cut_at
from frostline.frozen.forward_pass import Need, Pass, looks_up, tokens_at_once
from frostline.frozen.hidden_states import HiddenStates
from frostline.model.anatomy import HEAD, POOLER, Anatomy, count_parameters
from frostline.model.device import Machine
from frostline.model.packing import packable
from frostline.model.pretrained import Pretrained, frozen_modules, set_train_mode
from frostline.model.stacking import stacked
from frostline.model.tokens import Tokens, parts_within
from frostline.model.trainable import depth
from frostline.model.trainable import trained as trained_names
from frostline.statistics.metrics import defined
from frostline.training.loop import Forward, Learner, Problem, Rows, Trained, parameter_groups, train
from frostline.training.specification import RunSpec

SCHEMA_VERSION = 1


@dataclass
class Bench:
    """What all runs of one worker share: the model, the encoded texts of all splits, and what is kept of them."""

    pretrained: Pretrained
    machine: Machine
    problem: Problem
    tokens: Tokens  # the pool: every split, one after the other
    splits: dict[str, Rows]  # split -> rows of the pool
    reads: str  # which hidden states the head looks at: first, last, all
    packed: bool
    folds: Rows | None = None  # of each training row, where validation is all of them, a fold for each run
    narrow: Narrow | None = None  # what of the last layer is computed for the head's token only
    states: HiddenStates | None = None
    workers: int = 1  # so many runs share the cores, and so the clock
    plain: bool = False  # as transformers by itself: what is scored not in parts, and every row of a table in each step
    pass_seconds: float = 0.0  # by the clock: having the hidden states at hand, whatever of them was there
    # What frostline.sweep.execution.stacks found: how many runs of a kind go as one, and why no two.
    stack_sizes: dict[Hashable, tuple[int, str | None]] = field(default_factory=dict)

    def parts(self, lengths: NDArray[np.int64], cut: int | None) -> list[slice]:
        """The parts in which texts that have these ``lengths``, ``[K, B]``, are scored from ``cut`` on; by the head alone,
        which takes little room, all at once."""
        if self.plain or cut == self.pretrained.anatomy.count:
            return [slice(0, lengths.shape[1])]
        return list(parts_within(lengths, tokens_at_once(self.machine.device, self.pretrained.anatomy) // 2))

    def computed(self, lengths: NDArray[np.int64]) -> int:
        """Tokens that one batch of texts of these ``lengths``, ``[B]``, has, as it is computed."""
        return int(lengths.sum()) if self.packed else len(lengths) * int(lengths.max())

    def at_once(self, lengths: NDArray[np.int64], cut: int | None) -> int:
        """The most of them that are scored together."""
        return max(self.computed(lengths[part]) for part in self.parts(lengths[None], cut))

    def cut(self, spec: RunSpec) -> int | None:
        """After how many layers this run takes up kept states; None: it begins with the texts."""
        return None if self.states is None else cut_of(self.states.need, self.pretrained.anatomy, spec)

    def pass_for(self, need: Need) -> Pass:
        """How hidden states that are to be kept are made."""
        anatomy = self.pretrained.anatomy
        narrow = None if anatomy.count in need.pooled else self.narrow  # what probes read is of all tokens
        packed = self.packed and looks_up(self.pretrained.model, anatomy)
        return Pass(self.pretrained.model, anatomy, need, self.reads, packed, self.machine.autocast, narrow)


@dataclass
class Result:
    """What a run leaves: plain facts for JSON, and the logits behind the scores."""

    facts: dict[str, Any]
    logits: dict[str, NDArray[Any]]  # validation_best, validation_last, and of further splits: [rows, C]
    test_facts: dict[str, Any] | None = None
    test_logits: NDArray[np.float32] | None = None
    learned: Mapping[str, Tensor] = field(default_factory=dict)  # the trained parameters: the next run overwrites them


def run(spec: RunSpec, bench: Bench, *, on_step: Callable[[int, int], None] = lambda step, total: None) -> Result:
    """Train as ``spec`` says and score; the model is left at the best epoch.

    The same specification gives the same bits on a CPU. Head, order and dropout have generators of their own,
    drawn from the seed alone, so they are the same for every k.
    """
    return run_stacked([spec], bench, on_step=on_step)[0]


def run_stacked(
    specs: Sequence[RunSpec],
    bench: Bench,
    *,
    as_one: bool | None = None,
    on_step: Callable[[int, int], None] = lambda step, total: None,
) -> list[Result]:
    """As :func:`run`, for runs that differ in seed and learning rate alone, trained as one; the model is left as it was.

    Seconds are shared equally; memory is that of all together. ``as_one``: see :mod:`frostline.model.stacking`; by default
    wherever it is not on a CPU.
    """
    first, begun = specs[0], perf_counter()
    names = trained_names(first, bench.pretrained.anatomy)
    with peak_memory(bench.machine) as peak, opened(specs, bench, as_one) as (learners, forward):
        audit = _Audit(bench, names)

        def set_mode(training: bool) -> None:
            _set_mode(bench, first, names, training)
            if training:
                audit.look_at_modes()

        trained = train(
            forward,
            learners,
            bench.problem,
            scored_rows(bench, first),
            first,
            set_mode=set_mode,
            on_step=on_step,
        )
        worth_it = any(one.outcome != "diverged" for one in trained)
        others = [name for name in bench.splits if name not in ("train", "validation")] * worth_it
        scored = {name: _logits_of_all(forward, bench, bench.splits[name], specs) for name in others}
        facts = audit.facts(frozen_dropout=first.frozen_dropout)
    seconds = (perf_counter() - begun) / len(specs)
    return [
        _result(
            spec,
            bench,
            one,
            {} if one.outcome == "diverged" else {name: logits[n] for name, logits in scored.items()},
            {
                "audit": {**facts, **audit.facts_of(learners[n])},
                "peak_memory_bytes": peak.bytes,
                "run_seconds": seconds,
                "learned": learners[n].parameters,
                "stacked": len(specs),
            },
        )
        for n, (spec, one) in enumerate(zip(specs, trained, strict=True))
    ]


def restore(spec: RunSpec, bench: Bench, learned: Mapping[str, Tensor]) -> NDArray[np.float32]:
    """Put what a run has ``learned`` back into the model; gives the logits ``[n, C]`` of the validation rows with it."""
    names = trained_names(spec, bench.pretrained.anatomy)
    bench.pretrained.have(bench.cut(spec))
    parameters = bench.pretrained.start(names, generator_seed(spec.seed, "head"))
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(learned[name])
    bench.pretrained.model.eval()
    with forward_from(bench, [spec]) as forward:
        return _logits_of_all(forward, bench, scored_rows(bench, spec), [spec])[0]  # type: ignore[no-any-return]


def rehearse(specs: Sequence[RunSpec], bench: Bench, *, steps: int = 4) -> tuple[float, int]:
    """Seconds of a training step of these runs as one, and the most memory in use, on their longest texts."""
    first, lengths = specs[0], bench.problem.lengths
    names = trained_names(first, bench.pretrained.anatomy)

    def longest(rows: Rows, count: int) -> Rows:  # some of them again where there are not so many
        return np.resize(rows[np.argsort(-lengths[rows], kind="stable")], count)

    ends: list[float] = []
    scored = scored_rows(bench, first)
    with peak_memory(bench.machine) as peak, opened(specs, bench) as (learners, forward):
        train(
            forward,
            [replace(one, rows=longest(one.rows, steps * first.per_device_train_batch_size)) for one in learners],
            bench.problem,
            longest(scored, min(len(scored), first.per_device_eval_batch_size)),
            first.model_copy(update={"num_train_epochs": 1.0, "evaluations_per_epoch": 2}),  # best values are kept, too
            set_mode=lambda training: _set_mode(bench, first, names, training),
            on_step=lambda step, total: ends.append(perf_counter()),
        )
    gaps = [after - before for before, after in pairwise(ends)]
    return min(gaps, default=math.inf), peak.bytes  # a loss that is not finite leaves no step to be timed


@contextmanager
def opened(
    specs: Sequence[RunSpec], bench: Bench, as_one: bool | None = None
) -> Iterator[tuple[list[Learner], Forward]]:
    """The model ready for training these runs as one: what each learns, and rows to logits for all."""
    pretrained = bench.pretrained
    pretrained.have(bench.cut(specs[0]))
    names = trained_names(specs[0], pretrained.anatomy)

    def start(number: int) -> Mapping[str, nn.Parameter]:
        return pretrained.start(names, generator_seed(specs[number].seed, "head"))

    way = bench.machine.device.type != "cpu" if as_one is None else as_one
    with (
        nullcontext([start(0)])
        if len(specs) == 1
        else stacked(pretrained.model, names, len(specs), start, as_one=way) as own,
        forward_from(bench, specs) as forward,
    ):
        learners = [
            Learner(
                parameters,
                optimizer_groups(spec, pretrained.anatomy, parameters),
                train_rows(bench, spec),
                torch.Generator().manual_seed(generator_seed(spec.seed, "order")),
            )
            for spec, parameters in zip(specs, own, strict=True)
        ]
        yield learners, forward


def _set_mode(bench: Bench, spec: RunSpec, names: frozenset[str], training: bool) -> None:
    model = bench.pretrained.model
    if not training:
        model.eval()
    elif spec.frozen_dropout:
        model.train()
    else:
        set_train_mode(model, bench.pretrained.anatomy, names)


def _logits_of_all(forward: Forward, bench: Bench, rows: Rows, specs: Sequence[RunSpec]) -> NDArray[np.float32]:
    rows = np.stack([rows] * len(specs))  # [K, n] -> [K, n, C]
    return bench.problem.logits(forward, rows, specs[0].per_device_eval_batch_size)


def kind_of(spec: RunSpec) -> str:
    """A name for what runs that may be trained as one have in common: all but learning rate and seed, of which the fold."""
    return spec.model_copy(update={"seed": spec.fold or 0, "learning_rate": 1.0}).digest


def _result(
    spec: RunSpec, bench: Bench, trained: Trained, scored: dict[str, NDArray[np.float32]], about: Mapping[str, Any]
) -> Result:
    """Of what a training left, what it said of further splits, and what is known about it beside."""
    test = scored.pop("test", None)
    facts = _facts(spec, bench, trained, about)
    facts["scores"] += [
        {"split": split, "epoch": facts["best_epoch"], "metric": name, "value": value}
        for split, logits in scored.items()
        for name, value in _plain(bench.problem.scores(logits, bench.splits[split])).items()
    ]
    result = Result(facts, {**_logits(trained), **scored}, learned=about["learned"])
    if test is not None:
        result.test_logits = test
        scores = bench.problem.scores(test, bench.splits["test"])
        result.test_facts = {"schema_version": SCHEMA_VERSION, "digest": spec.digest, "scores": _plain(scores)}
    return result


def optimizer_groups(spec: RunSpec, anatomy: Anatomy, parameters: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """What the optimizer is given: the ``parameters`` that ``spec`` trains, those of head and pooler apart."""
    head = frozenset(name for name in parameters if anatomy.places[name] in (HEAD, POOLER))
    return parameter_groups(parameters, head, spec, spec.learning_rate, spec.head_learning_rate)


def generator_seed(seed: int, purpose: str) -> int:
    """A seed of its own for each purpose, so that no two draw the same numbers."""
    return int.from_bytes(hashlib.blake2b(f"{purpose}/{seed}".encode(), digest_size=6).digest(), "big")


def train_rows(bench: Bench, spec: RunSpec) -> Rows:
    """The run's training examples: a nested, stratified subset that is the same for every k."""
    pool = bench.splits["train"]
    return pool[subset_rows(spec, bench.problem.targets[pool], bench.folds)]


def subset_rows(spec: RunSpec, targets: NDArray[Any], folds: Rows | None) -> Rows:
    """Which of the training rows, given by their targets and folds, a run trains on."""
    pool = np.arange(len(targets)) if folds is None or spec.fold is None else np.flatnonzero(folds != spec.fold)
    seed = generator_seed(spec.data_seed if spec.subset == "fixed" else spec.seed, f"subset-{spec.subset}")
    return pool[subset_indices(targets[pool], spec.train_size, seed)]


def scored_rows(bench: Bench, spec: RunSpec) -> Rows:
    """The validation rows that the run is scored on: all, or those of its fold."""
    rows = bench.splits["validation"]
    return rows if bench.folds is None or spec.fold is None else rows[bench.folds == spec.fold]


def cut_of(kept: Need, anatomy: Anatomy, spec: RunSpec) -> int | None:
    """After how many layers a run takes up kept states: at its own cut, else at the nearest kept below it."""
    tuned = depth(spec, anatomy)
    if tuned is None or spec.frozen_dropout:
        return None
    cut = anatomy.count - tuned
    return cut if tuned == 0 and kept.head else max((c for c in kept.cuts if c <= cut), default=None)


@contextmanager
def forward_from(bench: Bench, specs: Sequence[RunSpec]) -> Iterator[Forward]:
    """The function from rows of the pool, ``[K, B]``, to logits ``[K, B, C]``, for the cut of these runs; dropout draws
    from each run's seed (on a GPU from the first's)."""
    pretrained, device, runs = bench.pretrained, bench.machine.device, len(specs)
    seeds = [generator_seed(spec.seed, "dropout") for spec in specs]
    dropout = Dropout(*seeds) if device.type == "cpu" else None
    cut, states = bench.cut(specs[0]), bench.states
    head_alone = cut == pretrained.anatomy.count  # it costs nothing, and stacked it is to give the same bits
    one_token = head_alone and states is not None and states.need.head

    def inputs(rows: Rows) -> tuple[dict[str, Tensor], Tensor | None]:
        if cut is None or states is None:
            return bench.tokens.batch(rows), None
        if one_token:
            return bench.tokens.one_token(rows, last=bench.reads == "last"), states.head(rows)
        return bench.tokens.batch(rows), states.tokens(cut, rows)

    def forward(upper: Upper, rows: Rows) -> Tensor:
        batch, kept = inputs(rows.ravel())
        batch = {name: x.to(device, non_blocking=True) for name, x in batch.items()}
        with bench.machine.autocast():
            logits = upper(batch, None if kept is None else kept.to(device, non_blocking=True))
        return logits.view(*rows.shape, -1)

    def forward_in_parts(upper: Upper, rows: Rows) -> Tensor:
        if torch.is_grad_enabled():
            return forward(upper, rows)
        return torch.cat([forward(upper, rows[:, part]) for part in bench.parts(bench.tokens.lengths[rows], cut)], 1)

    with (
        packable(pretrained.model) if bench.packed else nullcontext() as packing,
        ready_weights(pretrained.model, bench.machine) if runs == 1 and not head_alone else nullcontext(),
        few_rows(pretrained.model) if runs == 1 and not bench.plain else nullcontext(),
        dropout.instead(pretrained.model) if dropout else nullcontext(),
        cut_at(pretrained.model, pretrained.anatomy, cut, packing=packing, runs=runs, narrow=bench.narrow) as upper,
        torch.random.fork_rng(),  # for types that drop without nn.Dropout
    ):
        torch.manual_seed(seeds[0])
        if packing:
            packing.dropout = dropout
        yield lambda rows: forward_in_parts(upper, rows)


class _Audit:
    """What froze and what moved, looked at before, during and after the training."""

    def __init__(self, bench: Bench, names: frozenset[str]) -> None:
        self.bench, self.names = bench, names
        self.before = bench.pretrained.frozen_digest(names)
        self.frozen_in_train_mode = 0

    def look_at_modes(self) -> None:
        """Count modules of which nothing is trained, with the dropout inside them, that are not in eval mode."""
        frozen = set(frozen_modules(self.bench.pretrained.model, self.names))
        self.frozen_in_train_mode = sum(module.training for module in frozen)

    def facts(self, *, frozen_dropout: bool) -> dict[str, Any]:
        """The audit of the model, as it stands in the result.

        Raises:
            AssertionError: something that was to stay frozen did not; such a run is no result.
        """
        pretrained = self.bench.pretrained
        model, places = pretrained.model, pretrained.anatomy.places
        parameters = dict(model.named_parameters())
        by_place: dict[str, dict[str, int]] = {}
        for name, place in places.items():
            counts = by_place.setdefault(place, {"trained": 0, "frozen": 0})
            counts["trained" if name in self.names else "frozen"] += parameters[name].numel()
        facts = {
            "parameters": count_parameters(model),
            "trainable_parameters": count_parameters(model, self.names),
            "by_place": by_place,
            "each_parameter_in_one_place": set(places) == set(parameters),
            "frozen_bytes_unchanged": pretrained.frozen_digest(self.names) == self.before,
            "frozen_gradients_none": all(gradient_of(p) is None for n, p in parameters.items() if n not in self.names),
            "frozen_in_eval_mode": self.frozen_in_train_mode == 0 and not frozen_dropout,
        }
        wrong = [name for name, value in facts.items() if value is False]
        assert wrong in ([], ["frozen_in_eval_mode"] if frozen_dropout else []), f"audit: {wrong}"
        return facts

    def facts_of(self, learner: Learner) -> dict[str, Any]:
        """The audit of one run's own parameters, as it stands in the result.

        Raises:
            AssertionError: its optimizer held others, or not all.
        """
        trained = {id(p) for p in learner.parameters.values()}
        held = [id(p) for group in learner.groups for p in group["params"]]
        exactly = learner.parameters.keys() == self.names and len(held) == len(trained) and set(held) == trained
        assert exactly, "audit: ['optimizer_holds_exactly_the_trained']"
        return {"optimizer_holds_exactly_the_trained": exactly, "clipped_parameters": len(trained)}


def _facts(spec: RunSpec, bench: Bench, trained: Trained, about: Mapping[str, Any]) -> dict[str, Any]:
    best = trained.evaluations[trained.best] if trained.evaluations else None
    metric = bench.problem.metric
    scores = [
        {"split": split, "epoch": point.epoch, "metric": name, "value": value}
        for point in trained.evaluations
        for split, values in (("validation", point.validation), ("train_running", point.train))
        for name, value in _plain(values).items()
    ]
    last_epoch = trained.evaluations[-1].epoch if trained.evaluations else None
    scores += [
        {"split": "train", "epoch": last_epoch, "metric": name, "value": value}
        for name, value in _plain(trained.train_last).items()
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        "digest": spec.digest,
        "spec": spec.model_dump(mode="json"),
        "status": "done",
        "outcome": trained.outcome,
        "reason": trained.reason,
        "metric": metric,
        "best_epoch": best.epoch if best else None,
        "validation_best": _plain(best.validation)[metric] if best else None,
        "validation_last": _plain(trained.evaluations[-1].validation)[metric] if best else None,
        "train_last": _plain(trained.train_last).get(metric),
        "scores": scores,
        "cost": {
            "train_seconds": trained.train_seconds / bench.workers,  # its share of the clock's
            "evaluation_seconds": trained.evaluation_seconds / bench.workers,
            "pass_seconds": bench.states.seconds if bench.states and bench.cut(spec) is not None else 0.0,  # of all
            "peak_memory_bytes": about["peak_memory_bytes"],
            "run_seconds": about["run_seconds"] / bench.workers,
            "steps": trained.steps,
        },
        "audit": about["audit"],
        "provenance": {
            **bench.machine.facts(),
            "packed": bench.packed,
            "narrow": bench.narrow is not None,
            "cut": bench.cut(spec),
            "stacked": about["stacked"],
            "workers": bench.workers,
        },
    }


def _logits(trained: Trained) -> dict[str, NDArray[Any]]:
    if not trained.evaluations:
        return {}
    return {
        "validation_best": trained.evaluations[trained.best].logits,
        "validation_last": trained.evaluations[-1].logits,
    }


def _plain(scores: dict[str, float]) -> dict[str, float | None]:
    """Scores for JSON, which has no word for what is not defined but null."""
    return {name: defined(value) for name, value in scores.items()}
