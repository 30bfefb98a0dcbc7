"""The sweeps of a study: their settings, the search of the learning rate, and continued studies."""

import csv
from pathlib import Path
from typing import Any

import pytest

import frostline
from frostline import FrostlineError, work
from frostline.report.answer.run_groups import load_groups, sweep_groups
from frostline.studies.protocol import Protocol, load_protocol
from frostline.studies.sweeps import StudySweep, study_sweeps
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder
from tiny import QUICK, sentences, write_csv


def test_a_sweep_for_every_model_and_task(tmp_path: Path, tiny_bert: Path) -> None:
    protocol = load_protocol("lee2019")
    sweeps = study_sweeps(
        protocol, tmp_path, models=["bert-base", str(tiny_bert)], tasks=["CoLA", "RTE"], data={"RTE": "here"}
    )
    assert [(sweep.out.relative_to(tmp_path).as_posix(), sweep.settings["tune"]) for sweep in sweeps] == [
        ("bert-base/CoLA", ["head only", *(f"last {k}" for k in range(1, 7)), "full"]),
        ("bert-base/RTE", ["head only", *(f"last {k}" for k in range(1, 7)), "full"]),
        (f"{tiny_bert.name}/CoLA", ["head only", "last 1", "full"]),
        (f"{tiny_bert.name}/RTE", ["head only", "last 1", "full"]),
    ]
    assert sweeps[1].settings["data"] == "here" and "data" not in sweeps[0].settings
    assert sweeps[0].line_search == (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)
    fixed = study_sweeps(
        protocol, tmp_path, models=["bert-base"], tasks=["CoLA"], settings={"learning_rate": "1e-4", "tune": "0"}
    )
    assert fixed[0].line_search == () and fixed[0].settings["tune"] == ["head only"]
    with pytest.raises(FrostlineError, match="MNLI is not a task of this study"):
        study_sweeps(protocol, tmp_path, tasks=["CoLA"], data={"MNLI": "here"})


def rows_in(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Synthetic SST-2 in its original layout."""
    folder = tmp_path_factory.mktemp("films")
    for name, rows_of, seed in (("train", 120, 0), ("dev", 60, 1)):
        rows = [
            {"sentence": r["text"], "label": str(int(r["label"] == "positive"))} for r in sentences(rows_of, seed=seed)
        ]
        write_csv(folder / f"{name}.csv", rows)
        (folder / f"{name}.tsv").write_text((folder / f"{name}.csv").read_text().replace(",", "\t"))
        (folder / f"{name}.csv").unlink()
    return folder


def small(protocol: Protocol, out: Path, model: Path, films: Path, **settings: Any) -> list[StudySweep]:
    quick = {name: value for name, value in QUICK.items() if name not in ("learning_rate", "head_learning_rate")}
    given = {**quick, "seeds": 2, "max_length": 32, **settings}
    return study_sweeps(protocol, out, models=[str(model)], tasks=["SST-2"], data={"SST-2": str(films)}, settings=given)


def test_every_k_uses_the_learning_rate_that_is_best_for_full(tmp_path: Path, tiny_bert: Path, films: Path) -> None:
    protocol = load_protocol("lee2019").model_copy(update={"line_search": (1e-4, 1e-3)})
    sweeps = small(protocol, tmp_path, tiny_bert, films, num_train_epochs=2)
    (sweep,) = sweeps
    answer = sweep.run(Progress())
    runs = rows_in(sweep.out / "results.csv")
    full = [run for run in runs if run["recipe"] == "full"]
    others = {run["learning_rate"] for run in runs if run["recipe"] != "full"}
    assert len({run["learning_rate"] for run in full}) == 2 and len(full) == 4 and len(others) == 1
    scores: dict[str, list[float]] = {}
    for run in full:
        scores.setdefault(run["learning_rate"], []).append(float(run["validation_best"]))
    used = {rate: [value for value in values if value > 0.9 * max(values)] for rate, values in scores.items()}
    best = max(sorted(used, key=float), key=lambda rate: sum(used[rate]) / len(used[rate]))  # as the study chooses
    assert others == {best} and {cell.learning_rate for cell in answer.sizes[0].cells[:-1]} == {float(best)}
    assert all(run["status"] == "done" for run in runs) and not (sweep.out / "model").exists()
    before = {path.name: path.stat().st_mtime_ns for path in (sweep.out / "runs").rglob("*.*")}
    sweep.run(Progress())
    assert {path.name: path.stat().st_mtime_ns for path in (sweep.out / "runs").rglob("*.*")} == before


def test_a_study_grows_by_further_sizes_and_seeds(tmp_path: Path, tiny_bert: Path, films: Path) -> None:
    protocol = load_protocol("lowdata2021")
    quick = {"num_train_epochs": 1, "evaluations_per_epoch": 2, "tune": "0,all"}
    for sizes, seeds in (("8,16", 2), ("64", 1)):
        (sweep,) = small(protocol, tmp_path, tiny_bert, films, train_size=sizes, seeds=seeds, **quick)
        sweep.run(Progress())
    (group,) = load_groups([tmp_path])
    counts = {n: sum(run.train_size == n for run in group.runs) for n in (8, 16, 64)}
    assert counts == {8: 4, 16: 4, 64: 2} and all(run.status == "done" for run in group.runs)
    assert group.evidence.rows == 60 and group.task == "SST-2"


def test_a_further_validation_set_is_a_separate_task(tmp_path: Path, tiny_bert: Path) -> None:
    """Every run scores MNLI's mismatched rows too, and they are reported next to the matched ones."""
    words = ("entailment", "neutral", "contradiction")
    for name, rows_of, seed in (("train", 60, 0), ("dev_matched", 30, 1), ("dev_mismatched", 24, 2)):
        lines = ["sentence1\tsentence2\tgold_label"]
        lines += [f"{row['text']}\tthe film {n}\t{words[n % 3]}" for n, row in enumerate(sentences(rows_of, seed=seed))]
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n")

    out = tmp_path / "out"
    frostline.sweep(
        save_model=False,
        model=tiny_bert,
        data=tmp_path,
        glue="MNLI",
        tune="0,all",
        seeds=2,
        out=out,
        test="none",
        progress=Progress(),
        **QUICK,
    )
    matched, mismatched = sweep_groups(Folder(out))
    assert (matched.task, mismatched.task) == ("MNLI", "MNLI-mm")
    assert (matched.evidence.rows, mismatched.evidence.rows) == (30, 24)
    scores = [row for row in rows_in(out / "scores.csv") if row["split"] == "validation_mismatched"]
    values = {row["run"]: float(row["value"]) for row in scores if row["metric"] == "accuracy"}
    assert {run.run: run.validation_best for run in mismatched.runs} == values and len(values) == 4
    summary = mismatched.evidence.summary([run for run in mismatched.runs if run.recipe == "full"])
    assert summary.mean == pytest.approx(sum(values[r.run] for r in mismatched.runs if r.recipe == "full") / 2)


def test_a_folder_with_the_sweeps_of_a_study_is_named(tmp_path: Path) -> None:
    (tmp_path / "s" / "model" / "SST-2").mkdir(parents=True)
    with pytest.raises(FrostlineError, match="s holds no sweep"):
        work(tmp_path / "s", progress=Progress())
    (tmp_path / "s" / "model" / "SST-2" / "sweep.toml").touch()
    with pytest.raises(
        FrostlineError, match=r"s holds the sweeps of a study: give .*model/SST-2. .*the study's command again"
    ):
        work(tmp_path / "s", progress=Progress())
