"""The folder of a sweep, read without model and data files: settings, runs, results, and the scored examples beside them."""

import io
import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray
from pydantic import BaseModel
from safetensors import SafetensorError

from frostline import FrostlineError
from frostline.data.checks import DataReport
from frostline.data.examples import Examples
from frostline.data.files import (
    ARRAY_BYTES,
    ELSEWHERE,
    locked,
    make_folder,
    read_inside,
    replace_file,
    require_inside,
    seal_arrays,
    unseal_arrays,
    unseal_as,
    write_sealed,
)
from frostline.data.kinds import FORMAT_OF
from frostline.data.wording import listed
from frostline.model.terms import EMBEDDINGS, layer_numbers
from frostline.statistics.answer import is_of_models
from frostline.statistics.recipe import FULL
from frostline.statistics.run_result import ALTERNATIVES, RunResult
from frostline.sweeps.grid import expand, read_sweep
from frostline.sweeps.results.search_record import read_search
from frostline.sweeps.results.store import ALTERNATIVES_FILE, FAILED, RECORD, SEARCH, Store, is_before_first_run
from frostline.sweeps.toml import TRUST, require_trust
from frostline.training.result import Count, RunRecord, Score

if TYPE_CHECKING:
    from frostline.sweeps.plan import Plan

Folds = NDArray[np.int64]
FORM = {"fold": pa.int64(), "row": pa.int64(), "text": pa.string(), "pair": pa.string(), "group": pa.string()}
CHECKSUM = b"checksum"  # the key of a checksum in the metadata of a file


def write_rows(out: Path, split: str, examples: Examples, folds: Folds | None = None) -> None:
    """Write ``<split>.parquet``: row number in the data file, text, pair, group, target, and fold if there are ``folds``.

    The target is a class index, a number, a list with the index of each word's tag, or one with whether the text has each label.
    """
    table = pa.table(
        {
            **({} if folds is None else {"fold": folds}),
            "row": examples.rows,
            "text": pa.array(examples.texts, pa.string()),
            "pair": pa.array(examples.pairs if examples.pairs is not None else [None] * len(examples), pa.string()),
            "group": pa.array(examples.groups if examples.groups is not None else [None] * len(examples), pa.string()),
            "target": list(examples.targets) if examples.targets.ndim > 1 else examples.targets,
        }
    )
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({CHECKSUM: _checksum(table)}), buffer)
    replace_file(out / f"{split}.parquet", buffer.getvalue(), inside=out)


def read_rows(out: Path, split: str) -> Examples | None:
    """The examples that :func:`write_rows` wrote; None if there is no such split."""
    table = _read(out, split)
    if table is None:
        return None
    pairs, groups = table["pair"].to_pylist(), table["group"].to_pylist()
    lists = pa.types.is_list(table["target"].type)
    return Examples(
        texts=tuple(table["text"].to_pylist()),
        pairs=None if None in pairs else tuple(pairs),
        rows=table["row"].to_numpy().astype(np.int64),
        name=split,
        groups=None if None in groups else tuple(groups),
        targets=np.array(table["target"].to_pylist()) if lists else table["target"].to_numpy(),
    )


def _read(out: Path, split: str) -> pa.Table | None:
    """The table of a split; None if it does not exist.

    Raises:
        FrostlineError: The file is damaged, or is no ordinary file in the folder.
    """
    path = out / f"{split}.parquet"
    try:
        table = pq.read_table(io.BytesIO(read_inside(path, out, ARRAY_BYTES)))
        if (table.schema.metadata or {}).get(CHECKSUM) != _checksum(table) or not _has_form(table):
            raise ValueError("its content has another checksum or form")
    except FileNotFoundError:
        return None
    except FrostlineError:  # a link
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise FrostlineError(f"{path} is damaged: run the sweep's command again to write it.") from error
    return table


def _has_form(table: pa.Table) -> bool:
    """Whether a table has the columns that :func:`write_rows` writes, each of its type and with all values."""
    kinds = {name: table.schema.field(name).type for name in table.column_names}
    target = kinds.pop("target", pa.null())
    if pa.types.is_list(target):
        target = target.value_type if len(pc.unique(pc.list_value_length(table["target"]))) <= 1 else pa.null()
    return (
        {"fold": FORM["fold"], **kinds} == FORM
        and (pa.types.is_integer(target) or pa.types.is_floating(target) or pa.types.is_boolean(target))
        and not any(table[name].null_count for name in table.column_names if name not in ("pair", "group"))
    )


def _checksum(table: pa.Table) -> bytes:
    """A checksum of all cells."""
    return xxhash.xxh3_128_hexdigest(json.dumps(table.to_pydict(), default=repr).encode()).encode()


DATA = "data.json"
OF_RESULT = ("outcome", "metric", "validation_best", "validation_last", "train_last", "best_epoch")  # facts of a row
TEST = "test "  # begins the names of predictions for the test rows

Logits = NDArray[np.float32]


def write_alternatives(out: Path, validation: Mapping[str, Logits], test: Mapping[str, Logits]) -> None:
    """Write the predictions by name, each for all rows of a split, ``[rows, C]``; NaN where a row was not scored."""
    values = {**validation, **{f"{TEST}{name}": one for name, one in test.items()}}
    replace_file(
        out / ALTERNATIVES_FILE, seal_arrays({name: one.astype(np.float32) for name, one in values.items()}), inside=out
    )


def read_alternatives(out: Path, prefix: str = "") -> dict[str, Logits]:
    """The predictions by name, in the order of ``ALTERNATIVES``; empty if no search has fitted such models.

    Args:
        out: The folder of the search.
        prefix: ``TEST`` for those of the test rows; by default those of the validation rows.

    Raises:
        FrostlineError: The file is damaged.
    """
    path = out / ALTERNATIVES_FILE
    require_inside(path, out)
    if not path.exists():
        return {}
    try:
        found = unseal_arrays(read_inside(path, out, ARRAY_BYTES))  # not in the order in which they were written
    except (OSError, ValueError, SafetensorError) as error:
        raise FrostlineError(
            f"{path} is damaged ({error}): run the command of the search again to write it."
        ) from error
    return {name: found[prefix + name] for name in ALTERNATIVES if prefix + name in found}


class DataRecord(BaseModel):
    """``data.json``: how the data were read, and what their checks counted."""

    columns: dict[str, str | list[str] | None]
    notes: list[str]
    report: DataReport
    max_length: Count
    truncated: dict[str, float]
    truncated_by_class: dict[str, float]


class Folder:
    """The folder of a sweep, read without loading its model or its data.

    Attributes:
        out: The folder.
        store: The results in it.
        written: What sweep.toml holds: also where the sweep was started, and whether it needs code that comes with the model.
        identity: What identifies the sweep besides its settings.
        spec: The settings. The grid is the union of all requested grids.
        requested: All runs of the grid.
        search: The record of the search that trained them; None for a plain sweep.
        runs: The requested runs without those that a search has abandoned.
        folds: The fold of each validation example; None without folds.

    Raises:
        FrostlineError: The folder contains no sweep.
    """

    def __init__(self, out: str | Path) -> None:
        self.out = Path(out)
        self.store = Store(self.out)
        written = read_sweep(self.store)
        if written is None:
            raise FrostlineError(_no_sweep(self.out))
        self.written, self.spec, self.identity = written, written.spec, written.identity
        self.requested = expand(self.spec, self.identity)
        self.search = search = read_search(self.out)
        if abandoned := set(search.abandoned) if search else set():
            abandoned -= self.store.ended()
        self.runs = [run for run in self.requested if run.digest not in abandoned]
        self._by_digest = {run.digest: run for run in self.runs}

    @cached_property
    def folds(self) -> NDArray[np.int64] | None:
        """The fold of each validation row; None without folds."""
        table = _read(self.out, "validation") if self.identity.folds else None
        return None if table is None or "fold" not in table.column_names else table["fold"].to_numpy().astype(np.int64)

    def require_trust(self, *, trusted: bool) -> None:
        """Refuse runs that need code that comes with the model, unless the user trusts that code.

        Raises:
            FrostlineError: The user has not said so.
        """
        require_trust(
            {TRUST: self.written.own_code, "model": self.spec.model}, self.out / "sweep.toml", trusted=trusted
        )

    def moved_paths(self, given: Collection[str] = ()) -> dict[str, str]:
        """Settings with a path that does not exist from here, but from the folder where the sweep was started.

        Raises:
            FrostlineError: A table that is not ``given`` anew is in neither place.
        """
        start, found = self.written.origin.folder_for(self.out), {}
        for name in ("model", "train", "validation", "test", "data"):
            path = getattr(self.spec, name)
            if path is None or Path(path).expanduser().exists():
                continue
            if (start / path).exists():
                found[name] = str(start / path)
            elif Path(path).suffix.lower() in FORMAT_OF and name not in given:
                raise FrostlineError(
                    f"The {name} table of {self.out}, {path}, is found neither from here nor from {start}, where the sweep was "
                    f"started: change to the folder that has it, or in Python give it again, as {name}=."
                )
        return found

    @property
    def is_complete(self) -> bool:
        """Whether every run has ended and no search continues.

        Until then the answer may change, so test scores stay hidden.
        """
        return not (self.search and not self.search.over) and "pending" not in self.states()

    @property
    def digest(self) -> str:
        """Of the settings, the search and every result as they are now: of all that the answer is made from."""
        found = xxhash.xxh3_128()
        results, failures = self.store.runs.glob(f"[!.]*/{RECORD}"), self.store.runs.glob(f"[!.]*{FAILED}")
        once = [self.out / name for name in ("sweep.toml", SEARCH, ALTERNATIVES_FILE, DATA)]
        for path in (*once, *sorted(results), *sorted(failures)):
            with suppress(FileNotFoundError):  # another process has set it aside
                found.update(read_inside(path, self.out, ARRAY_BYTES))
        return found.hexdigest()

    def states(self) -> list[str]:
        """For each of the runs: ``done``, ``failed`` or ``pending``. No result is read."""
        known = self.store.states()
        return [known.get(run.digest, "pending") for run in self.runs]

    def counts(self) -> dict[str, int]:
        """How many of the runs are ``done``, ``failed`` and ``pending``."""
        states = self.states()
        return {state: states.count(state) for state in ("done", "failed", "pending")}

    @cached_property
    def results(self) -> dict[str, RunRecord]:
        """Every result in the folder, by digest, as it was when it was first asked for."""
        return self.store.results()

    @cached_property
    def _test_scores(self) -> dict[str, Mapping[str, float | None]]:
        """The scores of each run on the test set, by digest."""
        found = {run.digest: self.store.test(run.digest) for run in self.runs if run.digest in self.results}
        return {digest: one[0].scores for digest, one in found.items() if one}

    @cached_property
    def lengths(self) -> list[float]:
        """The training lengths of the grid, and those that a search may train."""
        return [*self.spec.values_of("num_train_epochs"), *(self.search.num_train_epochs if self.search else [])]

    @cached_property
    def rows(self) -> list[RunResult]:
        """One row for each run, done or not, in the order of the grid, with test scores if the sweep is complete.

        They are as they were when they were first asked for.
        """
        failures, test_scores = self.store.failures(), self._test_scores if self.is_complete else {}
        found = [self.results.get(run.digest) for run in self.runs]
        cached = [one.cost.forward_pass_seconds for one in found if one and one.provenance.from_cache]
        # Each call has its own forward pass. A resumed call computes only the examples that its runs need: the longest counts.
        share = max(cached, default=0.0) / max(1, len(cached))
        rows, layers = [], self.identity.layers
        for run, result in zip(self.runs, found, strict=True):
            failure, known = failures.get(run.digest), dict[str, Any]()
            if (k := layers if run.recipe == FULL else run.recipe.k) is not None:
                known = {"tuned_layers": k, "tune_embeddings": run.recipe == FULL, "tuned_share": k / layers}
            elif result:  # for named parts and ways, only the audit says which layers run in training
                places = result.audit.trained_places
                embeddings = EMBEDDINGS in places
                known["tuned_layers"] = layers - (0 if embeddings else min(layer_numbers(places), default=layers))
                known |= {"tune_embeddings": embeddings, "tuned_share": result.audit.tuned_share}
            if result:
                known |= {name: getattr(result, name) for name in OF_RESULT}
                known |= {
                    "test": test_scores.get(run.digest, {}).get(result.metric),
                    "trainable_parameters": result.audit.trainable_parameters,
                    "train_seconds": result.cost.train_seconds,
                    "cache_seconds": share if result.provenance.from_cache else 0.0,
                    "concurrent_runs": result.provenance.workers,
                    "peak_memory_bytes": result.cost.peak_memory_bytes,
                }
            row = RunResult(
                model=self.spec.model,
                task=self.identity.task,
                train_size=run.train_size,
                recipe=run.named_among(self.lengths),
                seed=run.seed,
                learning_rate=run.learning_rate,
                num_train_epochs=run.num_train_epochs,
                status="done" if result else "failed" if failure else "pending",
                reason=result.reason if result else failure.reason if failure else "",
                run=run.digest,
                **known,
            )
            rows.append(row)
        return rows

    def scores(self) -> list[dict[str, Any]]:
        """Every score of every run, with test scores if the sweep is complete. A test score is of the best epoch."""
        rows, test_scores = list[dict[str, Any]](), self._test_scores if self.is_complete else {}
        for result in (self.results[run.digest] for run in self.runs if run.digest in self.results):
            on_test = test_scores.get(result.digest, {})
            scores = [
                *result.scores,
                *(Score(split="test", epoch=result.best_epoch, metric=name, value=on_test[name]) for name in on_test),
            ]
            rows += [{"run": result.digest, **score.model_dump()} for score in scores]
        return rows

    @cached_property
    def data(self) -> DataRecord:
        """What the checks of the data counted, and how it was read.

        Raises:
            FrostlineError: ``data.json`` is missing or damaged.
        """
        path = self.out / DATA
        require_inside(path, self.out)
        try:
            return unseal_as(DataRecord, read_inside(path, self.out))
        except (OSError, ValueError) as error:
            raise FrostlineError(f"{path} is missing or damaged: run the sweep's command again to write it.") from error

    @property
    def scored_splits(self) -> list[str]:
        """The validation set, and others that runs were scored on (MNLI has a mismatched one)."""
        return ["validation", *sorted(path.stem for path in self.out.glob("validation_*.parquet"))]

    def predictions(self, run: str, split: str = "validation_best") -> NDArray[np.float32]:
        """Logits of a run on all rows of a split, ``[rows, C]``; NaN on rows that it was not scored on."""
        return self.store.predictions_on_all_rows(self._by_digest[run], self.folds, split)

    def split(self, name: str) -> Examples | None:
        """The scored examples of a split; None if there is no such split."""
        return read_rows(self.out, name)


NO_RUNS_YET = (
    "has no runs yet: a search first caches hidden states and fits probes. If none is at work, give its command again."
)


def folders_of(out: Path) -> list[Path]:
    """The folder of each model, if several were searched or swept into ``out``; otherwise ``out`` itself.

    Raises:
        FrostlineError: ``out`` holds sweeps of other data, or of one model, which have nothing in common.
    """
    found = [] if (out / "sweep.toml").exists() else [one.parent for one in sorted(out.glob("*/sweep.toml"))]
    others = [one for one in out.iterdir() if one.is_dir() and one not in found] if found else []
    # the others of a search may have no runs, or none yet
    if not (len(found) > 1 or (found and is_of_models(out)) or (others and all(map(has_no_runs_yet, others)))):
        return [out]
    read = [sweep for one in found if (sweep := read_sweep(Store(one))) is not None]
    data = {(one.identity.data, one.identity.metric, one.identity.folds) for one in read}
    if len(data) > 1 or len({(one.spec.model, one.spec.depth) for one in read}) < len(read):
        names = listed(one.name for one in found)
        raise FrostlineError(f"{out} holds sweeps that do not belong together ({names}): give the folder of one.")
    return found


def has_no_runs_yet(out: Path) -> bool:
    """Whether a folder holds nothing but what a search writes before its first run, or only folders of such searches."""
    if not out.is_dir():
        return False
    inside = [*out.iterdir()]
    return is_before_first_run(out) or all(one.is_dir() and is_before_first_run(one) for one in inside)


def _no_sweep(out: Path) -> str:
    """What to do about a folder without a sweep, which may be that of a study."""
    if has_no_runs_yet(out):
        return f"{out} {NO_RUNS_YET}"
    if of_study := sorted(out.glob("*/*/sweep.toml")):
        return (
            f"{out} holds the sweeps of a study: give the folder of one, such as {of_study[0].parent}. To train a study with "
            "several processes, start the study's command again, here or on another machine."
        )
    if (of_models := folders_of(out)) != [out]:
        return f"{out} holds the results of several models: give the folder of one, such as {of_models[0]}."
    return f"{out} holds no sweep (no sweep.toml): give the folder of a sweep or search."


def register(plan: "Plan") -> None:
    """Create the folder of a sweep, or add the grid of this sweep to an existing folder: its settings and scored examples."""
    out, data = plan.store.out, plan.data
    make_folder(out, inside=out)
    identity, origin = asdict(plan.identity), asdict(plan.origin)
    # Another process may have extended the grid since this sweep was prepared.
    with locked(out / ".sweep.lock", ELSEWHERE, inside=out):
        existing, spec = read_sweep(plan.store), plan.spec
        if existing is not None:
            spec = spec.extended(existing.spec, plan.identity.train_rows)
        plan.store.write_spec({**spec.model_dump(mode="json"), "identity": identity, "origin": origin})
    facts = {
        "columns": asdict(data.task.columns),
        "notes": plan.notes,
        "report": data.report.model_dump(),
        "max_length": plan.identity.max_length,
        "truncated": plan.truncated,
        "truncated_by_class": plan.truncated_by_class,
    }
    write_sealed(out / DATA, facts, inside=out)
    for name, examples in data.splits.items():
        if name != "train":
            write_rows(out, name, examples, data.folds if name == "validation" else None)
