"""One run: a specification in, a result out. The whole story of the product on one screen."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from frostline.cut import Upper, cut_at
from frostline.data import subset_indices
from frostline.dropout import Dropout
from frostline.hidden import HiddenStates, Need
from frostline.layers import HEAD, POOLER, Anatomy, count_parameters
from frostline.machine import Machine, peak_memory
from frostline.packing import packable
from frostline.parts import depth
from frostline.parts import trained as trained_names
from frostline.pretrained import Pretrained, frozen_modules, set_train_mode
from frostline.specification import RunSpec
from frostline.tokens import Tokens
from frostline.training import Problem, Rows, Trained, parameter_groups, train

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
    states: HiddenStates | None = None
    cache_seconds: float = 0.0  # of the pass, for each run that used it
    pass_seconds: float = 0.0  # by the clock: having the hidden states at hand, whatever of them was there

    def cut(self, spec: RunSpec) -> int | None:
        """After how many layers this run takes up kept states; None: it begins with the texts."""
        return None if self.states is None else cut_of(self.states.need, self.pretrained.anatomy, spec)


@dataclass
class Result:
    """What a run leaves: plain facts for JSON, and the logits behind the scores."""

    facts: dict[str, Any]
    logits: dict[str, NDArray[Any]]  # validation_best, validation_last, and of further splits: [rows, C]
    test_facts: dict[str, Any] | None = None
    test_logits: NDArray[np.float32] | None = None


def run(spec: RunSpec, bench: Bench, *, on_step: Callable[[int, int], None] = lambda step, total: None) -> Result:
    """Train as ``spec`` says and score; the model is left at the best epoch.

    The same specification gives the same bits on a CPU. Head, order and dropout have generators of their own,
    drawn from the seed alone, so they are the same for every k.
    """
    begun = perf_counter()
    model, anatomy = bench.pretrained.model, bench.pretrained.anatomy
    names = trained_names(spec, anatomy)
    parameters = bench.pretrained.start(names, generator_seed(spec.seed, "head"))
    groups = optimizer_groups(spec, anatomy, parameters)
    audit = _Audit(bench, names, groups)
    rows = train_rows(bench, spec)

    def set_mode(training: bool) -> None:
        if training and spec.frozen_dropout:
            model.train()
        elif training:
            set_train_mode(model, anatomy, names)
            audit.look_at_modes()
        else:
            model.eval()

    with peak_memory(bench.machine) as peak, forward_from(bench, spec) as forward:
        trained = train(
            forward,
            parameters,
            groups,
            bench.problem,
            rows,
            bench.splits["validation"],
            spec,
            order=torch.Generator().manual_seed(generator_seed(spec.seed, "order")),
            set_mode=set_mode,
            on_step=on_step,
        )
        at_end = [name for name in bench.splits if name not in ("train", "validation")] * (
            trained.outcome != "diverged"
        )
        scored = {
            name: bench.problem.logits(forward, bench.splits[name], spec.per_device_eval_batch_size) for name in at_end
        }
    test = scored.pop("test", None)
    facts = _facts(spec, bench, trained, audit.facts(frozen_dropout=spec.frozen_dropout), peak.bytes)
    facts["scores"] += [
        {"split": split, "epoch": facts["best_epoch"], "metric": name, "value": value}
        for split, logits in scored.items()
        for name, value in _plain(bench.problem.scores(logits, bench.splits[split])).items()
    ]
    facts["cost"]["run_seconds"] = perf_counter() - begun
    result = Result(facts, {**_logits(trained), **scored})
    if test is not None:
        result.test_logits = test
        scores = bench.problem.scores(test, bench.splits["test"])
        result.test_facts = {"schema_version": SCHEMA_VERSION, "digest": spec.digest, "scores": _plain(scores)}
    return result


def optimizer_groups(spec: RunSpec, anatomy: Anatomy, parameters: Mapping[str, nn.Parameter]) -> list[dict[str, Any]]:
    """What the optimizer is given: the ``parameters`` that ``spec`` trains, those of head and pooler apart."""
    head = frozenset(name for name in parameters if anatomy.places[name] in (HEAD, POOLER))
    return parameter_groups(parameters, head, spec, spec.learning_rate)


def generator_seed(seed: int, purpose: str) -> int:
    """A seed of its own for each purpose, so that no two draw the same numbers."""
    return int.from_bytes(hashlib.blake2b(f"{purpose}/{seed}".encode(), digest_size=6).digest(), "big")


def train_rows(bench: Bench, spec: RunSpec) -> Rows:
    """The run's training examples: a nested, stratified subset that is the same for every k."""
    pool = bench.splits["train"]
    seed = generator_seed(spec.data_seed if spec.subset == "fixed" else spec.seed, f"subset-{spec.subset}")
    return pool[subset_indices(bench.problem.targets[pool], spec.train_size, seed)]


def cut_of(kept: Need, anatomy: Anatomy, spec: RunSpec) -> int | None:
    """After how many layers a run takes up kept states: at its own cut, else at the nearest kept below it."""
    tuned = depth(spec, anatomy)
    if tuned is None or spec.frozen_dropout:
        return None
    cut = anatomy.count - tuned
    return cut if tuned == 0 and kept.head else max((c for c in kept.cuts if c <= cut), default=None)


@contextmanager
def forward_from(bench: Bench, spec: RunSpec) -> Iterator[Callable[[Rows], Tensor]]:
    """The function from rows of the pool to logits, for this run's cut; its dropout draws from the run's seed."""
    pretrained, device = bench.pretrained, bench.machine.device
    seed = generator_seed(spec.seed, "dropout")
    dropout = Dropout(seed) if device.type == "cpu" else None
    cut, states = bench.cut(spec), bench.states
    one_token = cut == pretrained.anatomy.count and states is not None and states.need.head

    def inputs(rows: Rows) -> tuple[dict[str, Tensor], Tensor | None]:
        if cut is None or states is None:
            return bench.tokens.batch(rows), None
        if one_token:
            return bench.tokens.one_token(rows, last=bench.reads == "last"), states.head(rows)
        return bench.tokens.batch(rows), states.tokens(cut, rows)

    def forward(upper: Upper, rows: Rows) -> Tensor:
        batch, kept = inputs(rows)
        batch = {name: x.to(device, non_blocking=True) for name, x in batch.items()}
        with bench.machine.autocast():
            return upper(batch, None if kept is None else kept.to(device, non_blocking=True))

    with (
        packable(pretrained.model) if bench.packed else nullcontext() as packing,
        cut_at(pretrained.model, pretrained.anatomy, cut, packing=packing) as upper,
        dropout.instead(pretrained.model) if dropout else nullcontext(),
        torch.random.fork_rng(),  # for types that drop without nn.Dropout
    ):
        torch.manual_seed(seed)
        if packing:
            packing.dropout = dropout
        yield lambda rows: forward(upper, rows)


class _Audit:
    """What froze and what moved, looked at before, during and after the training."""

    def __init__(self, bench: Bench, names: frozenset[str], groups: list[dict[str, Any]]) -> None:
        self.bench, self.names = bench, names
        self.grouped = [id(p) for group in groups for p in group["params"]]
        self.before = bench.pretrained.frozen_digest(names)
        self.frozen_in_train_mode = 0

    def look_at_modes(self) -> None:
        """Count modules of which nothing is trained, with the dropout inside them, that are not in eval mode."""
        frozen = set(frozen_modules(self.bench.pretrained.model, self.names))
        self.frozen_in_train_mode = sum(module.training for module in frozen)

    def facts(self, *, frozen_dropout: bool) -> dict[str, Any]:
        """The audit as it stands in the result.

        Raises:
            AssertionError: something that was to stay frozen did not; such a run is no result.
        """
        pretrained = self.bench.pretrained
        model, places = pretrained.model, pretrained.anatomy.places
        parameters = dict(model.named_parameters())
        trained = {id(p) for name, p in parameters.items() if name in self.names}
        by_place: dict[str, dict[str, int]] = {}
        for name, place in places.items():
            counts = by_place.setdefault(place, {"trained": 0, "frozen": 0})
            counts["trained" if name in self.names else "frozen"] += parameters[name].numel()
        facts = {
            "parameters": count_parameters(model),
            "trainable_parameters": count_parameters(model, self.names),
            "by_place": by_place,
            "optimizer_holds_exactly_the_trained": len(self.grouped) == len(trained) and set(self.grouped) == trained,
            "each_parameter_in_one_place": set(places) == set(parameters),
            "frozen_bytes_unchanged": pretrained.frozen_digest(self.names) == self.before,
            "frozen_gradients_none": all(p.grad is None for n, p in parameters.items() if n not in self.names),
            "frozen_in_eval_mode": self.frozen_in_train_mode == 0 and not frozen_dropout,
            "clipped_parameters": len(trained),
        }
        wrong = [name for name, value in facts.items() if value is False]
        assert wrong in ([], ["frozen_in_eval_mode"] if frozen_dropout else []), f"audit: {wrong}"
        return facts


def _facts(spec: RunSpec, bench: Bench, trained: Trained, audit: dict[str, Any], peak: int) -> dict[str, Any]:
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
            "train_seconds": trained.train_seconds,
            "evaluation_seconds": trained.evaluation_seconds,
            "cache_seconds": bench.cache_seconds if bench.cut(spec) is not None else 0.0,
            "peak_memory_bytes": peak,
            "steps": trained.steps,
        },
        "audit": audit,
        "provenance": {**bench.machine.facts(), "packed": bench.packed, "cut": bench.cut(spec)},
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
    return {name: value if math.isfinite(value) else None for name, value in scores.items()}
