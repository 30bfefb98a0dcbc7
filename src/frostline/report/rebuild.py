"""The answer, the tables and the page of a sweep, rebuilt from the results in its folder."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from frostline import FrostlineError
from frostline.report.answer.answer import add_test, make_answer
from frostline.report.answer.sentence import NO_SEARCH, Searched
from frostline.statistics.choices import Choices
from frostline.statistics.evidence import Labelled
from frostline.statistics.outcomes import ANSWERS
from frostline.sweep.results.folder import Folder
from frostline.sweep.results.search_record import PROBE, chosen_rates, has_probe, read_search
from frostline.sweep.results.store import with_nulls, write_facts
from frostline.sweep.results.tables import write_tables
from frostline.sweep.specification import SweepSpec


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


def write_report(out: str | Path) -> Path:
    """Rebuild tables, answer and report.html of a sweep's folder; gives the report's path."""
    rebuild(out)
    from frostline.report.pages.sweep import write_page

    return write_page(Path(out))


def choices_of(spec: SweepSpec) -> Choices:
    """What a sweep's answer is decided by."""
    if spec.margin is None:
        return Choices(target=spec.target)
    return Choices(target=spec.target, margin=spec.margin, by_margin=True)


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


def _labelled(folder: Folder, split: str) -> Labelled | None:
    examples = folder.split(split)
    if examples is None:
        return None
    identity = folder.identity
    return Labelled(examples.targets, identity.problem_type, identity.labels, identity.metric)


def _data_facts(out: Path) -> dict[str, Any]:
    path = out / "data.json"
    try:
        facts: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FrostlineError(
            f"{path} is missing or damaged: run the sweep's command again, which writes it anew."
        ) from error
    return facts
