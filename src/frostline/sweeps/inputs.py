"""What settings, folders and data show to be wrong. Needs neither torch nor the model, so that a mistake is answered at once."""

import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from pathlib import Path
from typing import Any

from frostline import FrostlineError
from frostline.data.dataset_sources import is_folder
from frostline.data.examples import check_class_weights
from frostline.data.files import file_name
from frostline.data.glue import glue_task
from frostline.data.kinds import MULTI_LABEL, TOKENS
from frostline.data.load import Data, load_data
from frostline.data.splits import least_size
from frostline.data.wording import comma_joined, comma_separated, did_you_mean, listed, model_name, quoted
from frostline.model.model_files import RECORD, layers_in_config, local_folder, model_folder
from frostline.statistics.answer import is_of_models
from frostline.statistics.metrics import DEFAULT, check_metric
from frostline.statistics.recipe import AUTO
from frostline.statistics.threshold_rule import BEST, MAXIMIZED, OF_LABEL_SETS
from frostline.sweeps.grid import Identity, Written, read_sweep
from frostline.sweeps.join import join_existing
from frostline.sweeps.results.store import DAMAGED, RETRIED, Store, is_before_first_run
from frostline.sweeps.settings import TRACKERS, Settings, models_of, require_reference

ALL_LAYERS = "all"  # a value of ``depth`` of a search
PARTS = ("runs", "leases", "checkpoints", "weights", DAMAGED, RETRIED)  # folders in that of a sweep
TAKEN = {"model", "figures", "tables"}  # folders of a search over several models


@dataclass(frozen=True)
class OneModel:
    """A model that a search may take.

    Attributes:
        model: Its hub name or folder.
        depth: How many of its first layers are kept; None: all.
        out: The folder of its search.
    """

    model: str
    depth: int | None
    out: Path

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of its search that others do not share."""
        return {"model": self.model, "depth": self.depth, "out": str(self.out)}


def models_to_search(values: Mapping[str, Any]) -> list[OneModel]:
    """The models that the settings of a search name: each of ``model``, with each of ``depth``.

    Several have folders of their own in ``out``, one alone has ``out`` itself.

    Raises:
        FrostlineError: One is named twice, a depth is impossible, or there are several and ``out`` holds something else.
    """
    out, depth = Path(values.get("out", "")).expanduser(), values.get("depth")
    wanted = comma_separated(depth) if isinstance(depth, str) else depth if isinstance(depth, list | tuple) else [depth]
    found = [
        (model, depth)
        for model in models_of(values.get("model", ""))
        for depth in (_depths_of(model, values) if wanted == [AUTO] else [_depth(one) for one in wanted])
    ]
    found = [(model, None if depth and depth == _layers_of(model, values) else depth) for model, depth in found]
    if len({*found}) < len(found):
        raise FrostlineError("--depth names a number of layers twice: give each once.")
    if len(found) < 2:
        return [OneModel(model, depth, out) for model, depth in found]
    if (out / "sweep.toml").exists():
        raise FrostlineError(f"{out} holds the runs of one model: give another --out for several.")
    if others := _files_of_others(out):
        raise FrostlineError(
            f"{out} exists and has other files, which could be replaced ({listed(others, 3)}): choose another --out, or an empty "
            "folder."
        )
    names = [file_name(model_name(model)) + (f"-{depth}-layers" if depth else "") for model, depth in found]
    if len({*names}) < len(names) or TAKEN & {*names}:
        names = [f"{n}-{name}" for n, name in enumerate(names, start=1)]
    return [OneModel(model, depth, out / name) for (model, depth), name in zip(found, names, strict=True)]


def _files_of_others(out: Path) -> list[str]:
    """What is in a folder that no search or sweep over several models has written. Before the page, there are models only."""
    if not out.is_dir() or is_of_models(out) or (out / "analysis.json").is_file():
        return []

    def is_own(one: Path) -> bool:
        saved = one.name == "model" and (one / RECORD).is_file()
        return saved or one.name.startswith(".") or (one / "sweep.toml").is_file() or is_before_first_run(one)

    return sorted(one.name for one in out.iterdir() if not is_own(one))


def require_comparable(
    models: Sequence[OneModel], values: Mapping[str, Any], *, price_inference: float, one_process: bool
) -> None:
    """Refuse what a search over several models cannot do, and what one over a single model cannot.

    Raises:
        FrostlineError: Something of it is given.
    """
    if len(models) == 1:
        if price_inference:
            raise FrostlineError("--price-inference is for several models or depths: leave it out, or name several.")
        return
    if not one_process:
        raise FrostlineError(
            "Several models or depths are searched by one process: leave out --processes and --executor, or search one."
        )
    several = len({one.model for one in models}) > 1
    for name in ("target", "margin", "sure", *["revision"] * several):
        if values.get(name) is not None:
            raise FrostlineError(f"--{name} is about one model: leave it out, or search one model with one depth.")


def _depth(given: Any) -> int | None:
    """A number of layers; None: all."""
    if given is None or given == ALL_LAYERS:
        return None
    try:
        return int(given) if isinstance(given, str) else index(given)
    except (TypeError, ValueError):
        raise FrostlineError(
            f"--depth cannot be {given!r}: give numbers of layers and {ALL_LAYERS}, or {AUTO} alone."
        ) from None


def _depths_of(model: str, values: Mapping[str, Any]) -> list[int | None]:
    """All layers of a model, and two thirds, half and a third of them."""
    layers = _layers_of(model, values)
    if layers is None:
        raise FrostlineError(
            f"The configuration of {model} does not say how many layers it has: give numbers as --depth."
        )
    return [None, *dict.fromkeys(max(1, round(share * layers)) for share in (2 / 3, 1 / 2, 1 / 3) if layers > 1)]


def _layers_of(model: str, values: Mapping[str, Any]) -> int | None:
    return layers_in_config(model_folder(model, values.get("revision"), ["config.json"])[0])


def check_inputs(spec: Settings) -> None:
    """Refuse what :func:`frostline.sweeps.prepare.prepare` would refuse without the weights of the model.

    Of a model on the hub, config.json is downloaded. A data set on the hub is not loaded.

    Raises:
        FrostlineError: A folder, a file, a column, a label or a setting is wrong, the folder holds another sweep, there is no
            such model, or it has fewer layers.
    """
    local_folder(spec.model, spec.revision)
    _check_data(spec)
    layers = layers_in_config(model_folder(spec.model, spec.revision, ["config.json"])[0])
    if layers is not None:
        if spec.depth is not None and spec.depth > layers:
            raise FrostlineError(
                f"--depth {spec.depth} is more than the {layers} layers of {spec.model}: give at most {layers}."
            )
        layers = spec.depth or layers
        model = model_name(spec.model) + (f" with --depth {spec.depth}" if spec.depth else "")
        for recipe in spec.values_of("tune"):
            spec.way_of(recipe).require_layers(layers, model)


def _check_data(spec: Settings) -> None:
    """Refuse data and a folder that do not fit the settings."""
    store = Store(Path(spec.out).expanduser())
    older = existing(store)
    if older is None:
        require_reference(spec)
    known = {}
    if spec.train is not None or (spec.data is not None and is_folder(Path(spec.data))):
        data = load_data(spec, folds=spec.folds, data_seed=spec.data_seed)
        require_suitable_options(spec, data)
        known = identity_of_data(spec, data)
    if older is not None:
        ways = {**spec.way, **older.spec.way}  # the model decides which modules some ways train
        new = Written(
            spec.model_copy(update={"way": ways}),
            replace(older.identity, **known),
            older.origin,
            spec.trust_remote_code,
        )
        join_existing(new, older, store.out)


def identity_of_data(spec: Settings, data: Data) -> dict[str, Any]:
    """The attributes of :class:`frostline.sweeps.grid.Identity` that data and settings decide.

    Raises:
        FrostlineError: The metric is not defined for the task.
    """
    task = data.task
    of_glue = spec.metric is None and spec.glue is not None  # GLUE's own metric, unless another one is requested
    metric = glue_task(spec.glue).metric if of_glue and spec.glue else spec.metric
    parts = [part.digest() for part in data.splits.values()]
    if data.folds is not None and not task.labels:  # those of classes follow from the rows and the seed
        parts.append(hashlib.sha256(data.folds.tobytes()).hexdigest())
    return {
        "data": hashlib.sha256("".join(parts).encode()).hexdigest(),
        "metric": check_metric(metric, task.task_type, len(task.labels), task.labels),
        "train_rows": data.train_rows,
        "folds": 0 if data.folds is None else int(data.folds.max()) + 1,
        "task": task.name,
        "task_type": task.task_type,
        "labels": task.labels,
    }


def notes_on_metric(spec: Settings, identity: Identity) -> list[str]:
    """Which of two labels F1 is about, if only their order decides that."""
    if identity.metric != "f1" or spec.glue is not None or spec.labels:
        return []
    first, second = identity.labels
    return [
        f"F1 is that of the label {quoted(second)}; for {quoted(first)}, give --labels {comma_joined((second, first))}, or "
        "--metric f1_macro for the mean of both."
    ]


def _owner_of(folder: Path) -> Path | None:
    """The folder above this one that is a part of a sweep's folder, or a saved model, which is replaced as a whole; else None."""
    for one in folder.absolute().parents:
        if (one / RECORD).is_file() or (one.name in PARTS and (one.parent / "sweep.toml").is_file()):
            return one
    return None


def existing(store: Store) -> Written | None:
    """What sweep.toml holds; None if the folder holds no run yet. Refuses other folders."""
    older, out = read_sweep(store), store.out
    if (owner := _owner_of(out)) is not None:
        raise FrostlineError(f"{out} is in {owner}, whose files frostline replaces or moves: choose another --out.")
    if older is not None:
        return older
    if out.exists() and not is_before_first_run(out):
        raise FrostlineError(f"{out} exists and holds no sweep: choose another --out, or an empty folder.")
    return None


def require_suitable_options(spec: Settings, data: Data) -> None:
    """Refuse options and training-set sizes that the data do not allow, and trackers that are not installed."""
    require_trackers(spec.track or ())
    words, classes = data.task.task_type == TOKENS, bool(data.task.labels)
    for given, why in (
        (spec.label_all_tokens and not words, "--label-all-tokens is for tags of words"),
        (spec.threshold is not None and words, "--threshold is for labels of texts, but words have tags"),
        (spec.class_weights != "none" and not classes, "class_weights are for classes, but this is a regression"),
        (spec.calibrate and not classes, "--calibrate is for probabilities, but this is a regression"),
    ):
        if given:
            raise FrostlineError(f"{data.task.name}: {why}: leave it out.")
    if not isinstance(spec.class_weights, str):
        check_class_weights(spec.class_weights, data.task.labels)
    if spec.threshold is not None:
        _require_threshold(spec, data)
    least = least_size(data.train.targets)
    for size in spec.values_of("train_size"):
        if size > data.train_rows:
            raise FrostlineError(
                f"train_size = {size:,} is more than the {data.train_rows:,} training rows (without those held out for "
                "validation and test): give a smaller --train-size, or leave it out to use all."
            )
        if size < least:
            raise FrostlineError(
                f"train_size = {size} is too small for one example of each of the {least} classes: give at least "
                f"--train-size {least}."
            )


def require_trackers(names: Sequence[str]) -> None:
    """Refuse trackers without their package.

    Raises:
        FrostlineError: There is no such tracker, or its package is missing.
    """
    for name in names:
        if name not in TRACKERS:
            raise FrostlineError(
                f"There is no tracker {name!r}{did_you_mean(name, TRACKERS)}: give {', '.join(TRACKERS)}."
            )
        if importlib.util.find_spec(name) is None:
            raise FrostlineError(
                f"The tracker {name} needs its package: run `pip install 'frostline[{name}]'`, or leave {name} out."
            )


def _require_threshold(spec: Settings, data: Data) -> None:
    """Refuse a threshold that the task does not have."""
    name, several = str(spec.threshold), data.task.task_type == MULTI_LABEL
    if several and name in (BEST, *MAXIMIZED, *OF_LABEL_SETS):
        chosen = (spec.metric or DEFAULT[MULTI_LABEL][0]) if name == BEST else name
        if chosen not in OF_LABEL_SETS:
            raise FrostlineError(
                f"{data.task.name}: --threshold {name} cannot maximize {chosen} over sets of labels: give a number, recall=0.9, "
                f"or {' or '.join(OF_LABEL_SETS)}."
            )
    elif not several and len(data.task.labels) != 2:
        found = f"{len(data.task.labels)} classes" if data.task.labels else "numbers to predict"
        raise FrostlineError(f"{data.task.name}: --threshold is for two classes, but there are {found}: leave it out.")
    elif not several and name == "f1_micro":
        raise FrostlineError(f"{data.task.name}: --threshold f1_micro is for several labels of a text: give f1.")
