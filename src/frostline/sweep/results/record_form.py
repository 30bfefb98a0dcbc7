"""The form of a result's record. A checksum shows damage, but somebody else may have written something else from the start."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from frostline import FrostlineError
from frostline.sweep.results.store import Store
from frostline.training.run import RunSpec

Number = FiniteFloat | None
Seconds = Annotated[float, Field(ge=0, le=1e12)]
Bytes = Annotated[float, Field(ge=0, le=1e18)]
Count = Annotated[int, Field(ge=0)]


class Form(BaseModel):
    """What tables, answer and report read. There may be more."""

    model_config = ConfigDict(strict=True)


class ScoreForm(Form):
    """A row of the scores."""

    split: str
    epoch: Number
    metric: str
    value: Number


class CostForm(Form):
    """The costs of a run."""

    train_seconds: Seconds
    evaluation_seconds: Seconds
    forward_pass_seconds: Seconds
    peak_memory_bytes: Bytes
    run_seconds: Seconds | None = None


class CountsForm(Form):
    """The parameters of one place in the model."""

    trained: Count
    frozen: Count


class PhaseForm(Form):
    """A phase of a run that has several."""

    steps: Count
    moved: list[str]


class AuditForm(Form):
    """What was trained."""

    parameters: Count
    trainable_parameters: Count
    by_place: dict[str, CountsForm]
    tuned_share: Number = None
    merged: list[str] = []
    phases: list[PhaseForm] = []


class ProvenanceForm(Form):
    """Where and how a run was trained."""

    cut: Count | None
    workers: Count | None = None
    threads: Count | None = None
    device_name: str = ""
    instructions: str = ""
    torch: str = ""


class RecordForm(Form):
    """The record of a result."""

    spec: RunSpec
    outcome: str
    reason: str
    metric: str
    best_epoch: Number
    validation_best: Number
    validation_last: Number
    train_last: Number
    scores: list[ScoreForm]
    cost: CostForm
    audit: AuditForm
    provenance: ProvenanceForm


class CharactersForm(Form):
    """The lengths of the texts of a split."""

    median: float
    percentile_95: float


class SplitForm(Form):
    """The examples of a split."""

    rows: Count
    label_counts: dict[str, Count]
    characters: CharactersForm
    empty_texts: Count


class DataReportForm(Form):
    """What the checks of the data counted."""

    splits: dict[str, SplitForm]
    repeated: dict[str, Count]
    shared: dict[str, Count]


class DataForm(Form):
    """The facts about the data in ``data.json``."""

    columns: dict[str, str | list[str] | None]
    notes: list[str]
    report: DataReportForm
    max_length: Count
    truncated: dict[str, float]
    truncated_by_class: dict[str, float]


class OnTestForm(Form):
    """The record of a score on the test set."""

    scores: dict[str, Number]


def well_formed(store: Store) -> dict[str, dict[str, Any]]:
    """Every result in the folder, by digest.

    Raises:
        FrostlineError: A result does not have the form of one.
    """
    found = store.results()
    for digest, facts in found.items():
        _require(RecordForm, facts, store, digest)
    return found


def well_formed_result(store: Store, digest: str) -> dict[str, Any]:
    """The result of one run.

    Raises:
        FrostlineError: It does not have the form of one.
    """
    facts = store.result(digest)
    _require(RecordForm, facts, store, digest)
    return facts


def scores_on_test(store: Store, digest: str) -> Mapping[str, float | None]:
    """The scores of a run on the test set; empty if there is none.

    Raises:
        FrostlineError: Its record does not have the form of one.
    """
    found = store.test(digest)
    if found is None:
        return {}
    _require(OnTestForm, found[0], store, digest)
    scores: Mapping[str, float | None] = found[0]["scores"]
    return scores


def _require(form: type[Form], facts: Mapping[str, Any], store: Store, digest: str) -> None:
    try:
        form.model_validate(facts)
    except ValidationError as error:
        first = error.errors()[0]
        where, said = ".".join(map(str, first["loc"])), first["msg"].lower()
        raise FrostlineError(
            f"{store.runs / digest} does not have the form of a result ({where}: {said}): remove it, and the sweep's command "
            "trains that run again."
        ) from error
