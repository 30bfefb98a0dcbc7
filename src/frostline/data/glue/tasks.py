"""The nine tasks of GLUE: their columns, labels and metrics, and the layouts of their files.

Labels have the names and the order of the hub data set. The numbers in the original files have the same order. ``tables.py``
reads the layouts that differ from the hub.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from frostline import FrostlineError
from frostline.data.columns import Columns
from frostline.data.parsing import normalized_name
from frostline.data.specification import CLASSIFICATION, REGRESSION, DataSpec
from frostline.data.wording import did_you_mean, quoted

HUB_SET = "nyu-mll/glue"
MISMATCHED = "validation_mismatched"  # MNLI's second validation set
SCORES = (0.0, 5.0)  # range of STS-B
FILES = {"train": ("train.tsv",), "validation": ("dev.tsv",), "test": ("test.tsv",)}
DECIDED_OPTIONS = (  # options that a GLUE task decides
    *("config", "column_names", "text_column", "text_pair_column", "label_column", "tag_column", "word_column"),
    *("indicator_columns", "label_separator", "task_type", "labels"),
)


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    """One task of GLUE.

    Attributes:
        name: The name in all results.
        config: The configuration of the hub data set.
        labels: The names of the classes in the order of their indices; empty for a regression.
        metric: The name of the metric in ``frostline.statistics.metrics``.
        layouts: The columns of the hub data set, then those of the original files.
        headerless: The columns of original files without a header.
        files: For each way of distribution, the files of each split. Several files of a split form one table.
        no_gold: Values of the label column that mean "no gold label". Such rows are left out.
        broken_rows: Whether the distributed files have rows with a wrong number of cells.
    """

    name: str
    config: str
    labels: tuple[str, ...]
    metric: str
    layouts: tuple[Columns, ...]
    headerless: tuple[str, ...] = ()
    files: tuple[Mapping[str, tuple[str, ...]], ...] = (FILES,)
    no_gold: tuple[str, ...] = ()
    broken_rows: bool = False

    @property
    def task_type(self) -> str:
        return CLASSIFICATION if self.labels else REGRESSION


SENTENCE = Columns(text="sentence", label="label")
SENTENCES = Columns(text="sentence1", text_pair="sentence2", label="label")
ENTAILMENT = ("entailment", "not_entailment")

GLUE = {
    task.config: task
    for task in (
        GlueTask(
            name="CoLA",
            config="cola",
            labels=("unacceptable", "acceptable"),
            metric="matthews_correlation",
            layouts=(SENTENCE,),
            headerless=("source", "label", "mark", "sentence"),
            # GLUE's dev.tsv is the concatenation of the two public sets.
            files=(
                FILES,
                {"train": ("in_domain_train.tsv",), "validation": ("in_domain_dev.tsv", "out_of_domain_dev.tsv")},
            ),
        ),
        GlueTask(name="SST-2", config="sst2", labels=("negative", "positive"), metric="accuracy", layouts=(SENTENCE,)),
        GlueTask(
            name="MRPC",
            config="mrpc",
            labels=("not_equivalent", "equivalent"),
            metric="f1",
            layouts=(SENTENCES, Columns(text="#1 String", text_pair="#2 String", label="Quality")),
            files=(FILES, {"train": ("msr_paraphrase_train.txt",), "test": ("msr_paraphrase_test.txt",)}),
        ),
        GlueTask(
            name="STS-B",
            config="stsb",
            labels=(),
            metric="spearmanr",
            layouts=(SENTENCES, Columns(text="sentence1", text_pair="sentence2", label="score")),
            headerless=("genre", "file", "year", "index", "score", "sentence1", "sentence2"),
            files=(FILES, {"train": ("sts-train.csv",), "validation": ("sts-dev.csv",), "test": ("sts-test.csv",)}),
        ),
        GlueTask(
            name="QQP",
            config="qqp",
            labels=("not_duplicate", "duplicate"),
            metric="f1",
            layouts=(
                Columns(text="question1", text_pair="question2", label="label"),
                Columns(text="question1", text_pair="question2", label="is_duplicate"),
            ),
            no_gold=("",),
            broken_rows=True,
        ),
        GlueTask(
            name="MNLI",
            config="mnli",
            labels=("entailment", "neutral", "contradiction"),
            metric="accuracy",
            layouts=(
                Columns(text="premise", text_pair="hypothesis", label="label"),
                Columns(text="sentence1", text_pair="sentence2", label="gold_label"),
            ),
            files=tuple(
                {
                    "train": (f"{start}train.{end}",),
                    "validation": (f"{start}dev_matched.{end}",),
                    MISMATCHED: (f"{start}dev_mismatched.{end}",),
                    "test": (f"{start}test_matched.{end}",),
                }
                for start, end in (("", "tsv"), ("multinli_1.0_", "txt"))
            ),
            no_gold=("-",),
        ),
        GlueTask(
            name="QNLI",
            config="qnli",
            labels=ENTAILMENT,
            metric="accuracy",
            layouts=(Columns(text="question", text_pair="sentence", label="label"),),
        ),
        GlueTask(name="RTE", config="rte", labels=ENTAILMENT, metric="accuracy", layouts=(SENTENCES,)),
        GlueTask(name="WNLI", config="wnli", labels=ENTAILMENT[::-1], metric="accuracy", layouts=(SENTENCES,)),
    )
}

# The score of the best constant prediction on the development sets, from their numbers of rows per class.
DEV_CHANCE: Mapping[tuple[str, str], float] = {
    ("cola", "accuracy"): 721 / 1043,
    ("sst2", "accuracy"): 444 / 872,
    ("mrpc", "accuracy"): 279 / 408,
    ("mrpc", "f1"): 2 * 279 / (279 + 408),
    ("qqp", "accuracy"): 25545 / 40430,
    ("qqp", "f1"): 2 * 14885 / (14885 + 40430),
    ("mnli", "accuracy"): 3479 / 9815,
    ("mnlimm", "accuracy"): 3463 / 9832,
    ("qnli", "accuracy"): 2761 / 5463,
    ("rte", "accuracy"): 146 / 277,
    ("wnli", "accuracy"): 40 / 71,
}


def glue_task(name: str) -> GlueTask:
    """The task with this name, in any case and with or without hyphen.

    Raises:
        FrostlineError: GLUE has no such task. The message lists all tasks.
    """
    found = GLUE.get(normalized_name(name))
    if found is None:
        names = [task.name for task in GLUE.values()]
        raise FrostlineError(
            f"--glue {quoted(name)} is not a task of GLUE{did_you_mean(name, names)}; pass one of {', '.join(names)}."
        )
    return found


def refuse_redundant_options(task: GlueTask, spec: DataSpec) -> None:
    """Raise an error if the user gives an option that the task decides."""
    given = [f"--{name.replace('_', '-')}" for name in DECIDED_OPTIONS if getattr(spec, name) is not None]
    if given:
        raise FrostlineError(
            f"{', '.join(given)} cannot be given with {task.name} of GLUE, which decides columns, labels and files; leave "
            f"{'it' if len(given) == 1 else 'them'} out, or leave out `glue`."
        )
