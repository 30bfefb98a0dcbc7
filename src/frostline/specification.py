"""What is to be run, as frozen data: a sweep's specification, and from it one for each run, with a digest.

Training arguments bear the names of transformers' ``TrainingArguments``. The same fields are the keys of a TOML
file, the flags of the command line and the arguments of :class:`frostline.Sweep`.
"""

import difflib
import hashlib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails

from frostline.errors import FrostlineError
from frostline.folding import between_commas

Tune = Annotated[int, Field(ge=0)] | Literal["all", "named"]  # tuned layers; "all" is full: embeddings too


def _as_list(value: Any) -> Any:
    """One value, or text with commas, as a list."""
    if isinstance(value, str):
        return [_number(part) for part in between_commas(value) if part]
    return list(value) if isinstance(value, list | tuple | range | set) else [value]


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _as_texts(value: Any) -> Any:
    """Text with commas as a list of texts; a label that looks like a number stays text."""
    values = between_commas(value) if isinstance(value, str) else _as_list(value)
    return [str(x) if isinstance(x, int | float) else x for x in values]


def _as_seeds(value: Any) -> Any:
    """``5`` is 0 .. 4; a list is a list."""
    values = _as_list(value)
    if isinstance(value, int) or (isinstance(value, str) and "," not in value):
        if not values or not isinstance(values[0], int) or values[0] < 1:
            raise ValueError("give a number of seeds, 1 or more, or a list of them")
        return list(range(values[0]))
    return values


def _some_and_distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("give at least one value")
    if len(set(values)) < len(values):
        raise ValueError("a value stands there twice; give each once")
    return values


Positive = Annotated[float, Field(gt=0)]
Tunes = Annotated[tuple[Tune, ...], BeforeValidator(_as_list), AfterValidator(_some_and_distinct)]
Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_as_seeds), AfterValidator(_some_and_distinct)
]
Sizes = Annotated[
    tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_as_list), AfterValidator(_some_and_distinct)
]
Rates = Annotated[tuple[Positive, ...], BeforeValidator(_as_list), AfterValidator(_some_and_distinct)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_as_texts)]


def _none_or_several(folds: int | str) -> int | str:
    if folds == 1:
        raise ValueError("give 2 or more, 0 for none, or auto")
    return folds


Folds = Annotated[Annotated[int, Field(ge=0)] | Literal["auto"], AfterValidator(_none_or_several)]
HeadRate = Annotated[
    Positive | None,  # None: the layers' own; a file says "same", since TOML has no word for None
    BeforeValidator(lambda value: None if value == "same" else value),
    PlainSerializer(lambda value: "same" if value is None else value, when_used="json"),
]
HeadRates = Annotated[tuple[HeadRate, ...], BeforeValidator(_as_list), AfterValidator(_some_and_distinct)]
HEAD_RATE = 1e-3
Strict = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Settings(BaseModel):
    """What all runs of a sweep have in common."""

    model_config = Strict

    num_train_epochs: Positive = Field(3, description="passes over the training examples")
    per_device_train_batch_size: int = Field(16, ge=1, description="examples in a training step")
    per_device_eval_batch_size: int = Field(64, ge=1, description="examples in a batch of evaluation")
    weight_decay: float = Field(0.01, ge=0, description="AdamW's, on weight matrices only")
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="AdamW's")
    adam_beta2: float = Field(0.999, ge=0, lt=1, description="AdamW's")
    adam_epsilon: Positive = Field(1e-8, description="AdamW's")
    lr_scheduler_type: Literal[
        "linear",
        "cosine",
        "cosine_with_restarts",
        "polynomial",
        "constant",
        "constant_with_warmup",
        "inverse_sqrt",
    ] = Field(
        "linear", description="schedule of the learning rate: linear, cosine, constant, ... as transformers names them"
    )
    warmup_steps: float = Field(0.1, ge=0, description="steps of warm-up; below 1 a share of all steps")
    max_grad_norm: float = Field(1.0, ge=0, description="clip the trained gradients to this norm; 0 does not clip")
    evaluations_per_epoch: int = Field(
        1, ge=0, description="validation scores in an epoch; 0: after the last step alone"
    )
    load_best_model_at_end: bool = Field(
        True, description="a run's result is its best epoch on validation; otherwise its last"
    )
    train_score_rows: int = Field(200, ge=1, description="training rows scored at the end of a run, at most")
    metric: str | None = Field(
        None,
        description="chooses epoch, learning rate and k: accuracy, f1, f1_macro, matthews_correlation, or for numbers "
        "spearmanr, pearson, r2; by default the first that suits",
    )
    class_weights: Literal["none", "balanced"] | dict[str, float] = Field(
        "none", description="weights of classes in the loss: none, balanced, or label=weight,label=weight"
    )
    tune_pooler: bool = Field(True, description="train the pooler with the head")
    frozen_dropout: bool = Field(
        False, description="leave dropout on in the frozen part, as Trainer does; nothing is kept"
    )
    subset: Literal["per-seed", "fixed"] = Field(
        "per-seed", description="subset of the training rows: per-seed (each seed its own), or fixed"
    )
    data_seed: int = Field(0, ge=0, description="fixes validation and test, folds, and a fixed subset")
    folds: Folds = Field(
        0,
        description="set no validation rows aside: every row is in one of so many folds, and a run is scored on the fold of "
        "its seed, which it does not train on; auto: 5 where there are fewer than 2,000 rows and no validation",
    )
    max_length: int | None = Field(
        None, ge=1, description="most tokens in a text; by default what the model takes, at most 512"
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="float32, bfloat16, or auto: bfloat16 where the processor has it"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Python takes true for 1; nobody means it."""
        assert info.field_name is not None
        wants = cls.model_fields[info.field_name].annotation
        given = value if isinstance(value, list | tuple) else [value]
        if wants is not bool and any(isinstance(one, bool) for one in given):
            raise ValueError("true and false mean nothing here")
        return value


class RunSpec(Settings):
    """One run: everything its result depends on, and nothing else."""

    weights: str  # digest of the pretrained model
    vocabulary: str  # digest of its tokenizer
    data: str  # digest of training, validation and test examples
    tune: Tune
    tune_modules: tuple[str, ...] | None = None  # the parts that a named run trains
    seed: int
    train_size: int
    learning_rate: float
    head_learning_rate: HeadRate = HEAD_RATE  # None: the layers' own; of the head alone it is always that

    @property
    def digest(self) -> str:
        """The name of the run's result."""
        absent = {"tune_modules"} if self.tune_modules is None else set()
        text = json.dumps(self.model_dump(mode="json", exclude=absent), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @property
    def fold(self) -> int | None:
        """Which fold it is scored on and not trained on; None where there are none."""
        return self.seed % self.folds if isinstance(self.folds, int) and self.folds else None

    @property
    def trainable(self) -> str:
        """What is trained, as it is printed: ``last 2``, ``all``, ``named``."""
        return f"last {self.tune}" if isinstance(self.tune, int) else self.tune


GRID = ("tune", "seeds", "train_size", "learning_rate")


class MoreRuns(BaseModel):
    """A part of a grid; what it leaves out is as in the sweep."""

    model_config = Strict

    tune: Tunes | None = None
    seeds: Seeds | None = None
    train_size: Sizes | None = None
    learning_rate: Rates | None = None

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
    column_names: Texts | None = Field(
        None, description="names of the columns, with commas, where the files have no header line"
    )
    text_column: str | None = Field(None, description="column with the text")
    text_pair_column: str | None = Field(None, description="column with the second text of a pair")
    label_column: str | None = Field(None, description="column with the label or number")
    problem_type: Literal["single_label_classification", "regression"] | None = Field(
        None, description="single_label_classification or regression; found out by default"
    )
    labels: Texts | None = Field(None, description="all labels, with commas, in the order of the model's outputs")
    task: str | None = Field(None, description="name of the task, to print")
    tune: Tunes = Field(
        description="how many of the last layers to train: numbers from 0 (head only), and all; with commas; "
        "`named` for --tune-modules"
    )
    tune_modules: Texts | None = Field(
        None,
        description="parts to train beside that, for `named` among the values of tune (which is `named` by default "
        "then): module paths or whole segments of them, with commas, such as encoder.layer.11,pooler",
    )
    seeds: Seeds = Field((0, 1, 2, 3, 4), description="a number of seeds, or a list with commas")
    train_size: Sizes | None = Field(None, description="training examples, several with commas; all by default")
    learning_rate: Rates = Field(
        (5e-5,), description="learning rate of the layers; of several, with commas, each k takes its best on validation"
    )
    head_learning_rate: HeadRates = Field(
        (HEAD_RATE,),
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


def read_seconds(text: str) -> float:
    """``90``, ``90s``, ``10min`` or ``2h`` in seconds.

    Raises:
        FrostlineError: it is no duration.
    """
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*(s|sec|min|m|h)?\s*", text)
    if not found:
        raise FrostlineError(f"{text!r} is no duration: give seconds, or as in 90s, 10min, 2h.")
    return float(found[1]) * {"s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600}[found[2] or "s"]


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


def read_toml(path: str | Path) -> dict[str, Any]:
    """The values in a TOML file.

    Raises:
        FrostlineError: no such file, or it is no TOML.
    """
    path = Path(path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FrostlineError(f"There is no file {path}: give a TOML file, or --model and --train.") from error
    except OSError as error:
        raise FrostlineError(
            f"{path} cannot be read ({error.strerror}): give a TOML file; a model goes with --model."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FrostlineError(
            f"{path} is no TOML: {error}. Mend that place; a table of texts goes with --train."
        ) from error


def to_toml(values: Mapping[str, Any]) -> str:
    """Plain values as TOML; what is None is left out, since TOML has no such word."""
    lines, tables = [], []
    for key, value in values.items():
        if isinstance(value, Mapping):
            tables.append(f"\n[{_toml_key(key)}]\n{to_toml(value)}")
        elif value is not None:
            lines.append(f"{_toml_key(key)} = {_toml_value(value)}\n")
    return "".join(lines + tables)


def _toml_key(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else _toml_value(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = [f"{_toml_key(key)} = {_toml_value(one)}" for key, one in value.items() if one is not None]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml_value(v) for v in value)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
