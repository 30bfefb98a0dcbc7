"""Prepare a sweep: read its data, load its model, make its plan. Nothing is written here."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from frostline import FrostlineError
from frostline.data.examples import class_weights
from frostline.data.kinds import MULTI_LABEL, REGRESSION, TOKENS
from frostline.data.load import SPLITS, Data, load_data
from frostline.data.tags import NO_WORD
from frostline.data.task import Task
from frostline.frozen.exactness import find_head_reads, find_last_linear
from frostline.frozen.forward_pass import Rows
from frostline.model.anatomy import position_limit, probe_batch
from frostline.model.device import Machine, can_fork, device_memory, this_machine
from frostline.model.loading import load_pretrained
from frostline.model.pretrained import Pretrained
from frostline.model.terms import OWN, OWN_HEAD
from frostline.model.tokens import Tokens, encode, notes_on_tokens, suited
from frostline.statistics.recipe import NAMED, Recipe
from frostline.sweeps.grid import Identity, Origin, Written, expand
from frostline.sweeps.inputs import existing, identity_of_data, notes_on_metric, require_suitable_options
from frostline.sweeps.join import join_existing
from frostline.sweeps.parameter_groups import notes_on_modules, notes_on_seeds
from frostline.sweeps.plan import Plan, planned_states, rows_trained, states_wanted
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.store import Store
from frostline.sweeps.settings import MoreRuns, Settings, require_reference
from frostline.sweeps.streaming import LOAD_ANYWAY, load_upper_layers, searchable, whether_to_stream
from frostline.training.estimators import WrongTrainSize, estimator_of
from frostline.training.experiment import Experiment, head_of
from frostline.training.forward import subset_rows
from frostline.training.problem import NUMBERS, MultiLabelProblem, Problem, TagProblem, Unit
from frostline.training.run import Run, StepPlan, phases_of
from frostline.training.start import require_peft, with_modules

ONE_WORKER = "--workers has no effect here: it needs Linux and a machine without a GPU."
UNWEIGHTED = (
    "Class weights count in the training loop only: linear probes, TF-IDF models, SetFit and the first head of LP-FT weight all "
    "examples alike."
)


def prepare(
    spec: Settings,
    sources: Mapping[str, Any],
    progress: Progress,
    *,
    grid_of: Callable[[Pretrained, Data], MoreRuns] | None = None,
    probes: bool = False,
    data: Data | None = None,
) -> Plan:
    """Read the data, load the model, tokenize and plan. Nothing is written.

    Args:
        spec: The sweep.
        sources: Tables given in Python, which replace the paths of ``train``, ``validation`` and ``test``.
        progress: Shows progress.
        grid_of: The grid of a search, from the model and the data. It replaces that of ``spec``.
        probes: Also cache the hidden states that probes after every layer read.
        data: The data, if they have been read before, maybe on another machine.

    Raises:
        FrostlineError: Anything that the user can correct.
    """
    store = Store(Path(spec.out).expanduser())
    for recipe in spec.values_of("tune"):
        if estimator := estimator_of(spec.way_of(recipe)):
            estimator.require_installed()
    older = existing(store)
    # a continued sweep keeps the precision that it began with
    machine = this_machine(
        spec.device, older.identity.precision if older and spec.precision == "auto" else spec.precision
    )
    data = data or load_data(spec, sources, folds=spec.folds, data_seed=spec.data_seed)
    task = data.task
    require_suitable_options(spec, data)
    known = identity_of_data(spec, data)
    progress.begin("loading the model")
    pretrained = load_model(spec, task, machine)
    if grid_of is not None:
        chosen = grid_of(pretrained, data).values()
        chosen["tune"] = searchable(chosen["tune"], pretrained, machine, spec.way)
        spec = spec.model_copy(update=chosen)
    spec = _with_ways(spec, pretrained)
    max_length = length_limit(spec, pretrained, pairs=data.splits["train"].pairs is not None)
    identity = Identity(
        weights=pretrained.weights,
        vocabulary=pretrained.vocabulary,
        layers=pretrained.anatomy.count,
        precision=machine.precision,
        max_length=max_length,
        **known,
    )
    spec = without_unsuitable_sizes(spec, identity, pretrained, data, progress)
    grid = spec
    if older is not None:
        identity = replace(identity, task=identity.task if spec.task else older.identity.task)  # a file may be renamed
        grid = join_existing(Written(spec, identity, older.origin, spec.trust_remote_code), older, store.out)
    require_reference(grid)
    progress.begin("tokenizing the examples")
    runs = tuple(expand(grid, identity))
    require_suitable_runs(runs, pretrained, data)
    trained = None if spec.refit else rows_trained(runs, data)
    encoded = encode_splits(spec, data, max_length, pretrained, trained=trained)
    experiment = make_experiment(spec, pretrained, machine, data, encoded, identity.metric)
    origin = Origin.of(Path.cwd(), store.out, tuple(name for name in SPLITS if name in sources))
    named = next((run for run in runs if run.recipe == NAMED), None)
    unweighted = probes or any(not run.way.in_loop or run.way.order == "head-first" for run in runs)
    plan = Plan(
        spec=spec,
        identity=identity,
        origin=origin,
        data=data,
        experiment=experiment,
        store=store,
        requested=runs if grid is spec else _requested(expand(spec, identity), runs),
        runs=runs,
        states=planned_states(states_wanted(spec, runs, experiment, probes=probes), experiment, runs, spec.cache_limit),
        memory=device_memory(machine.device),
        processes=1 if origin.in_memory else max(1, len(machine.gpus)),  # other processes read the data from files
        notes=(
            *data.notes,
            *notes_on_tokens(experiment.tokens, pretrained.tokenizer, pretrained.folder),
            *(notes_on_modules(named, pretrained.anatomy, pretrained.new) if named else ()),
            *notes_on_seeds(runs, pretrained.anatomy),
            *notes_on_metric(spec, identity),
            *[ONE_WORKER] * (spec.workers not in ("auto", 1) and not can_fork(machine.device)),
            *[UNWEIGHTED] * (spec.class_weights != "none" and unweighted),
        ),
    )
    return load_upper_layers(plan)


def _with_ways(spec: Settings, pretrained: Pretrained) -> Settings:
    """The sweep with the modules that its ways choose by their weights."""
    ways = {name: spec.way_of(name) for name in spec.values_of("tune") if name.is_way}
    if spec.keep_adapter:
        require_peft()
        other = next((name for name, way in ways.items() if way.low_rank and way.head != OWN_HEAD), None)
        if pretrained.depth is not None or other:
            why = f"{other} has another head" if other else f"--depth {pretrained.depth} leaves layers out"
            raise FrostlineError(
                "--keep-adapter saves what PEFT loads onto the whole pretrained model with a head of its type, but "
                f"{why}: leave --keep-adapter out."
            )
    if pretrained.stream and (name := next((name for name, way in ways.items() if way.chooses_by_weights), None)):
        raise FrostlineError(
            f"{name} compares the weights of all layers, so they cannot be streamed: leave it out, {LOAD_ANYWAY}."
        )
    chosen = with_modules(ways, pretrained.model, pretrained.anatomy)
    return spec.model_copy(update={"way": {**spec.way, **chosen}})


def make_experiment(
    spec: Settings, pretrained: Pretrained, machine: Machine, data: Data, encoded: Mapping[str, Tokens], metric: str
) -> Experiment:
    """What all runs share: the model, and the examples of all splits in one pool."""
    tokens, task, examples = Tokens.join(list(encoded.values())), data.task, data.splits
    ends = np.cumsum([len(part) for part in encoded.values()])
    rows = {name: np.arange(end - len(part), end) for (name, part), end in zip(encoded.items(), ends, strict=True)}
    weights = None
    if task.labels and spec.class_weights != "none":
        own = data.train.targets
        own = own if data.train.has_label_sets else own[own != NO_WORD]
        weights = torch.from_numpy(class_weights(own, spec.class_weights, task.labels)).float()
    targets = np.concatenate([part.targets for part in examples.values()])
    problem: Problem
    if task.task_type == TOKENS:
        every_token = spec.label_all_tokens
        problem = TagProblem.of(targets, tokens, task.labels, metric, class_weights=weights, every_token=every_token)
    else:
        kind = MultiLabelProblem if task.task_type == MULTI_LABEL else Problem
        numbers = task.task_type == REGRESSION and spec.standardize_targets
        unit = Unit.of(data.train.targets.astype(np.float64)) if numbers else NUMBERS
        problem = kind(task.task_type, targets, tokens.lengths, weights, metric, unit=unit)
    return Experiment(
        pretrained,
        machine,
        problem,
        tokens,
        rows,
        head_reads=find_head_reads(pretrained.model, pretrained.anatomy, probe_batch(pretrained.model)),
        folds=data.folds,
        examples=examples,
        labels=task.labels,
    )


def load_model(spec: Settings, task: Task, machine: Machine) -> Pretrained:
    """The model of a sweep with a classifier head for its task."""
    return load_pretrained(
        spec.model,
        labels=task.labels,
        task_type=task.task_type,
        revision=spec.revision,
        depth=spec.depth,
        trust_remote_code=spec.trust_remote_code,
        device=machine.device,
        streams=whether_to_stream(spec.stream, machine.device),
    )


def length_limit(spec: Settings, pretrained: Pretrained, *, pairs: bool) -> int:
    """The most tokens per example, which is one text or, with ``pairs``, two.

    Raises:
        FrostlineError: The requested limit does not suit the model.
    """
    if spec.max_length is None:
        return pretrained.max_length
    positions = position_limit(pretrained.model)
    least = pretrained.tokenizer.num_special_tokens_to_add(pair=pairs) + 1 + pairs
    if spec.max_length < least or (positions and spec.max_length > positions):
        raise FrostlineError(
            f"max_length = {spec.max_length} does not suit {pretrained.name}: "
            f"give a number from {least} to {positions or 'what memory allows'}."
        )
    return spec.max_length


def encode_splits(
    spec: Settings, data: Data, max_length: int, pretrained: Pretrained, trained: Rows | None = None
) -> dict[str, Tokens]:
    """Tokens of every split, at most ``max_length`` per example; of the training split only the rows ``trained``.

    Raises:
        FrostlineError: More examples would be truncated than the specification allows, or the model does not know a token.
    """
    model, tokenizer = pretrained.model, pretrained.tokenizer
    encoded = {}
    for name, s in data.splits.items():
        rows = trained if name == "train" else None
        tokens = encode(tokenizer, s.texts, s.pairs, max_length, rows, of_words=s.of_words)
        encoded[name] = suited(tokens, model, tokenizer)
    truncated = {name: tokens.truncated() for name, tokens in encoded.items()}
    split = max(truncated, key=lambda name: truncated[name])
    if truncated[split] <= spec.max_truncated:
        return encoded
    tokens = encoded[split]
    lost = tokens.dropped.sum() / (tokens.dropped.sum() + tokens.offsets[-1])
    longest = int((tokens.lengths + tokens.dropped).max())
    most = position_limit(model)
    longer = "The model takes no more tokens: allow" if most and max_length >= most else "Raise --max-length, or allow"
    raise FrostlineError(
        f"{100 * truncated[split]:.1f} % of the {split} examples in use have more than {max_length} tokens and would be "
        f"truncated. {100 * lost:.1f} % of all tokens would be lost; the longest example has {longest}. {longer} "
        f"truncation with --max-truncated {min(1.0, np.ceil(truncated[split] * 100) / 100):g}."
    )


def _requested(own: Sequence[Run], runs: Sequence[Run]) -> tuple[Run, ...]:
    """The runs of this call, as those of the folder: what no training loop trains is there fitted once, for any lengths."""

    def key(run: Run) -> tuple[Recipe, int, int, float | None]:
        return run.recipe, run.train_size, run.seed, run.learning_rate

    fitted = {key(run): run for run in runs if not run.way.in_loop}
    return tuple(run if run.way.in_loop else fitted[key(run)] for run in own)


def require_suitable(spec: Run, pretrained: Pretrained, task_type: str) -> None:
    """Refuse a run that this model or task does not allow.

    Raises:
        WrongTrainSize: Its examples are too few.
        FrostlineError: The model has fewer layers, lacks a module, or the way is for another type of task.
    """
    way = spec.way
    if way.head_reads != OWN and task_type == TOKENS:
        raise FrostlineError(
            f"{spec.recipe}: head_reads = {way.head_reads!r} makes one vector of a text, but words have tags: leave it out."
        )
    pretrained = pretrained.with_head(head_of(spec, task_type))
    anatomy = pretrained.anatomy
    names = spec.parameters(anatomy)
    layers = max(way.reinitialized, way.transferred or 0, way.low_rank_like)
    if layers > anatomy.count:
        raise FrostlineError(
            f"{spec.recipe}: {layers} layers were requested, but the model has {anatomy.count}: give at most that many."
        )
    if way.patience and not (spec.evaluations_per_epoch and spec.load_best_model_at_end):
        raise FrostlineError(
            f"{spec.recipe}: patience needs evaluations to wait for, of which the best one counts: leave out "
            "--evaluations-per-epoch 0 and --no-load-best-model-at-end."
        )
    phases, steps = len(phases_of(spec, anatomy)), StepPlan.of(spec, spec.train_size).total
    if steps < phases:
        reason = f"its {phases} phases need as many steps, but a run has {steps}"
        raise WrongTrainSize(spec, reason, "give more --num-train-epochs or a larger --train-size")
    if way.order == "head-first":
        if task_type == TOKENS:
            raise FrostlineError(
                f"{spec.recipe}: the head is fitted on one vector for each text, but words have tags: leave it out."
            )
        if find_last_linear(pretrained.model, anatomy) is None:
            raise FrostlineError(
                f"{spec.recipe}: the head of {pretrained.name} does not end in a linear module: choose another way."
            )
    of_layers = {name for name in names if anatomy.places[name].startswith("layer")}
    if way.only != "all" and not of_layers:
        raise FrostlineError(f"{spec.recipe}: the layers of {pretrained.name} have no {way.only}: choose another way.")
    if way.low_rank and not of_layers & anatomy.matrices:
        raise FrostlineError(
            f"{spec.recipe}: the layers of {pretrained.name} have no linear modules: choose another way."
        )


def require_suitable_runs(runs: Iterable[Run], pretrained: Pretrained, data: Data) -> None:
    """Refuse runs that the model, the task or the number of examples does not allow.

    Raises:
        WrongTrainSize: There is a run with too many or too few examples.
        FrostlineError: There is another such run.
    """
    for run in {run.kind: run for run in runs}.values():
        require_suitable(run, pretrained, data.task.task_type)
        if estimator := estimator_of(run.way):
            estimator.require_suitable(run, data.train.take(subset_rows(run, data.train.targets, data.folds)))


def without_unsuitable_sizes(
    spec: Settings, identity: Identity, pretrained: Pretrained, data: Data, progress: Progress
) -> Settings:
    """The sweep without the train sizes that are too large or too small for a way, with a note for each.

    A way that no size suits keeps them all, so that :func:`require_suitable_runs` refuses it.
    """
    if len(spec.values_of("train_size")) < 2:
        return spec
    kinds = {run.kind: run for run in expand(spec, identity) if run.recipe.is_way}.values()
    for way in dict.fromkeys(run.recipe for run in kinds):
        own, left_out = [run for run in kinds if run.recipe == way], dict[int, str]()
        for run in own:
            try:
                require_suitable_runs([run], pretrained, data)
            except WrongTrainSize as error:
                left_out[run.train_size] = error.reason
        if 0 < len(left_out) < len(own):
            spec = _without(spec, way, left_out.keys(), identity.train_rows)
            for size, why in left_out.items():
                progress.note(f"{way} is left out at train size {size:,}: {why}.")
    return spec


def _without(spec: Settings, tune: Recipe, sizes: Collection[int], train_rows: int) -> Settings:
    """The sweep without the runs of one value of ``tune`` with these train sizes."""
    parts = []
    for part in spec.grids_alone():
        every, others = part.train_size or (train_rows,), tuple(one for one in part.tune or () if one != tune)
        parts.append(part.model_copy(update={"tune": others, "train_size": every}))
        if part.tune and tune in part.tune:
            fit = tuple(size for size in every if size not in sizes)
            parts.append(part.model_copy(update={"tune": (tune,), "train_size": fit}))
    return spec.with_grids([part for part in parts if part.tune and part.train_size])
