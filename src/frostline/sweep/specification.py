"""The settings of a sweep as a frozen model.

Its fields are the keys of a TOML file, the flags of the command line and the arguments of :class:`frostline.Sweep`.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator

from frostline.data.formats.endings import ENDINGS, either
from frostline.data.specification import TaskType
from frostline.statistics.recipe import HEAD_ONLY, Recipe
from frostline.sweep.grids import GRID, MoreRuns, merge_grids
from frostline.training.fields import HeadLearningRates, LearningRates, Seeds, Sizes, Strings, Threshold, Tunes, panel
from frostline.training.specification import HEAD_LEARNING_RATE, Settings
from frostline.training.ways.names import way_named
from frostline.training.ways.way import PLAIN, Way

DATA, GRID_PANEL, RESOURCES, OUTPUT = panel("data"), panel("grid"), panel("resources"), panel("output")
HELD_OUT = panel("data", "held out of training data")
FOUND = panel("data", "found by name")


class SweepSpec(Settings):
    """A grid of runs with one model on one data set."""

    train: str | None = Field(None, description=f"training table: {either(*ENDINGS)}", json_schema_extra=DATA)
    validation: str | None = Field(None, description="validation table", json_schema_extra=HELD_OUT)
    test: str | None = Field(None, description="test table, or none", json_schema_extra=HELD_OUT)
    data: str | None = Field(
        None, description="data set on the hub, or folder with splits, instead of --train", json_schema_extra=DATA
    )
    config: str | None = Field(None, description="configuration of the hub data set", json_schema_extra=DATA)
    glue: str | None = Field(
        None,
        description="GLUE task, such as SST-2: sets columns, labels, metric, layout",
        json_schema_extra=DATA,
    )
    text_column: str | None = Field(None, description="column with the text", json_schema_extra=FOUND)
    text_pair_column: str | None = Field(
        None, description="column with the second text of a pair", json_schema_extra=FOUND
    )
    label_column: str | None = Field(None, description="column with the class or number", json_schema_extra=FOUND)
    indicator_columns: Strings | None = Field(
        None,
        description="columns of 0 and 1, one for each label, if a text can have several",
        json_schema_extra=panel("data", "none"),
    )
    label_separator: str | None = Field(
        None,
        min_length=1,
        description="what separates the labels of a text in the label column, such as ;",
        json_schema_extra=panel("data", "none"),
    )
    tag_column: int | None = Field(
        None, ge=1, description="column of the tags in a CoNLL file, counted from 1", json_schema_extra=FOUND
    )
    word_column: int | None = Field(
        None,
        ge=1,
        description="column of the words in a CoNLL file, counted from 1",
        json_schema_extra=panel("data", "the first"),
    )
    column_names: Strings | None = Field(
        None,
        description="column names, for files without a header line",
        json_schema_extra=DATA,
    )
    encoding: str | None = Field(
        None,
        description="encoding of text files that are not UTF-8, such as cp1252",
        json_schema_extra=panel("data", "UTF-8"),
    )
    task_type: TaskType | None = Field(
        None,
        description="task type: text-classification, multi-label-classification, regression or token-classification",
        json_schema_extra=panel("data", "found from the labels"),
    )
    labels: Strings | None = Field(
        None,
        description="all class labels in output order",
        json_schema_extra=panel("data", "found in the data"),
    )
    held_out_share: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="share of training data to hold out, for each of validation and test",
        json_schema_extra=panel("data", "0.1, at most 2,000 rows"),
    )
    first_rows: int | None = Field(
        None,
        ge=2,
        description="read only this many training rows, the first ones",
        json_schema_extra=panel("data", "all"),
    )
    skip_unlabelled: bool = Field(
        False, description="leave out rows without a label, and report how many", json_schema_extra=DATA
    )
    task: str | None = Field(
        None, description="name of the task in all output", json_schema_extra=panel("data", "name of the data")
    )
    max_truncated: float = Field(
        0.05, ge=0, le=1, description="largest share of examples that may be truncated", json_schema_extra=DATA
    )
    model: str = Field(description="hub name, or folder written by save_pretrained", json_schema_extra=panel("model"))
    revision: str | None = Field(
        None, description="commit, tag or branch of a hub model", json_schema_extra=panel("model", "main")
    )
    trust_remote_code: bool = Field(
        False,
        description="run code that comes with the model, which no TOML file can decide; a hub model needs --revision",
        json_schema_extra=panel("model"),
    )
    tune: Tunes = Field(
        description="values of k, the number of last layers to train, such as 0,1,2,full (0: classifier head only; full: every "
        "layer); named: what --tune-modules names; or ways to tune, such as lora-2",
        json_schema_extra=GRID_PANEL,
    )
    tune_modules: Strings | None = Field(
        None,
        description="modules that --tune named trains with the head, such as encoder.layer.11,pooler",
        json_schema_extra=GRID_PANEL,
    )
    way: dict[str, Way] = Field(
        {}, description="ways to tune of your own, as tables [way.NAME] in a TOML file", json_schema_extra=GRID_PANEL
    )
    seeds: Seeds = Field(
        (0, 1, 2, 3, 4), description="number of seeds, or a list of seeds", json_schema_extra=GRID_PANEL
    )
    train_size: Sizes | None = Field(
        None, description="numbers of training examples to compare", json_schema_extra=panel("grid", "all examples")
    )
    learning_rate: LearningRates = Field(
        (5e-5,),
        description="learning rates of the layers, ten times these for LoRA and biases; each k uses its best on validation",
        json_schema_extra=GRID_PANEL,
    )
    head_learning_rate: HeadLearningRates = Field(
        (HEAD_LEARNING_RATE,),
        description="learning rates of the head; k = 0 uses its best, every other k the first; `same`: as the layers",
        json_schema_extra=GRID_PANEL,
    )
    grid: tuple[MoreRuns, ...] = Field(
        (), description="more grids of runs, as tables [[grid]] in a TOML file", json_schema_extra=GRID_PANEL
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        "auto", description="device: cpu, cuda, mps or auto (cuda if available)", json_schema_extra=RESOURCES
    )
    cache_limit: float | None = Field(
        None,
        ge=0,
        description="disk space for cached hidden states, in GB",
        json_schema_extra=panel("resources", "free disk space"),
    )
    stream: bool | None = Field(
        None,
        description="read frozen layers from the model folder one at a time, so that only the last layers are in memory",
        json_schema_extra=panel("resources", "if the weights do not fit into memory"),
    )
    workers: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto",
        description="runs trained at the same time, one CPU core each; 1: one run on all cores",
        json_schema_extra=RESOURCES,
    )
    stack: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto",
        description="maximum runs of one k trained as one stack; auto: on a CPU only for k = 0; 1: no stacks",
        json_schema_extra=RESOURCES,
    )
    out: str = Field(description="folder for results, answer, report and model", json_schema_extra=OUTPUT)
    target: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share of full fine-tuning's gain that k must reach; recommends the cheapest k that does",
        json_schema_extra=panel("output", "0.95, and weigh score against cost"),
    )
    sure: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="recommend the cheapest k that reaches the target with this probability",
        json_schema_extra=panel("output", "0.5 with --target or --margin; else weigh score against cost"),
    )
    price: float = Field(
        2.0,
        ge=0,
        description="points of the metric that the training time of full fine-tuning is worth; not used with a target",
        json_schema_extra=OUTPUT,
    )
    margin: float | None = Field(
        None,
        gt=0,
        description="replaces --target: largest acceptable gap to full fine-tuning, in the metric's units",
        json_schema_extra=OUTPUT,
    )
    keep_adapter: bool = Field(
        False,
        description="save a LoRA model also as an adapter of PEFT, in model/adapter; needs the package peft",
        json_schema_extra=OUTPUT,
    )
    calibrate: bool = Field(
        False,
        description="save a temperature with the model, fitted on validation; `frostline predict` divides logits by it",
        json_schema_extra=OUTPUT,
    )
    threshold: Threshold | None = Field(
        None,
        description="save a threshold on the probability of the second of two classes, or of each label: a number, recall=0.9, "
        "or a metric to maximize on validation, such as f1 or best (that of the sweep)",
        json_schema_extra=panel("output", "0.5"),
    )

    def grids(self) -> list[Self]:
        """The parts of the grid. The runs of a part are all combinations of its values."""
        plain = self.model_copy(update={"grid": ()})
        return [plain, *(plain.model_copy(update=part.values()) for part in self.grid)]

    def grid_values(self) -> list[dict[str, Any]]:
        """The values of each part of the grid, by dimension."""
        return [{name: getattr(part, name) for name in GRID} for part in self.grids()]

    def learning_rate_pairs(self, tune: Recipe) -> list[tuple[float | None, float | None]]:
        """The pairs (learning rate of the layers, learning rate of the head) at which this k is trained.

        None for the head stands for the learning rate of the layers. Where only the head is trained, its learning rate is the
        only one and stands first. A way multiplies the learning rates by its factor, so all have as many. What trains no
        parameter of the model has none, and is fitted once.
        """
        way = self.way_of(tune)
        if not way.trains_model:
            return [(None, None)]
        if tune != HEAD_ONLY and not way.head_only:
            head_rate = self.head_learning_rate[0] if way.in_loop else None
            return [(way.learning_rate(layers), head_rate) for layers in self.learning_rate]
        head = [self.learning_rate if one is None else (one,) for one in self.head_learning_rate]
        return [(way.learning_rate(one), None) for one in dict.fromkeys(one for several in head for one in several)]

    def way_of(self, tune: Recipe) -> Way:
        """The way that a value of ``tune`` stands for."""
        return way_named(tune, self.way) or PLAIN

    def values_of(self, dimension: str) -> list[Any]:
        """The values of one dimension, over all parts of the grid."""
        return list(dict.fromkeys(value for part in self.grids() for value in getattr(part, dimension) or ()))

    @field_validator("tune_modules")
    @classmethod
    def _module_paths(cls, values: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if values is not None and not (values and all(all(part.split(".")) for part in values)):
            raise ValueError("give module paths, such as encoder.layer.11,pooler")
        return values if values is None else tuple(sorted(set(values)))  # the order has no meaning

    def extended(self, older: "SweepSpec", train_rows: int) -> Self:
        """This sweep with the grids of an older one added. No run is added that neither sweep has.

        Args:
            older: The sweep whose grids are added.
            train_rows: The train size of a grid that gives none.
        """
        parts = [*older.grid_values(), *self.grid_values()]
        if any(part["train_size"] for part in parts):
            parts = [{**part, "train_size": part["train_size"] or (train_rows,)} for part in parts]
        modules = self.tune_modules or older.tune_modules
        return self.with_grids(parts).model_copy(update={"tune_modules": modules, "way": {**older.way, **self.way}})

    def with_grids(self, parts: Sequence[Mapping[str, Any]]) -> Self:
        """This sweep with the runs of these grids instead of its own."""
        first, *others = merge_grids(parts)
        return self.model_copy(update={**first, "grid": tuple(MoreRuns(**part) for part in others)})


CHOSEN_BY_SEARCH = ("tune", "tune_modules", "way", "grid")
OF_MODEL_AND_DATA = (
    *("model", "revision", "trust_remote_code"),
    *("train", "validation", "held_out_share", "first_rows", "skip_unlabelled"),
    *("data", "config", "glue", "column_names", "encoding"),
    *(
        "text_column",
        "text_pair_column",
        "label_column",
        "indicator_columns",
        "label_separator",
        "tag_column",
        "word_column",
        "task_type",
        "labels",
        "task",
    ),
    *("metric", "data_seed", "max_length", "max_truncated", "precision", "device", "stream"),
)
