"""What Python users have: :class:`Sweep`, and the same steps by themselves."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from frostline import FrostlineError
from frostline.fast.memory import settled_objects
from frostline.report.answer.answer import add_test, make_answer
from frostline.report.answer.sentence import NO_SEARCH, Searched
from frostline.statistics.choices import Choices
from frostline.statistics.evidence import Labelled
from frostline.statistics.outcomes import ANSWERS
from frostline.sweep.execution.best_weights import BestWeights
from frostline.sweep.execution.execute import cut_check, execute, make_ready
from frostline.sweep.execution.progress import Progress, suitable_progress
from frostline.sweep.forecast.prediction import foresee
from frostline.sweep.forecast.record import complete, record
from frostline.sweep.plan import Plan, expand, read_settings
from frostline.sweep.prepare import Prepared, prepare
from frostline.sweep.results.folder import Folder
from frostline.sweep.results.rows import write_rows
from frostline.sweep.results.search_record import PROBE, chosen_rates, has_probe, read_search, want_again
from frostline.sweep.results.store import make_folder, with_nulls, write_facts
from frostline.sweep.results.tables import frame, write_tables
from frostline.sweep.specification import SweepSpec, make_spec
from frostline.training.run import restore, run
from frostline.training.specification import RunSpec

if TYPE_CHECKING:
    import pandas as pd

SOURCES = ("train", "validation", "test")


class Sweep:
    """A grid of runs: tuned layers x train size x seed x learning rate, over one model and one table of texts.

    Takes the settings of :class:`frostline.sweep.specification.SweepSpec` as keywords; ``train``, ``validation`` and
    ``test`` may also be a ``datasets.Dataset``, a pandas ``DataFrame`` or a ``pyarrow.Table``.

    Raises:
        FrostlineError: a setting is unknown or impossible.
    """

    def __init__(self, *, progress: Progress | None = None, **settings: Any) -> None:
        self.sources = {
            name: settings.pop(name)
            for name in SOURCES
            if name in settings and not isinstance(settings[name], str | os.PathLike | None)
        }
        named = {
            name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in settings.items()
        }
        self.spec: SweepSpec = make_spec(named)
        self._progress = progress
        self._prepared: Prepared | None = None

    @property
    def out(self) -> Path:
        """The sweep's folder."""
        return Path(self.spec.out).expanduser()

    def plan(self, *, timed: bool = True) -> Plan:
        """What will run, what is shared, and what it takes; nothing is written.

        ``timed``: a few steps of it are timed, in about ten seconds, for the forecast of seconds and memory.

        Raises:
            FrostlineError: as :meth:`run` would, before it runs anything.
        """
        with self._shown() as progress:
            prepared = self._prepare(progress)
            if timed:
                with settled_objects():
                    self._foresee(prepared, progress, plain=True)
            return prepared.plan

    def run(self, *, save_model: bool = True) -> dict[str, Any]:
        """Run what has no result yet, and give the answer; tables, answer, report and model are in ``out``.

        ``save_model``: save the model of the recommended run; without it there is none.

        Raises:
            FrostlineError: whatever a user can put right: data, model, settings, a folder that holds another sweep.
        """
        with self._shown() as progress:
            prepared = self._prepare(progress)
            with settled_objects():
                return self._run(prepared, progress, save_model=save_model)

    def table(self) -> "pd.DataFrame":
        """One row a run, as in results.csv.

        Raises:
            FrostlineError: ``out`` holds no sweep, here as in what follows.
        """
        folder = Folder(self.out)
        return frame(folder.rows())

    def answer(self) -> dict[str, Any]:
        """The answer, rebuilt from the results in ``out``."""
        return rebuild(self.out)

    def plot(self) -> Any:
        """The validation curve, as a matplotlib figure."""
        from frostline.report.figures.curves import validation_curve

        answer = self.answer()
        return validation_curve(answer["sizes"][0], metric=answer["metric"], chance=answer["chance"])

    def _run(self, prepared: Prepared, progress: Progress, *, save_model: bool) -> dict[str, Any]:
        for note in prepared.plan.notes:
            progress.note(note)
        asked = self._asked(prepared)
        missing = sum(not prepared.store.has(spec.digest) for spec in asked)
        self._foresee(prepared, progress)
        write_folder(prepared)
        want_again(self.out, {spec.digest for spec in asked})
        forecast = prepared.plan.forecast
        call = record(self.out, forecast) if missing and forecast else None
        begun = perf_counter()
        execute(prepared, asked, progress, weights=best_weights(self.out) if save_model else None)
        if call is not None:
            complete(self.out, call, {"seconds": perf_counter() - begun, "pass_seconds": prepared.bench.pass_seconds})
        return finish(prepared, progress, save_model=save_model)

    def _prepare(self, progress: Progress) -> Prepared:
        if self._prepared is None or self._prepared.grown():
            self._prepared = prepare(self.spec, self.sources, progress)
        return self._prepared

    def _foresee(self, prepared: Prepared, progress: Progress, *, plain: bool = False) -> None:
        """Have the cuts proven and the plan's forecast made, where something is to be run."""
        asked = self._asked(prepared)
        missing = sum(not prepared.store.has(spec.digest) for spec in asked)
        if missing:
            progress.begin("checking that the model can be cut")
            cut_check(prepared)
        if prepared.plan.forecast is None or prepared.plan.forecast.runs != missing:
            progress.begin("timing a few steps")
            prepared.plan = replace(prepared.plan, forecast=foresee(prepared, asked, plain=plain))

    def _asked(self, prepared: Prepared) -> list[RunSpec]:
        """The runs of this very call; the folder may hold a larger grid."""
        return expand(self.spec, prepared.identity)

    @contextmanager
    def _shown(self) -> Iterator[Progress]:
        progress = self._progress or suitable_progress()
        try:
            yield progress
        finally:
            progress.close()


def _searched(search: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Searched:
    """What a search has to say of the answer about these runs, of which some may have come since."""
    there = {row["trainable"] for row in rows}
    skipped = [k for k in search["skipped"] if k not in there]
    known = {name: search[name] for name in ("train_size", "named", "looks", "operations", "awaits")}
    return Searched(**known, skipped=skipped, instead=_instead(search, rows))


def _instead(search: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> str | None:
    """The sentence of a search that ended without any k to recommend; None where there is one, and where what was trained
    since speaks for itself."""
    if search["by_probe"] and all(row["tuned_layers"] == 0 for row in rows):
        return f"Train no layer. {search['probes']['sentence']}"
    if search["lacks"] and not any(row["trainable"] == search["lacks"] and row["outcome"] in ANSWERS for row in rows):
        return str(search["why"])
    return None


def finish(prepared: Prepared, progress: Progress, *, save_model: bool = True) -> dict[str, Any]:
    """After the runs: tables, answer, model and report; gives the answer."""
    out = prepared.store.out
    answer = rebuild(out)
    if save_model:
        progress.begin("saving the model")
        save_recommended(prepared, answer, progress)
    progress.begin("writing the report")
    _report(out)
    return answer


def rebuild(out: str | Path) -> dict[str, Any]:
    """Rebuild results.csv, results.parquet, scores.csv and answer.json from the runs; the answer is given back."""
    folder = Folder(out)
    rows = folder.rows()
    validation = _labelled(folder, "validation")
    if validation is None:
        raise FrostlineError(f"{out} holds no validation.parquet: run the sweep's command again.")
    store, search = folder.store, read_search(folder.out)
    searched = [row for row in rows if search and row["train_size"] == search["train_size"]]
    answer = make_answer(
        rows,
        validation,
        folder.predictions,
        replace(choices_of(folder.spec), rates=chosen_rates(search, searched) if search else {}),
        layers=folder.identity.layers,
        searched=_searched(search, searched) if search else NO_SEARCH,
    )
    if search:
        answer["sizes"][0]["sentence"] += _better_probe(folder.out, search["probes"], answer)
        answer["sentence"] = answer["sizes"][0]["sentence"]
    answer["search"] = search
    test = _labelled(folder, "test") if folder.stands else None
    if test is not None:
        done = [row for row in rows if row["test"] is not None]

        def logits(digest: str) -> Any:
            scored = store.test(digest)
            assert scored is not None
            return scored[1]

        answer = add_test(answer, done, test, logits)
    answer["tested"] = test is not None
    answer["data"] = _data_facts(folder.out)
    answer["notes"], answer["columns"] = answer["data"]["notes"], answer["data"].get("columns")
    write_tables(folder.out, rows, folder.scores())
    known: dict[str, Any] = with_nulls(answer)
    write_facts(folder.out / "answer.json", known)
    return known


def _better_probe(out: Path, facts: Mapping[str, Any] | None, answer: Mapping[str, Any]) -> str:
    """That the probe which a search has kept reaches more than what is recommended; nothing where that is not so."""
    size = answer["sizes"][0]
    if facts is None or size["recommended"] is None or not has_probe(out):
        return ""
    named = next(cell for cell in size["cells"] if cell["trainable"] == size["recommended"]["trainable"])
    best, mean = facts["best"], named["validation"]["mean"]
    if len(answer["sizes"]) > 1 or best["score"] is None or not best["score"] > mean:
        return ""
    return (
        f" A probe on frozen features reaches more, {answer['metric']} {best['score']:.3f} (95 % interval {best['low']:.3f} to "
        f"{best['high']:.3f}), without training a layer: it is in the folder {PROBE} beside the model, for `frostline predict`."
    )


def choices_of(spec: SweepSpec) -> Choices:
    """What a sweep's answer is decided by."""
    if spec.margin is None:
        return Choices(target=spec.target)
    return Choices(target=spec.target, margin=spec.margin, by_margin=True)


def _data_facts(out: Path) -> dict[str, Any]:
    path = out / "data.json"
    try:
        facts: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FrostlineError(
            f"{path} is missing or damaged: run the sweep's command again, which writes it anew."
        ) from error
    return facts


def _labelled(folder: Folder, split: str) -> Labelled | None:
    examples = folder.split(split)
    if examples is None:
        return None
    identity = folder.identity
    return Labelled(examples.targets, identity.problem_type, identity.labels, identity.metric)


def write_report(out: str | Path) -> Path:
    """Rebuild tables, answer and report.html of a sweep's folder; gives the report's path."""
    rebuild(out)
    return _report(Path(out))


def _report(out: Path) -> Path:
    from frostline.report.pages.sweep import write_page

    return write_page(out)


def write_folder(prepared: Prepared) -> None:
    """Make the sweep's folder, or add this grid to the one that is there."""
    out = prepared.store.out
    make_folder(out)
    identity = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(prepared.identity).items()}
    with FileLock(out / ".sweep.lock"):  # another process may have added to the grid since this one was made ready
        there = prepared.store.read_spec()
        spec = prepared.spec
        if there is not None:
            spec = spec.extended(read_settings(there, out), prepared.identity.train_rows)
        prepared.store.write_spec({**spec.model_dump(mode="json"), "identity": identity})
    facts = {
        "columns": asdict(prepared.data.task.columns),
        "notes": prepared.plan.notes,
        "report": prepared.data.report.as_dict(),
        "max_length": prepared.plan.max_length,
        "truncated": prepared.plan.truncated,
        "truncated_by_class": prepared.plan.truncated_by_class,
    }
    write_facts(out / "data.json", facts)
    write_rows(out, "validation", prepared.data.validation, prepared.data.folds)
    for name, examples in prepared.data.others.items():
        write_rows(out, name, examples)
    if prepared.data.test is not None:
        write_rows(out, "test", prepared.data.test)


def save_recommended(prepared: Prepared, answer: Mapping[str, Any], progress: Progress) -> Path | None:
    """Save the model of the recommended run as a Hugging Face folder.

    What the best runs have learned was kept while the sweep ran; where that is not so, the run is trained once more.
    Either way its predictions are compared with those in its result, and the model's card says how far they are.
    """
    from frostline.report.card import Saved, save_model

    weights = best_weights(prepared.store.out)
    recommended = answer["sizes"][0]["recommended"]
    if prepared.grown():
        progress.note("Another call has added runs to this folder meanwhile: the same command again saves the model.")
        return None
    if recommended is None:
        weights.drop()
        return None
    target = prepared.store.out / "model"
    if not _is_saved(target, recommended["run"], answer["sentence"]):
        spec = next(spec for spec in Folder(prepared.store.out).runs if spec.digest == recommended["run"])
        make_ready(prepared, [spec], progress)
        learned = weights.of(spec.digest)
        if learned is None:
            logits = run(spec, prepared.bench).logits["validation_best"]
        else:
            logits = restore(spec, prepared.bench, learned)
        gap = float(abs(prepared.store.predictions(spec.digest)["validation_best"] - logits).max())
        saved = Saved(gap, trained_again=learned is None)
        save_model(target, prepared.pretrained, prepared.identity, answer, spec, saved)
    weights.drop()
    return target


def best_weights(out: Path) -> BestWeights:
    """Where a sweep keeps what the best runs have learned."""
    return BestWeights(out / "weights")


def _is_saved(folder: Path, run: str, sentence: str) -> bool:
    """Whether the folder holds the model of this run, with a card that says the same."""
    try:
        facts = json.loads((folder / "frostline.json").read_bytes())
    except (OSError, ValueError):
        return False
    return (facts["run"], facts["sentence"]) == (run, sentence)
