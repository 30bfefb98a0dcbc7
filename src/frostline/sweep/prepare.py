"""Make a sweep ready to run: its data read, its model loaded, its plan made. Nothing is written here."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from frostline import FrostlineError
from frostline.data.class_weights import class_weights
from frostline.data.examples import Examples
from frostline.data.glue.tasks import glue_task
from frostline.data.load import Data, load_data
from frostline.data.specification import DataSpec
from frostline.frozen.batches import Rows
from frostline.frozen.cache.loading import RESERVED_BYTES, missing_rows
from frostline.frozen.cache.recipe import Recipe, cache_folder, similar_recipes
from frostline.frozen.check.head_token import find_head_reads
from frostline.frozen.check.trial import Check
from frostline.frozen.forward_pass import ForwardPass
from frostline.frozen.selection import StateSelection, selection_for
from frostline.model.anatomy import probe_batch
from frostline.model.device import Machine, free_bytes, this_machine
from frostline.model.loading import load_pretrained, most_tokens
from frostline.model.pretrained import Pretrained
from frostline.model.tokens import Tokens, encode
from frostline.model.trainable import Trainable
from frostline.model.tune import Tune
from frostline.statistics.metrics import check_metric
from frostline.sweep.execution.progress import Progress
from frostline.sweep.parameter_groups import groups_by_tune
from frostline.sweep.plan import Identity, Plan, expand, read_identity, read_settings
from frostline.sweep.results.store import Store
from frostline.sweep.specification import SweepSpec
from frostline.training.context import RunContext
from frostline.training.problem import Problem
from frostline.training.rows import subset_rows, train_rows
from frostline.training.specification import RunSpec, Settings

SPLITS = ("train", "validation", "test")
MUST_AGREE = {*Settings.model_fields, "head_learning_rate"}  # settings that all sweeps in a folder have


@dataclass
class Prepared:
    """A sweep that is ready to run: its data read, its model loaded and checked, its plan made."""

    spec: SweepSpec
    data: Data
    pretrained: Pretrained
    identity: Identity
    context: RunContext
    plan: Plan
    store: Store
    checks: list[Check] | None = None  # the proof that the cuts are exact, once it has been made

    def grown(self) -> bool:
        """Whether the folder has runs by now that this knows nothing of: their texts are not encoded."""
        older = self.store.read_spec()
        known = {run.digest for run in self.plan.runs}
        return older is not None and any(
            run.digest not in known for run in expand(read_settings(older, self.store.out), self.identity)
        )


def prepare(
    spec: SweepSpec,
    sources: Mapping[str, Any],
    progress: Progress,
    *,
    tunes: Callable[[int], tuple[Tune, ...]] | None = None,
    probes: bool = False,
) -> Prepared:
    """Read, load, encode and plan; nothing is written.

    ``sources`` are tables given in Python in place of the paths of ``train``, ``validation`` and ``test``; ``tunes`` says,
    given the number of layers, which k the sweep has, in place of the specification. ``probes``: the pass is to leave what
    probes after every layer read, too.

    Raises:
        FrostlineError: whatever a user can put right, before anything is written.
    """
    store = Store(Path(spec.out).expanduser())
    older = store.read_spec()
    before = None if older is None else read_identity(older, store.out)
    _demand_room(store.out, older)
    machine = _machine(spec, before)
    data = read_data(spec, sources)
    _demand_classes(spec, data)
    wanted = glue_task(spec.glue).metric if spec.metric is None and spec.glue is not None else spec.metric
    metric = check_metric(wanted, data.task.problem_type, len(data.task.labels))
    progress.begin("loading the model")
    pretrained = load_pretrained(
        spec.model,
        labels=data.task.labels,
        problem_type=data.task.problem_type,
        revision=spec.revision,
        trust_remote_code=spec.trust_remote_code,
        device=machine.device,
    )
    if tunes is not None:
        spec = spec.model_copy(update={"tune": tunes(pretrained.anatomy.count)})
    for k in spec.every("tune"):
        Trainable(k, spec.tune_modules).parameters(pretrained.anatomy)
    _demand_sizes(spec, data)
    splits, max_length = splits_of(data), length_limit(spec, pretrained)
    identity = Identity(
        weights=pretrained.weights,
        vocabulary=pretrained.vocabulary,
        data=_digest(splits.values()),
        layers=pretrained.anatomy.count,
        metric=metric,
        precision=machine.precision,
        max_length=max_length,
        train_rows=data.train_rows,
        folds=0 if data.folds is None else int(data.folds.max()) + 1,
        task=data.task.name,
        problem_type=data.task.problem_type,
        labels=data.task.labels,
    )
    if older is not None:
        if before and spec.task is None:
            identity = replace(identity, task=before.task)  # a file may have been renamed
        spec = _join(spec, identity, older, store.out)
    progress.begin("encoding the texts")
    runs = expand(spec, identity)
    encoded = encode_splits(spec, splits, max_length, pretrained, trained=_trained(runs, data))
    context = _context(spec, data, splits, encoded, pretrained, machine, metric)
    plan = _plan(spec, identity, runs, context, data, encoded, store, probes=probes)
    return Prepared(spec, data, pretrained, identity, context, plan, store)


def splits_of(data: Data) -> dict[str, Examples]:
    """The examples of every split that there is, training first."""
    return {name: part for name in SPLITS if (part := getattr(data, name)) is not None} | dict(data.others)


def encode_splits(
    spec: SweepSpec,
    splits: Mapping[str, Examples],
    max_length: int,
    pretrained: Pretrained,
    trained: Rows | None = None,
) -> dict[str, Tokens]:
    """The texts of every split as token numbers, at most ``max_length`` each; of the training split only those ``trained``.

    Raises:
        FrostlineError: more texts would be cut than the specification consents to.
    """
    encoded = {
        name: encode(pretrained.tokenizer, s.texts, s.pairs, max_length, trained if name == "train" else None)
        for name, s in splits.items()
    }
    _demand_consent(spec, encoded, max_length, pretrained)
    return encoded


def rows_needed(context: RunContext, runs: Sequence[RunSpec]) -> Rows:
    """Rows of the pool that these runs train or are scored on."""
    parts = [rows for name, rows in context.splits.items() if name != "train"]
    parts += [train_rows(context, spec) for spec in _of_each_subset(runs)]
    return np.unique(np.concatenate(parts))


def _trained(runs: Sequence[RunSpec], data: Data) -> Rows | None:
    """The training rows that any of these runs trains on; None: all."""
    if any(spec.train_size == len(data.train) for spec in runs):
        return None
    subsets = [subset_rows(spec, data.train.targets, data.folds) for spec in _of_each_subset(runs)]
    return np.unique(np.concatenate(subsets))


def _of_each_subset(runs: Sequence[RunSpec]) -> Iterable[RunSpec]:
    """Of all runs that train on the same examples, one."""
    return {(spec.seed if spec.subset == "per-seed" else spec.fold, spec.train_size): spec for spec in runs}.values()


def _machine(spec: SweepSpec, before: Identity | None) -> Machine:
    """The machine; a sweep that goes on keeps the precision it began with."""
    goes_on = before is not None and spec.precision == "auto"
    return this_machine(spec.device, before.precision if before and goes_on else spec.precision)


def _demand_room(out: Path, older: Mapping[str, Any] | None) -> None:
    """A sweep begins in a folder that is empty or not there yet."""
    if (
        older is None
        and out.exists()
        and (not out.is_dir() or any(path.suffix not in (".part", ".lock") for path in out.iterdir()))
    ):
        raise FrostlineError(f"{out} exists and holds no sweep: choose another --out, or an empty folder.")


def _demand_classes(spec: SweepSpec, data: Data) -> None:
    if not data.task.labels and spec.class_weights != "none":
        raise FrostlineError(
            f"{data.task.name}: class_weights are for classes, and this is a regression on a number: leave them out."
        )


def read_data(spec: SweepSpec, sources: Mapping[str, Any]) -> Data:
    """The examples that a specification names; ``sources`` as in :func:`prepare`.

    Raises:
        FrostlineError: they cannot be read, or are not what they should be.
    """
    given = {name: sources.get(name, getattr(spec, name)) for name in SPLITS}
    return load_data(
        DataSpec(
            **given,
            data=spec.data,
            config=spec.config,
            column_names=spec.column_names,
            text_column=spec.text_column,
            text_pair_column=spec.text_pair_column,
            label_column=spec.label_column,
            problem_type=spec.problem_type,
            labels=spec.labels,
            data_seed=spec.data_seed,
            held_out_share=spec.held_out_share,
            first_rows=spec.first_rows,
            task_name=spec.task,
            glue=spec.glue,
            folds=spec.folds,
        )
    )


def _demand_sizes(spec: SweepSpec, data: Data) -> None:
    classes = len(np.unique(data.train.targets)) if data.task.labels else 1
    for size in spec.every("train_size"):
        if size > data.train_rows:
            raise FrostlineError(
                f"train_size = {size:,} is more than the {data.train_rows:,} training rows (after validation and test "
                "were set aside): give a smaller --train-size, or leave it out to use all."
            )
        if size < classes:
            raise FrostlineError(
                f"train_size = {size} cannot show all {classes} classes: give at least --train-size {classes}."
            )


def length_limit(spec: SweepSpec, pretrained: Pretrained) -> int:
    """How many tokens a text may have.

    Raises:
        FrostlineError: what was asked for does not suit the model.
    """
    if spec.max_length is None:
        return pretrained.max_length
    positions = most_tokens(pretrained.model)
    least = pretrained.tokenizer.num_special_tokens_to_add(pair=False) + 1
    if spec.max_length < least or (positions and spec.max_length > positions):
        raise FrostlineError(
            f"max_length = {spec.max_length} does not suit {pretrained.name}: "
            f"give a number from {least} to {positions or 'what memory allows'}."
        )
    return spec.max_length


def _demand_consent(spec: SweepSpec, encoded: Mapping[str, Tokens], max_length: int, pretrained: Pretrained) -> None:
    truncated = {name: tokens.truncated() for name, tokens in encoded.items()}
    split = max(truncated, key=lambda name: truncated[name])
    if truncated[split] <= spec.max_truncated:
        return
    tokens = encoded[split]
    lost = tokens.dropped.sum() / (tokens.dropped.sum() + tokens.offsets[-1])
    longest = int((tokens.lengths + tokens.dropped).max())
    most = most_tokens(pretrained.model)
    remedy = "this model takes no more; consent" if most and max_length >= most else "raise --max-length, or consent"
    raise FrostlineError(
        f"{100 * truncated[split]:.1f} % of the {split} texts that are used are longer than {max_length} tokens and would be "
        f"cut, losing {100 * lost:.1f} % of all tokens (the longest has {longest}): {remedy} with "
        f"--max-truncated {min(1.0, np.ceil(truncated[split] * 100) / 100):g}."
    )


def _digest(splits: Any) -> str:
    digest = hashlib.sha256()
    for examples in splits:
        digest.update(examples.digest().encode())
    return digest.hexdigest()


def _join(spec: SweepSpec, identity: Identity, older: Mapping[str, Any], out: Path) -> SweepSpec:
    """This sweep with the grid of the one that is in the folder already, which must be the same but for the grid."""
    before, now = older["identity"], _toml_ready(asdict(identity))
    settings = {name: x for name, x in spec.model_dump(mode="json").items() if name in MUST_AGREE}
    mine = {**{name: x for name, x in settings.items() if name not in now}, **now}
    theirs = {**{name: older.get(name) for name in settings}, **before}
    words = {"weights": "model", "vocabulary": "tokenizer", "data": "data"}
    for name, value in mine.items():
        if theirs.get(name) != value and name != "task":
            detail = "" if name in words else f" ({_shown(theirs.get(name))} there, {_shown(value)} now)"
            raise FrostlineError(
                f"{out} holds another sweep: its {words.get(name, name)} is different{detail}. Choose another --out, "
                "or give the same settings to add to that sweep."
            )
    earlier = read_settings(older, out)
    if earlier.tune_modules and spec.tune_modules not in (None, earlier.tune_modules):
        raise FrostlineError(
            f"{out} holds a sweep whose named parts are {', '.join(earlier.tune_modules)}: choose another --out for "
            "others, or give the same."
        )
    return spec.extended(earlier, identity.train_rows)


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _toml_ready(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _context(
    spec: SweepSpec,
    data: Data,
    splits: Mapping[str, Examples],
    encoded: Mapping[str, Tokens],
    pretrained: Pretrained,
    machine: Machine,
    metric: str,
) -> RunContext:
    tokens = Tokens.join(list(encoded.values()))
    ends = np.cumsum([len(part) for part in encoded.values()])
    rows = {name: np.arange(end - len(part), end) for (name, part), end in zip(encoded.items(), ends, strict=True)}
    weights = None
    if data.task.labels and spec.class_weights != "none":
        weights = torch.from_numpy(class_weights(data.train.targets, spec.class_weights, data.task.labels)).float()  # type: ignore[arg-type]
    targets = np.concatenate([part.targets for part in splits.values()])
    problem = Problem(data.task.problem_type, targets, tokens.lengths, weights, metric)
    reads = find_head_reads(pretrained.model, pretrained.anatomy, probe_batch(pretrained.model))
    return RunContext(pretrained, machine, problem, tokens, rows, reads, packed=False, folds=data.folds)


def _plan(
    spec: SweepSpec,
    identity: Identity,
    runs: Sequence[RunSpec],
    context: RunContext,
    data: Data,
    encoded: Mapping[str, Tokens],
    store: Store,
    *,
    probes: bool,
) -> Plan:
    anatomy, model = context.pretrained.anatomy, context.pretrained.model
    layers = anatomy.count
    groups = groups_by_tune(runs, model, anatomy)
    depths = {
        None if spec.frozen_dropout else run.to_train.depth(anatomy) for run in {run.tune: run for run in runs}.values()
    }
    cuts = {layers - lowest for lowest in depths if lowest is not None and lowest != layers}
    wanted = selection_for(sorted(cuts), anatomy, context.head_reads)
    if probes:
        wanted = replace(wanted, pooled=tuple(range(layers + 1)))
    rows = rows_needed(context, runs)
    unique = rows[np.unique(context.tokens.keys[rows], return_index=True)[1]]
    count, tokens = len(unique), int(context.tokens.lengths[unique].sum())
    free = max(0, free_bytes(existing(cache_folder())) - RESERVED_BYTES)
    allowed = math.inf if spec.cache_limit is None else spec.cache_limit * 1e9

    def fits(need: StateSelection) -> bool:
        """Whether there is room for it on the disk, where a part may lie already, and within what is allowed in all."""
        recipe = recipe_of(context.pretrained, context.machine, context.forward_pass(need))
        whole = layers in need.pooled  # then the last layer ran for all tokens, and elsewhere mostly did not
        alike = [one for one in similar_recipes(recipe) if bool(one.narrow) != whole]
        lacking = (missing_rows(context.tokens, rows, need, one) for one in alike)
        missing = min(lacking, key=len, default=unique)
        more = need.bytes(len(missing), int(context.tokens.lengths[missing].sum()), anatomy.width)
        return more <= free and need.bytes(count, tokens, anatomy.width) <= allowed

    kept = wanted.largest_part(fits)
    train = data.train.targets
    by_class = {
        label: share
        for n, label in enumerate(identity.labels)
        if not np.isnan(share := encoded["train"].truncated(train == n))
    }
    scored = sum(
        len(context.splits[name]) * times for name, times in (("validation", 2), ("test", 1)) if name in context.splits
    )
    return Plan(
        runs=tuple(runs),
        done=frozenset(run.digest for run in runs if store.has(run.digest)),
        parameters=sum(p.numel() for p in model.parameters()),
        trainable={k: sum(group.parameters for group in some if group.trained) for k, some in groups.items()},
        groups=groups,
        rows=count,
        tokens=tokens,
        wanted=wanted,
        kept=kept,
        cache_bytes=kept.bytes(count, tokens, anatomy.width),
        limit_bytes=int(min(free, allowed)),
        free_bytes=free,
        truncated={name: tokens.truncated() for name, tokens in encoded.items()},
        truncated_by_class=by_class,
        max_length=identity.max_length,
        notes=(*data.notes, *_remarks(runs, context.pretrained)),
        results_bytes=len(runs) * (scored * 4 * max(1, len(identity.labels)) + 12_000),
        model_bytes=4 * sum(p.numel() for p in model.parameters()),
    )


def recipe_of(pretrained: Pretrained, machine: Machine, made_by: ForwardPass) -> Recipe:
    """What determines this model's hidden states on this machine."""
    facts = machine.facts()
    return Recipe(
        model=pretrained.name,
        weights=pretrained.weights,
        precision=machine.precision,
        attention=str(pretrained.model.config._attn_implementation),
        device=str(facts["device_name"]),
        threads=torch.get_num_threads(),
        instructions=str(facts["instructions"]),
        torch=str(facts["torch"]),
        transformers=str(facts["transformers"]),
        head_reads=made_by.head_reads,
        packed=made_by.packed,
        narrow=" ".join(made_by.narrow.modules) if made_by.narrow else "",
    )


def _remarks(runs: Sequence[RunSpec], pretrained: Pretrained) -> Iterator[str]:
    """On the parts that are named, where some are."""
    run = next((run for run in runs if run.tune == "named"), None)
    yield from run.to_train.notes(pretrained.anatomy, pretrained.new) if run else ()


def existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    return path if path.exists() else existing(path.parent)
