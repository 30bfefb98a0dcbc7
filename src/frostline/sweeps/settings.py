"""What the user asked for: the keys of a TOML file, the flags of the command line, the arguments of a call in Python."""

import os
from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from frostline import FrostlineError
from frostline.data.kinds import DataSettings, Strict, Strings, as_list, optional
from frostline.data.wording import comma_separated, did_you_mean, is_storable, parse_duration, quoted
from frostline.model.terms import opened_by
from frostline.model.ways import Way, require_free, way_named
from frostline.statistics.recipe import AUTO, HEAD_ONLY, NAMED, Recipe
from frostline.training.settings import (
    HEAD_LEARNING_RATE,
    HeadLearningRates,
    LearningRates,
    Lengths,
    Seeds,
    Sizes,
    Threshold,
    TrainingSettings,
    Tunes,
)

PLANNED_FOLDER = "frostline-sweep"  # the default ``out`` of a plan, which writes nothing
CAN_RETRY = ("failed", "diverged")  # how a run can have ended that is trained again
GRID = ("tune", "seeds", "train_size", "learning_rate", "num_train_epochs")  # the dimensions of a grid of runs


class ModelSettings(Strict):
    """The pretrained model."""

    model: str = Field(description="hub name, or folder written by save_pretrained")
    revision: str | None = optional("commit, tag or branch of a hub model", "main")
    depth: int | None = optional(
        "keep only so many of the first layers of the model, of which the last k are tuned", "all layers", ge=1
    )
    trust_remote_code: bool = Field(
        False,
        description="run code that comes with the model, which no TOML file can decide; a hub model needs --revision",
    )


class MoreRuns(Strict):
    """A grid of runs: all combinations of its values. What one more grid does not set is as in the sweep."""

    tune: Tunes | None = None
    seeds: Seeds | None = None
    train_size: Sizes | None = None
    learning_rate: LearningRates | None = None
    num_train_epochs: Lengths | None = None

    def values(self) -> dict[str, Any]:
        """The values that are set."""
        return {name: value for name in GRID if (value := getattr(self, name)) is not None}

    def differs_in(self, other: Self) -> list[str]:
        """The dimensions in which two grids have different values, whatever their order."""
        return [name for name in GRID if {*(getattr(self, name) or ())} != {*(getattr(other, name) or ())}]

    def joined(self, other: Self) -> Self:
        """The grid with the values of both in the dimensions in which they differ."""
        both: dict[str, Any] = {}
        for name in self.differs_in(other):
            ours, theirs = getattr(self, name), getattr(other, name)
            both[name] = ours if theirs is None else tuple(dict.fromkeys((*(ours or ()), *theirs)))
        return type(self)(**{**vars(other), **both})

    def covers(self, other: Self) -> bool:
        """Whether this grid has every run of the other one."""
        return all({*(getattr(self, name) or ())} >= {*(getattr(other, name) or ())} for name in GRID)


class GridSettings(Strict):
    """What is trained: all combinations of these values."""

    tune: Tunes = Field(
        description="values of k, the number of last layers to train, such as 0,1,2,full (0: classifier head only; full: every "
        "layer); named: what --tune-modules names; or ways to tune, such as lora-2"
    )
    tune_modules: Strings | None = optional(
        "modules that --tune named trains with the head, such as encoder.layer.11,pooler"
    )
    way: dict[str, Way] = Field({}, description="ways to tune of your own, as tables [way.NAME] in a TOML file")
    seeds: Seeds = Field((0, 1, 2, 3, 4), description="number of seeds, or a list of seeds")
    train_size: Sizes | None = optional("numbers of training examples; several are compared", "all examples")
    learning_rate: LearningRates = Field(
        (5e-5,),
        description="learning rates of the layers, ten times these for LoRA and biases; each k uses its best on validation",
    )
    head_learning_rate: HeadLearningRates = Field(
        (HEAD_LEARNING_RATE,),
        description="learning rates of the head; k = 0 uses its best, every other k the first; `same`: as the layers",
    )
    grid: tuple[MoreRuns, ...] = Field((), description="more grids of runs, as tables [[grid]] in a TOML file")

    @field_validator("tune_modules")
    @classmethod
    def _module_paths(cls, values: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if values is not None and not (values and all(all(part.split(".")) for part in values)):
            raise ValueError("give module paths, such as encoder.layer.11,pooler")
        return values if values is None else tuple(sorted(set(values)))  # the order has no meaning


class ResourceSettings(Strict):
    """Where the runs are trained."""

    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        "auto", description="device: cpu, cuda, mps or auto (cuda if available)"
    )
    cache_limit: float | None = optional("disk space for cached hidden states, in GB", "free disk space", ge=0)
    stream: bool | None = optional(
        "read frozen layers from the model folder one at a time, so that only the last layers are in memory",
        "if the weights do not fit into memory",
    )
    workers: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="runs trained at the same time, one CPU core each; 1: one run on all cores"
    )
    stack: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="maximum runs of one k trained as one stack; auto: on a CPU only for k = 0; 1: no stacks"
    )


TRACKERS = ("mlflow", "tensorboard", "wandb")


class OutputSettings(Strict):
    """The answer and the files."""

    out: str = Field(description="folder for results, answer, report and model")
    track: Strings | None = optional(
        f"trackers that also get the runs and the answer in the end: {', '.join(TRACKERS)}", "none"
    )
    target: float | None = optional(
        "share of full fine-tuning's gain that k must reach; recommends the cheapest k that does",
        "0.95, and weigh score against cost",
        gt=0,
        le=1,
    )
    sure: float | None = optional(
        "recommend the cheapest k that reaches the target with this probability",
        "0.5 with --target or --margin; else weigh score against cost",
        gt=0,
        lt=1,
    )
    price: float = Field(
        2.0,
        ge=0,
        description="points of the metric that the training time of full fine-tuning is worth; not used with a target",
    )
    margin: float | None = optional(
        "replaces --target: largest acceptable gap to full fine-tuning, in the metric's units", gt=0
    )
    refit: bool | None = optional(
        "train the saved model once more, on all labelled rows except the test set", "with folds"
    )
    keep_adapter: bool = Field(
        False, description="save a LoRA model also as an adapter of PEFT, in model/adapter; needs the package peft"
    )
    embed: bool = Field(
        False,
        description="copy the pretrained model into the folder of a saved probe, which then needs no other folder",
    )
    calibrate: bool = Field(
        False,
        description="save a temperature with the model, fitted on validation; `frostline predict` divides logits by it",
    )
    threshold: Threshold | None = optional(
        "save a threshold on the probability of the second of two classes, or of each label: a number, recall=0.9, "
        "or a metric to maximize on validation, such as f1 or best (that of the sweep)",
        "0.5",
    )


class Settings(OutputSettings, ResourceSettings, TrainingSettings, GridSettings, ModelSettings, DataSettings):
    """A grid of runs with one model on one data set."""

    num_train_epochs: Lengths = Field(  # type: ignore[assignment]  # a run has one of them
        (3.0,), description="training epochs; several are compared, as values of k are"
    )

    def grids(self) -> list[Self]:
        """The parts of the grid. The runs of a part are all combinations of its values."""
        plain = self.model_copy(update={"grid": ()})
        return [plain, *(plain.model_copy(update=part.values()) for part in self.grid)]

    def grids_alone(self) -> list[MoreRuns]:
        """The values of each part of the grid, without other settings."""
        return [MoreRuns(**{name: getattr(part, name) for name in GRID}) for part in self.grids()]

    def learning_rate_pairs(self, tune: Recipe) -> list[tuple[float | None, float | None]]:
        """The pairs (learning rate of the layers, learning rate of the head) at which this k is trained.

        None for the head stands for the learning rate of the layers. Where only the head is trained, its learning rate is the
        only one and stands first. A way multiplies the learning rates by its factor, so all have as many. What trains no
        parameter of the model has none, and is fitted once.
        """
        way = self.way_of(tune)
        if not way.trains_model:
            return [(None, None)]
        if not way.head_only:
            head_rate = self.head_learning_rate[0] if way.in_loop else None
            return [(way.learning_rate(layers), head_rate) for layers in self.learning_rate]
        head = [self.learning_rate if one is None else (one,) for one in self.head_learning_rate]
        return [(way.learning_rate(one), None) for one in dict.fromkeys(one for several in head for one in several)]

    def way_of(self, tune: Recipe) -> Way:
        """The way that a value of ``tune`` stands for."""
        return way_named(tune.trained, self.way, self.tune_modules)

    def values_of(self, dimension: str) -> list[Any]:
        """The values of one dimension, over all parts of the grid."""
        return list(dict.fromkeys(value for part in self.grids() for value in getattr(part, dimension) or ()))

    def extended(self, older: "Settings", train_rows: int) -> Self:
        """This sweep with the grids of an older one added. No run is added that neither sweep has.

        Args:
            older: The sweep whose grids are added.
            train_rows: The train size of a grid that gives none.
        """
        parts = [*older.grids_alone(), *self.grids_alone()]
        if any(part.train_size for part in parts):
            parts = [part.model_copy(update={"train_size": part.train_size or (train_rows,)}) for part in parts]
        modules = self.tune_modules or older.tune_modules
        return self.with_grids(parts).model_copy(update={"tune_modules": modules, "way": {**older.way, **self.way}})

    def with_grids(self, parts: Sequence[MoreRuns]) -> Self:
        """This sweep with the runs of these grids instead of its own."""
        fewer: list[MoreRuns] = []  # two that differ in at most one dimension become one
        for part in parts:
            while (other := next((one for one in fewer if len(one.differs_in(part)) < 2), None)) is not None:
                fewer.remove(other)
                part = other.joined(part)
            if not any(one.covers(part) for one in fewer):
                fewer = [*(one for one in fewer if not part.covers(one)), part]
        first, *others = fewer
        return self.model_copy(update={**{name: getattr(first, name) for name in GRID}, "grid": tuple(others)})


GROUPS: Mapping[str, type[Strict]] = {  # the panels of ``--help``, in their order
    "data": DataSettings,
    "model": ModelSettings,
    "grid": GridSettings,
    "training": TrainingSettings,
    "resources": ResourceSettings,
    "output": OutputSettings,
}
NOT_OF_SEARCH = ("tune_modules", "grid")
ALL, TRANSFORMERS = "all", "transformers"  # what a search may recommend
OF_MODEL_AND_DATA = {
    *ModelSettings.model_fields,
    *DataSettings.model_fields,
    *("metric", "data_seed", "max_length", "precision", "device", "stream", "embed"),
} - {"test"}


def make_settings(values: Mapping[str, Any]) -> Settings:
    """Settings from plain values.

    Raises:
        FrostlineError: A key is unknown (the message has the nearest name), or a value is missing or impossible.
    """
    known = Settings.model_fields
    for key in (key for key in values if key not in known):
        if isinstance(values[key], Mapping):
            raise FrostlineError(
                f"There is no table [{key}]: move its settings to the top of the file. Only class_weights, grid and way are "
                "tables."
            )
        hint = did_you_mean(key, known) or f": choose from {', '.join(sorted(known))}"
        raise FrostlineError(f"There is no setting {key!r}{hint}.")
    for key, value in values.items():
        if isinstance(value, str | PathLike) and not is_storable(os.fspath(value)):
            raise FrostlineError(f"{key} cannot be {os.fspath(value)!r}, which is not UTF-8: give another name.")
    if values.get("tune_modules") is not None and values.get("tune") is None:
        values = {**values, "tune": NAMED}
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise FrostlineError(_refusal(error.errors()[0], values)) from None
    if len(models_of(settings.model)) > 1:
        raise FrostlineError(
            f"--model names several models ({settings.model}): give one. `frostline find` takes several, with --exhaustive "
            "as a whole grid of each. So does `frostline sweep` on the command line."
        )
    require_free(settings.way)
    tunes = settings.values_of("tune")
    for tune in tunes:
        settings.way_of(tune)  # refuses a way that nobody knows
    if NAMED in tunes and settings.tune_modules is None:
        raise FrostlineError(
            "tune has `named`, but no parts are named: give --tune-modules with module paths, such as "
            "encoder.layer.11,pooler."
        )
    if NAMED not in tunes and settings.tune_modules is not None:
        raise FrostlineError(
            f"tune_modules names {', '.join(settings.tune_modules)}, but {','.join(map(str, tunes))} trains no named parts: add "
            "`named`, or leave --tune-modules out."
        )
    return settings


def require_reference(settings: Settings) -> None:
    """Refuse ways to tune alone, in all grids of a folder.

    Raises:
        FrostlineError: There is no number of layers and no full fine-tuning to compare them with.
    """
    tunes = settings.values_of("tune")
    if any(tune.is_way for tune in tunes) and not any(tune.is_k for tune in tunes):
        raise FrostlineError(
            "Ways to tune are compared with the last k layers or with full fine-tuning: add one, such as full or last-2."
        )


def search_settings(values: Mapping[str, Any], only: str) -> tuple[Settings, bool]:
    """The settings of a search before the layers of the model are known, and whether it tries every k.

    ``tune`` of the settings are the recipes that the user names, and k = 0 for ``auto``.

    Raises:
        FrostlineError: As for :func:`make_settings`. Or a search does not have a setting, or cannot try a recipe.
    """
    if only not in (ALL, TRANSFORMERS):
        raise FrostlineError(f"only cannot be {only!r}: give {ALL}, or {TRANSFORMERS}.")
    for name in NOT_OF_SEARCH:
        if values.get(name) is not None:
            raise FrostlineError(f"A search has no {name}: leave it out, or run `frostline sweep`.")
    given = as_list(values.get("tune", AUTO))
    words = [one for one in given if isinstance(one, str)]  # an array has no one answer to ``==``
    every_k = AUTO in words
    if NAMED in words:
        raise FrostlineError(f"A search cannot try {NAMED}: leave it out of tune, or run `frostline sweep`.")
    named = [one for one in given if not (isinstance(one, str) and one == AUTO)] if every_k else values["tune"]
    if values.get("num_train_epochs") == AUTO:
        values = {name: value for name, value in values.items() if name != "num_train_epochs"}
    settings = make_settings({**values, "tune": named or 0})
    if every_k:
        settings = settings.model_copy(update={"tune": tuple(dict.fromkeys((HEAD_ONLY, *settings.tune)))})
    if settings.train_size and len(settings.train_size) > 1:
        raise FrostlineError(
            "A search has one train size: give one --train-size, or run `frostline sweep` for several."
        )
    for recipe in settings.tune:
        _require_searchable(settings, recipe, only)
    if not every_k and not any(one.is_k and one.k != 0 for one in settings.tune):
        raise FrostlineError(
            f"A search compares with the last k layers or with full fine-tuning: add one to --tune, such as full, or {AUTO}."
        )
    return settings, every_k


def _require_searchable(settings: Settings, recipe: Recipe, only: str) -> None:
    """Refuse a recipe that a search cannot try.

    Raises:
        FrostlineError: It trains nothing, or it is not among the ``only`` ones.
    """
    way = settings.way_of(recipe)
    if not way.trains_model:
        raise FrostlineError(
            f"tune cannot have {recipe}: a search fits models that train no layer anyway. Leave it out, or run `frostline sweep`."
        )
    if only == TRANSFORMERS and (not way.in_loop or opened_by(way.head) != TRANSFORMERS):
        opener = opened_by(way.head) if way.in_loop else "frostline"
        raise FrostlineError(
            f"tune cannot have {recipe} with --only {TRANSFORMERS}: {opener} opens it. Leave one of both out."
        )


def models_of(model: str | PathLike[str] | Sequence[str | PathLike[str]]) -> tuple[str, ...]:
    """The models of a search. A text may name several, with commas between them.

    Raises:
        FrostlineError: There is none, or one is named twice.
    """
    if not model:
        raise FrostlineError("model is missing: give --model, a hub name or a folder written by save_pretrained.")
    if isinstance(model, PathLike) or (isinstance(model, str) and os.path.exists(model)):
        return (os.fspath(model),)
    models = tuple(comma_separated(model) if isinstance(model, str) else [os.fspath(one) for one in model])
    if twice := next((one for n, one in enumerate(models) if one in models[:n]), None):
        raise FrostlineError(f"--model names {twice} twice: give each model once.")
    return models


def budget_seconds(budget: float | str | None, processes: int | None) -> float | None:
    """The budget of a search in seconds.

    Raises:
        FrostlineError: The budget or the number of processes is impossible.
    """
    if processes is not None and processes < 1:
        raise FrostlineError(f"processes cannot be {processes}: give 1 or more.")
    if isinstance(budget, str):
        budget = parse_duration(budget)
    if budget is not None and not budget > 0:
        raise FrostlineError(f"budget cannot be {budget:g}: give seconds of training, above 0.")
    return budget


def _refusal(error: ErrorDetails, values: Mapping[str, Any]) -> str:
    """The sentence about a refused setting."""
    name, place, key = (*error["loc"], None, None)[:3]
    unknown, fields = error["type"] == "extra_forbidden", Settings.model_fields
    if name == "grid":
        if unknown:
            return f"A table [[grid]] has no key {key!r}: it may set {', '.join(GRID)}."
        if not isinstance(place, int) or key is None:
            return "grid has the wrong form: give tables [[grid]] in a TOML file, or a list of dictionaries in Python."
        reason = _advice(error, str(key), fields[str(key)].description)
        return f"{key} in table {place + 1} of [[grid]] cannot be {quoted(error['input'])}: {reason}."
    if name == "way":
        if place is None:
            return "way has the wrong form: give tables [way.NAME] in a TOML file, or a dictionary of dictionaries in Python."
        if unknown:
            hint = did_you_mean(str(key), Way.model_fields) or f": it may set {', '.join(Way.model_fields)}"
            return f"The way in [way.{place}] cannot have {key!r}{hint}."
        if key is None:
            return f"The way {place!r} cannot be used: {_advice(error)}."
        reason = _advice(error, str(key), Way.model_fields[str(key)].description)
        return f"{key} in [way.{place}] cannot be {quoted(error['input'])}: {reason}."
    name = str(name)
    description = fields[name].description
    if error["type"] == "missing":
        return f"{name} is missing: give --{name.replace('_', '-')}, or the key in a TOML file ({description})."
    return f"{name} cannot be {quoted(values[name])}: {_advice(error, name, description)}."


def retry_kinds(value: str | Collection[str]) -> tuple[str, ...]:
    """How runs have ended that are to be trained again, from the value of ``--retry``.

    Raises:
        FrostlineError: It names something else.
    """
    kinds = tuple(comma_separated(value) if isinstance(value, str) else value)
    for kind in kinds:
        if kind not in CAN_RETRY:
            raise FrostlineError(f"retry cannot be {quoted(kind)}: give failed, diverged, or failed,diverged.")
    return kinds


def _advice(error: ErrorDetails, name: str = "", description: str | None = None) -> str:
    """What to give instead of a refused value. It replaces pydantic's own message."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "value_error":
        return error["msg"].removeprefix("Value error, ")
    if name == "tune":
        return "give numbers of layers from 0 (classifier head only) up, all, named (with --tune-modules), or names of ways"
    if name == "class_weights":
        return "give none, balanced, or a weight for each label"
    if kind == "literal_error":
        return f"give {context['expected']}"
    limits = {"gt": "above {:g}", "ge": "from {:g} on", "lt": "below {:g}", "le": "up to {:g}"}
    words = [f"a number {words.format(context[key])}" for key, words in limits.items() if key in context]
    kinds = {
        "int": "a whole number",
        "float": "a number",
        "finite": "a finite number",
        "string": "one text in quotes",
        "bool": "true or false",
    }
    words += [word for start, word in kinds.items() if kind.startswith(start)]
    return f"give {words[0]} ({description})" if words else error["msg"].lower()
