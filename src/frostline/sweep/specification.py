"""The grid of a sweep, as frozen data.

The same fields are the keys of a TOML file, the flags of the command line and the arguments of :class:`frostline.Sweep`.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from frostline import FrostlineError
from frostline.model.tune import Tune
from frostline.training.fields import HeadLearningRates, LearningRates, Seeds, Sizes, Strict, Strings, Tunes
from frostline.training.specification import HEAD_LEARNING_RATE, Settings

GRID = ("tune", "seeds", "train_size", "learning_rate")


class MoreRuns(BaseModel):
    """A part of a grid; what it leaves out is as in the sweep."""

    model_config = Strict

    tune: Tunes | None = None
    seeds: Seeds | None = None
    train_size: Sizes | None = None
    learning_rate: LearningRates | None = None

    def values(self) -> dict[str, Any]:
        """What is given."""
        return {name: value for name in GRID if (value := getattr(self, name)) is not None}


class SweepSpec(Settings):
    """A grid of runs over one model and one table of texts."""

    model: str = Field(description="a hub name, or a folder that save_pretrained wrote")
    revision: str | None = Field(None, description="commit, tag or branch of a hub model")
    trust_remote_code: bool = Field(False, description="run code that comes with a hub model; needs --revision")
    train: str | None = Field(None, description="training table: CSV, TSV, JSON lines or Parquet")
    validation: str | None = Field(None, description="validation table; by default set aside from the training table")
    test: str | None = Field(
        None, description="test table; by default set aside from the training table; `none` for no test"
    )
    held_out_share: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="share of the training table set aside for each of validation and test [a tenth, at most 2,000 rows]",
    )
    first_rows: int | None = Field(None, ge=2, description="read only so many rows of the training table, the first")
    data: str | None = Field(None, description="a hub data set, or a folder with splits, instead of --train")
    config: str | None = Field(None, description="configuration of the hub data set")
    glue: str | None = Field(
        None, description="a GLUE task (CoLA, SST-2, ...): its columns, labels, metric and file layout"
    )
    column_names: Strings | None = Field(
        None, description="names of the columns, with commas, where the files have no header line"
    )
    text_column: str | None = Field(None, description="column with the text")
    text_pair_column: str | None = Field(None, description="column with the second text of a pair")
    label_column: str | None = Field(None, description="column with the label or number")
    problem_type: Literal["single_label_classification", "regression"] | None = Field(
        None, description="single_label_classification or regression; found out by default"
    )
    labels: Strings | None = Field(None, description="all labels, with commas, in the order of the model's outputs")
    task: str | None = Field(None, description="name of the task, to print")
    tune: Tunes = Field(
        description="how many of the last layers to train: numbers from 0 (head only), and all; with commas; "
        "`named` for --tune-modules"
    )
    tune_modules: Strings | None = Field(
        None,
        description="parts to train beside that, for `named` among the values of tune (which is `named` by default "
        "then): module paths or whole segments of them, with commas, such as encoder.layer.11,pooler",
    )
    seeds: Seeds = Field((0, 1, 2, 3, 4), description="a number of seeds, or a list with commas")
    train_size: Sizes | None = Field(None, description="training examples, several with commas; all by default")
    learning_rate: LearningRates = Field(
        (5e-5,), description="learning rate of the layers; of several, with commas, each k takes its best on validation"
    )
    head_learning_rate: HeadLearningRates = Field(
        (HEAD_LEARNING_RATE,),
        description="learning rate of the head (pooler and classifier); `same`: that of the layers. Of several, with commas, "
        "the head alone takes its best on validation, and every other k has the first",
    )
    max_truncated: float = Field(0.05, ge=0, le=1, description="largest share of texts that may be cut at --max-length")
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        "auto", description="cpu, cuda, mps, or auto: cuda where it is"
    )
    cache_limit: float | None = Field(
        None, ge=0, description="GB of hidden states to keep at most; by default what is free"
    )
    stack: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto",
        description="runs of one k to train as one, at most; auto: what suits a GPU, and on a CPU heads alone; 1: none",
    )
    workers: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto",
        description="runs at the same time on a CPU, a core each (on Linux, where there is no accelerator; elsewhere 1); auto: "
        "as many as there are cores, where that pays; 1: one after the other, on all cores",
    )
    target: float = Field(
        0.95, gt=0, le=1, description="share of full's gain over guessing that the recommended k reaches"
    )
    margin: float | None = Field(
        None, gt=0, description="in place of --target: so far below full, in the metric's own units, is enough"
    )
    out: str = Field(description="folder for results, answer, report and model")
    grid: tuple[MoreRuns, ...] = Field((), description="in a TOML file, tables [[grid]]: more runs beside those above")

    def grids(self) -> list[Self]:
        """The parts of the grid: sweeps whose runs are every combination of their values."""
        plain = self.model_copy(update={"grid": ()})
        return [plain, *(plain.model_copy(update=part.values()) for part in self.grid)]

    def rate_pairs(self, tune: Tune) -> list[tuple[float, float | None]]:
        """The learning rates of layers and head, None where it has that of the layers, at which this k is trained."""
        if tune != 0:
            return [(rate, self.head_learning_rate[0]) for rate in self.learning_rate]
        alone = [(rate,) if rate is not None else self.learning_rate for rate in self.head_learning_rate]
        return [(rate, None) for rate in dict.fromkeys(rate for some in alone for rate in some)]

    def every(self, dimension: str) -> list[Any]:
        """The values of one dimension of the grid, those of all its parts."""
        return list(dict.fromkeys(value for part in self.grids() for value in getattr(part, dimension) or ()))

    @field_validator("tune_modules")
    @classmethod
    def _module_paths(cls, values: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if values is not None and not (values and all(all(part.split(".")) for part in values)):
            raise ValueError("give module paths, such as encoder.layer.11,pooler")
        return values if values is None else tuple(sorted(set(values)))  # in whatever order: the same parts

    def extended(self, older: "SweepSpec", train_rows: int) -> Self:
        """This sweep with the grids of an older one added, drawn together where two make one; no run is added that
        neither has. ``train_rows`` is the size meant where none is given."""
        parts = [{name: getattr(part, name) for name in GRID} for part in (*older.grids(), *self.grids())]
        if any(part["train_size"] for part in parts):
            parts = [{**part, "train_size": part["train_size"] or (train_rows,)} for part in parts]
        first, *others = _drawn_together(parts)
        grid = {**first, "grid": tuple(MoreRuns(**part) for part in others)}
        return self.model_copy(update={**grid, "tune_modules": self.tune_modules or older.tune_modules})


def _drawn_together(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Grids that give the same runs, fewer where one grid can say what two say."""
    joined: list[dict[str, Any]] = []
    for part in map(dict, parts):
        while (other := next((one for one in joined if len(_differ(one, part)) < 2), None)) is not None:
            joined.remove(other)
            part |= {name: _both(other[name], part[name]) for name in _differ(other, part)}
        if not any(_covers(one, part) for one in joined):
            joined = [*(one for one in joined if not _covers(part, one)), part]
    return joined


def _covers(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(set(one[name] or ()) >= set(other[name] or ()) for name in GRID)


def _differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """In which dimensions two grids have different values, order aside."""
    return [name for name in GRID if set(one[name] or ()) != set(other[name] or ())]


def _both(values: tuple[Any, ...] | None, more: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    return values if more is None else (*(values or ()), *(value for value in more if value not in (values or ())))


CHOSEN_BY_SEARCH = ("tune", "tune_modules", "grid")
OF_MODEL_AND_DATA = (
    *(
        "model",
        "revision",
        "trust_remote_code",
        "train",
        "validation",
        "held_out_share",
        "first_rows",
        "data",
        "config",
    ),
    *("glue", "column_names", "text_column", "text_pair_column", "label_column", "problem_type", "labels", "task"),
    *("metric", "data_seed", "max_length", "max_truncated", "precision", "device"),
)


def make_spec(values: Mapping[str, Any]) -> SweepSpec:
    """A specification from plain values.

    Raises:
        FrostlineError: an unknown key (with the nearest name), a missing or an impossible value.
    """
    known = SweepSpec.model_fields
    for key, value in values.items():
        if key in known:
            continue
        if isinstance(value, Mapping):
            raise FrostlineError(
                f"There is no table [{key}]: settings stand at the top of the file, in no table but [class_weights] and "
                "[[grid]]; move them there."
            )
        near = difflib.get_close_matches(key, known, 1, 0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}."
        raise FrostlineError(f"There is no setting {key!r}: {hint}")
    if values.get("tune_modules") is not None and values.get("tune") is None:
        values = {**values, "tune": "named"}
    try:
        return _demand_names(SweepSpec.model_validate(values))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        if name == "grid":
            raise FrostlineError(_grid_advice(first)) from error
        description = known[name].description
        if first["type"] == "missing":
            flag = name.replace("_", "-")
            raise FrostlineError(
                f"{name} is missing: give --{flag}, or the key in a TOML file ({description})."
            ) from error
        raise FrostlineError(f"{name} cannot be {values[name]!r}: {_advice(first, description)}.") from error


def _grid_advice(error: ErrorDetails) -> str:
    """What is wrong with a table [[grid]]."""
    _, number, key = (*error["loc"], None, None)[:3]
    if error["type"] == "extra_forbidden":
        return f"A table [[grid]] has no key {key!r}: it holds {', '.join(GRID)}, and what is left out is as above it."
    if not isinstance(number, int) or key is None:
        return "grid cannot be that: give tables [[grid]] in a TOML file, or a list of dictionaries in Python."
    detail = _advice({**error, "loc": (key,)}, SweepSpec.model_fields[str(key)].description)
    return f"{key} in table {number + 1} of [[grid]] cannot be {error['input']!r}: {detail}."


def _demand_names(spec: SweepSpec) -> SweepSpec:
    """Refuse ``named`` without names, and names that nothing trains."""
    if "named" in spec.every("tune") and spec.tune_modules is None:
        raise FrostlineError(
            "tune has `named`, but no parts are named: give --tune-modules with module paths, such as "
            "encoder.layer.11,pooler."
        )
    if "named" not in spec.every("tune") and spec.tune_modules is not None:
        asked = ",".join(map(str, spec.every("tune")))
        raise FrostlineError(
            f"tune_modules names {', '.join(spec.tune_modules)}, but --tune {asked} does not train named parts: add "
            "`named` to --tune, or leave --tune-modules out."
        )
    return spec


def _advice(error: ErrorDetails, description: str | None) -> str:
    """What to give instead of a value that was refused, in place of pydantic's words."""
    name, kind, context = error["loc"][0], error["type"], error.get("ctx", {})
    if kind == "value_error":
        return error["msg"].removeprefix("Value error, ")
    if name == "tune":
        return "give numbers of layers, from 0 (head only) up, all, and named (with --tune-modules)"
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
