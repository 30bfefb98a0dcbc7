"""The published studies: their protocols and sweeps, and the comparison with published numbers."""

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import frostline
from frostline import FrostlineError
from frostline.data.glue import glue_task
from frostline.report.answer.run_groups import load_groups, sweep_groups
from frostline.statistics.answer import SizeAnswer
from frostline.statistics.inference import summarize
from frostline.statistics.recipe import Recipe
from frostline.studies.comparison import compare, means_of_same_models, publication_of
from frostline.studies.protocol import FOLDER, Protocol, load_protocol, protocol_names, tune_values
from frostline.studies.sweeps import StudySweep, study_sweeps
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.settings import make_settings
from tiny import QUICK, sentences, write_sst2

NAMES = ("amazon-tutorial", "jeong2025", "lee2019", "lowdata2021", "transferred2018")


def test_a_wrong_name_gets_the_nearest_study() -> None:
    assert tuple(protocol_names()) == NAMES
    with pytest.raises(FrostlineError, match="did you mean 'lee2019'"):
        load_protocol("lee2020")
    with pytest.raises(FrostlineError, match="choose from amazon-tutorial"):
        load_protocol("x")


@pytest.mark.parametrize("name", NAMES)
def test_every_protocol_is_a_valid_sweep_and_short(name: str) -> None:
    protocol = load_protocol(name)
    for model in protocol.models:
        for task in protocol.tasks:
            settings = protocol.settings_of(model, task)
            rates = protocol.line_search or settings["learning_rate"]
            spec = make_settings(
                {**settings, "tune": tune_values(protocol.tune, 12), "learning_rate": rates, "out": "o"}
            )
            assert spec.model == protocol.model[model]["hub"] and spec.task == task
            assert spec.glue is None or glue_task(spec.glue).name == task
    lines = (FOLDER / f"{name}.toml").read_text().splitlines()
    assert len(lines) <= 70
    assert protocol.published and all(printed.table for printed in protocol.published)
    for printed in protocol.published:
        assert printed.model is None or printed.model in protocol.models
        assert printed.task is None or printed.task.removesuffix("-mm") in protocol.tasks


def test_hub_name_and_short_name_are_the_same_model() -> None:
    protocol = load_protocol("lee2019")
    assert protocol.short_name("FacebookAI/roberta-base") == protocol.short_name("roberta-base") == "roberta-base"
    assert protocol.settings_of("roberta-base", "CoLA")["num_train_epochs"] == 10
    assert protocol.settings_of("bert-base", "CoLA")["num_train_epochs"] == 3
    other = protocol.settings_of("some/folder", "CoLA")
    assert other["model"] == "some/folder" and other["num_train_epochs"] == 3


def recipes(*given: int | str) -> list[Recipe]:
    return [Recipe(one) for one in given]


def test_values_and_ways_relative_to_the_number_of_layers() -> None:
    assert tune_values("0..L/2, all", 12) == recipes(0, 1, 2, 3, 4, 5, 6, "full")
    assert tune_values("0..L:2", 12) == recipes(0, 2, 4, 6, 8, 10, 12)
    assert tune_values("0, L/6, L/3, 2L/3, 5L/6, L, all", 12) == recipes(0, 2, 4, 8, 10, 12, "full")
    assert tune_values("named, 3, 1", 12) == recipes(1, 3, "named")
    assert tune_values("full, last-2, head", 12) == recipes(0, 2, "full")
    names = (0, "lora-1", "llrd", "transferred-0", "transferred-1", "transferred-2", "full")
    assert tune_values("0, lora-1..L/2, llrd, transferred-0..L", 3) == recipes(*names)
    assert tune_values("bilstm, bilstm-4, probe", 3) == recipes("bilstm", "bilstm-4", "probe")
    with pytest.raises(FrostlineError, match="'lorra-2' is not a number of layers"):
        tune_values("lorra-2", 12)


@given(st.integers(1, 48))
def test_values_are_distinct_rising_and_within_the_model(layers: int) -> None:
    for name in NAMES:
        found = tune_values(load_protocol(name).tune, layers)
        numbers = [one.k for one in found if one.k is not None]
        assert numbers == sorted(set(numbers)) and all(0 <= k <= layers for k in numbers)
        assert found[: len(numbers)] == recipes(*numbers)


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
    large = study_sweeps(protocol, tmp_path, models=["bert-large"], tasks=["CoLA"])
    assert large[0].settings["tune"][-2:] == ["last 12", "full"] and "layers" not in large[0].settings
    with pytest.raises(FrostlineError, match="neither a folder nor available from the hub"):
        study_sweeps(protocol, tmp_path, models=["nowhere"])
    with pytest.raises(FrostlineError, match="but bert-base has 12"):  # before bert-large is trained
        study_sweeps(protocol, tmp_path, models=["bert-large", "bert-base"], settings={"tune": "20,full"})
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FrostlineError, match="does not show how many layers it has: use `frostline sweep`"):
        study_sweeps(protocol, tmp_path, models=[str(tmp_path)])


def rows_in(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Synthetic SST-2 in its original layout."""
    folder = tmp_path_factory.mktemp("films")
    write_sst2(folder, train=120, dev=60)
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
    own = {
        "model": tiny_bert,
        "data": tmp_path,
        "glue": "MNLI",
        "tune": "0,all",
        "seeds": 2,
        "out": out,
        "test": "none",
    }
    frostline.sweep(save_model=False, progress=Progress(), **own, **QUICK)
    matched, mismatched = sweep_groups(Folder(out))
    assert (matched.task, mismatched.task) == ("MNLI", "MNLI-mm")
    assert (matched.evidence.rows, mismatched.evidence.rows) == (30, 24)
    scores = [row for row in rows_in(out / "scores.csv") if row["split"] == "validation_mismatched"]
    values = {row["run"]: float(row["value"]) for row in scores if row["metric"] == "accuracy"}
    assert {run.run: run.validation_best for run in mismatched.runs} == values and len(values) == 4
    summary = mismatched.evidence.summary([run for run in mismatched.runs if run.recipe == "full"])
    assert summary.mean == pytest.approx(sum(values[r.run] for r in mismatched.runs if r.recipe == "full") / 2)


def test_the_comparison_uses_the_same_share_of_layers() -> None:
    """A model of the study is compared with its own numbers only, any other model at the same share of layers."""
    protocol = load_protocol("lowdata2021")

    def cell(k: int | str, mean: float) -> Any:
        number = 6 if isinstance(k, str) else k
        return SimpleNamespace(
            recipe=Recipe(k),
            tuned_layers=number,
            validation=summarize(np.array([mean] * 5)),
            learning_rates_tried=[5e-5],
            trainable_parameters=10,
        )

    size = SizeAnswer.__new__(SizeAnswer)
    size.train_size, size.cells = 100, [cell(0, 0.5), cell(5, 0.6), cell("full", 0.7)]

    def measured(model: str, layers: int, metric: str = "accuracy") -> Any:
        group = SimpleNamespace(model=model, task="sst2", layers=layers, sizes=[size], metric=metric)
        return SimpleNamespace(groups=[group], over_tasks=[])

    rows = [row for row in compare(protocol, measured("mini", 6)) if row.published.statistic == "mean"]
    assert [(row.published.tuned, row.tuned, row.published.value) for row in rows] == [
        ("full", "full", 0.866),
        ("last 10", "last 5", 0.873),
        ("head only", "head only", 0.514),
    ]
    assert rows[0].gap == pytest.approx(0.7 - 0.866) and means_of_same_models(rows) == []
    assert len(means_of_same_models(compare(protocol, measured("roberta-base", 12)))) == 2
    in_f1 = measured("roberta-base", 12, metric="f1")
    assert compare(protocol, in_f1) == [] and publication_of(protocol, in_f1).gaps == (
        "The F1 of sst2 is not compared, because accuracy was published."
    )
    size.train_size = 60
    assert publication_of(protocol, measured("roberta-base", 12)).gaps == (
        "sst2 with 60 examples is not compared: 50, 100, 200, 500, 1,000 were published."
    )
    size.train_size = 100
    assert len(means_of_same_models(compare(protocol, measured("roberta-base", 12, metric="acc_norm")))) == 2
