"""The published protocols: every file is whole, its numbers are those that were printed, and it runs as a sweep."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline import FrostlineError
from frostline.data.glue import glue_task
from frostline.report.answer.gather import gather, sweep_groups
from frostline.studies import Protocol, load_protocol, protocol_names
from frostline.studies.comparison import beside, summary_of
from frostline.studies.counts import configuration, count
from frostline.studies.execute import carry_out, parts
from frostline.studies.protocol import HERE, depths
from frostline.sweep.execution.progress import Progress
from frostline.sweep.specification import make_spec
from tiny import QUICK, sentences, write_csv

NAMES = ("amazon-tutorial", "jeong2025", "lee2019", "lowdata2021")


def test_there_are_four_and_a_wrong_name_names_the_nearest() -> None:
    assert tuple(protocol_names()) == NAMES
    with pytest.raises(FrostlineError, match="did you mean lee2019"):
        load_protocol("lee2020")
    with pytest.raises(FrostlineError, match="choose one of these"):
        load_protocol("x")


@pytest.mark.parametrize("name", NAMES)
def test_every_protocol_is_a_sweep_and_fits_a_screen(name: str) -> None:
    protocol = load_protocol(name)
    for model in protocol.models:
        for task in protocol.tasks:
            settings = protocol.settings_of(model, task)
            rates = protocol.line_search or settings["learning_rate"]
            spec = make_spec({**settings, "tune": depths(protocol.tune, 12), "learning_rate": rates, "out": "o"})
            assert spec.model == protocol.model[model]["hub"] and spec.task == task
            assert spec.glue is None or glue_task(spec.glue).name == task
    lines = (HERE / f"{name}.toml").read_text().splitlines()
    assert len(lines) <= 70
    assert protocol.printed and all(printed.table for printed in protocol.printed)
    for printed in protocol.printed:
        assert printed.model is None or printed.model in protocol.models
        assert printed.task is None or printed.task.removesuffix("-mm") in protocol.tasks


def test_the_hub_name_and_ours_are_one_model() -> None:
    protocol = load_protocol("lee2019")
    assert protocol.short_name("FacebookAI/roberta-base") == protocol.short_name("roberta-base") == "roberta-base"
    assert protocol.settings_of("roberta-base", "CoLA")["num_train_epochs"] == 10
    assert protocol.settings_of("bert-base", "CoLA")["num_train_epochs"] == 3
    other = protocol.settings_of("some/folder", "CoLA")
    assert other["model"] == "some/folder" and other["num_train_epochs"] == 3


def test_depths_that_speak_of_the_number_of_layers() -> None:
    assert depths("0..L/2, all", 12) == [0, 1, 2, 3, 4, 5, 6, "all"]
    assert depths("0..L:2", 12) == [0, 2, 4, 6, 8, 10, 12]
    assert depths("0, L/6, L/3, 2L/3, 5L/6, L, all", 12) == [0, 2, 4, 8, 10, 12, "all"]
    assert depths("named, 3, 1", 12) == [1, 3, "named"]


@given(st.integers(1, 48))
def test_depths_are_distinct_rise_and_stay_within_the_model(layers: int) -> None:
    for name in NAMES:
        found = depths(load_protocol(name).tune, layers)
        numbers = [k for k in found if isinstance(k, int)]
        assert numbers == sorted(set(numbers)) and all(0 <= k <= layers for k in numbers)
        assert found[: len(numbers)] == numbers


def test_parameters_come_out_as_printed() -> None:
    """Of Jeong's Table 1 to the last one, from the configuration that the study carries."""
    protocol = load_protocol("jeong2025")
    counts = count(configuration(protocol, "klue/bert-base"), depths(protocol.tune, 12), tune_pooler=False)
    printed = {p.tuned: p.value for p in protocol.printed if p.statistic == "trainable_parameters"}
    assert dict(counts.trainable) == printed and len(printed) == 7


def test_the_parameters_of_lee_et_al() -> None:
    """Their Table 1, which is printed in millions."""
    protocol = load_protocol("lee2019")
    for model in protocol.models:
        counts = count(configuration(protocol, model), [0])
        printed = {p.statistic: p.value for p in protocol.printed if p.table == "Table 1" and p.model == model}
        output = counts.places.get("pooler", 0) + counts.places["head"]
        assert counts.places["embeddings"] == pytest.approx(printed["parameters_embedding"], abs=0.6e6)
        assert counts.places["layer 0"] == pytest.approx(printed["parameters_per_layer"], abs=0.6e6)
        assert output == pytest.approx(printed["parameters_output"], abs=0.06e6)
        assert counts.total == pytest.approx(printed["parameters_total"], abs=1.2e6)


def test_the_configuration_of_a_folder_or_none(tiny_bert: Path) -> None:
    protocol = load_protocol("jeong2025")
    assert configuration(protocol, str(tiny_bert)).num_hidden_layers == 3
    with pytest.raises(FrostlineError, match="neither a folder here nor to be had from the hub"):
        configuration(protocol, "nowhere")


def test_parts_are_every_model_on_every_task(tmp_path: Path, tiny_bert: Path) -> None:
    protocol = load_protocol("lee2019")
    made = parts(protocol, tmp_path, models=["bert-base", str(tiny_bert)], tasks=["CoLA", "RTE"], data={"RTE": "here"})
    assert [(part.out.relative_to(tmp_path).as_posix(), part.settings["tune"]) for part in made] == [
        ("bert-base/CoLA", [0, 1, 2, 3, 4, 5, 6, "all"]),
        ("bert-base/RTE", [0, 1, 2, 3, 4, 5, 6, "all"]),
        (f"{tiny_bert.name}/CoLA", [0, 1, "all"]),
        (f"{tiny_bert.name}/RTE", [0, 1, "all"]),
    ]
    assert made[1].settings["data"] == "here" and "data" not in made[0].settings
    assert made[0].line_search == (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)
    fixed = parts(
        protocol, tmp_path, models=["bert-base"], tasks=["CoLA"], settings={"learning_rate": "1e-4", "tune": "0"}
    )
    assert fixed[0].line_search == () and fixed[0].settings["tune"] == [0]
    with pytest.raises(FrostlineError, match="MNLI is no task of this study"):
        parts(protocol, tmp_path, tasks=["CoLA"], data={"MNLI": "here"})


def rows_in(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SST-2 in its original layout, of made-up sentences."""
    folder = tmp_path_factory.mktemp("films")
    for name, rows_of, seed in (("train", 120, 0), ("dev", 60, 1)):
        rows = [
            {"sentence": r["text"], "label": str(int(r["label"] == "positive"))} for r in sentences(rows_of, seed=seed)
        ]
        write_csv(folder / f"{name}.csv", rows)
        (folder / f"{name}.tsv").write_text((folder / f"{name}.csv").read_text().replace(",", "\t"))
        (folder / f"{name}.csv").unlink()
    return folder


def small(protocol: Protocol, out: Path, model: Path, films: Path, **settings: Any) -> list[Any]:
    quick = {name: value for name, value in QUICK.items() if name not in ("learning_rate", "head_learning_rate")}
    given = {**quick, "seeds": 2, "max_length": 32, **settings}
    return parts(protocol, out, models=[str(model)], tasks=["SST-2"], data={"SST-2": str(films)}, settings=given)


def test_the_line_search_is_made_on_full_and_its_rate_is_every_ks(tmp_path: Path, tiny_bert: Path, films: Path) -> None:
    made = small(load_protocol("lee2019"), tmp_path, tiny_bert, films)
    ((part, answer),) = carry_out(made, Progress())
    runs = rows_in(part.out / "results.csv")
    full = [run for run in runs if run["trainable"] == "all"]
    others = {run["learning_rate"] for run in runs if run["trainable"] != "all"}
    assert len({run["learning_rate"] for run in full}) == 5 and len(full) == 10 and len(others) == 1
    scores: dict[str, list[float]] = {}
    for run in full:
        scores.setdefault(run["learning_rate"], []).append(float(run["validation_best"]))
    kept = {rate: [value for value in values if value > 0.9 * max(values)] for rate, values in scores.items()}
    best = max(sorted(kept, key=float), key=lambda rate: sum(kept[rate]) / len(kept[rate]))  # as the study chooses
    assert others == {best} and {cell["learning_rate"] for cell in answer["sizes"][0]["cells"][:-1]} == {float(best)}
    assert all(run["status"] == "done" for run in runs) and not (part.out / "model").exists()
    before = {path.name: path.stat().st_mtime_ns for path in (part.out / "runs").iterdir()}
    list(carry_out(made, Progress()))
    assert {path.name: path.stat().st_mtime_ns for path in (part.out / "runs").iterdir()} == before


def test_more_seeds_for_small_sizes_are_two_calls(tmp_path: Path, tiny_bert: Path, films: Path) -> None:
    protocol = load_protocol("lowdata2021")
    quick = {"num_train_epochs": 1, "evaluations_per_epoch": 2, "tune": "0,1,all"}
    for sizes, seeds in (("8,16", 3), ("64", 2)):
        list(carry_out(small(protocol, tmp_path, tiny_bert, films, train_size=sizes, seeds=seeds, **quick), Progress()))
    (group,) = gather([tmp_path])
    counts = {n: sum(run["train_size"] == n for run in group.runs) for n in (8, 16, 64)}
    assert counts == {8: 9, 16: 9, 64: 6} and all(run["status"] == "done" for run in group.runs)
    assert group.evidence.rows == 60 and group.task == "SST-2"


def test_a_further_validation_set_is_a_task_of_its_own(tmp_path: Path, tiny_bert: Path) -> None:
    """MNLI's mismatched rows are scored by every run, and stand beside the matched ones."""
    words = ("entailment", "neutral", "contradiction")
    for name, rows_of, seed in (("train", 60, 0), ("dev_matched", 30, 1), ("dev_mismatched", 24, 2)):
        lines = ["sentence1\tsentence2\tgold_label"]
        lines += [f"{row['text']}\tthe film {n}\t{words[n % 3]}" for n, row in enumerate(sentences(rows_of, seed=seed))]
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    from frostline import Sweep

    out = tmp_path / "out"
    Sweep(
        model=tiny_bert,
        data=tmp_path,
        glue="MNLI",
        tune="0,all",
        seeds=2,
        out=out,
        test="none",
        progress=Progress(),
        **QUICK,
    ).run(save_model=False)
    matched, mismatched = sweep_groups(out)
    assert (matched.task, mismatched.task) == ("MNLI", "MNLI-mm")
    assert (matched.evidence.rows, mismatched.evidence.rows) == (30, 24)
    scores = [row for row in rows_in(out / "scores.csv") if row["split"] == "validation_mismatched"]
    values = {row["run"]: float(row["value"]) for row in scores if row["metric"] == "accuracy"}
    assert {run["run"]: run["validation_best"] for run in mismatched.runs} == values and len(values) == 4
    summary = mismatched.evidence.summary([run for run in mismatched.runs if run["trainable"] == "all"])
    assert summary["mean"] == pytest.approx(
        sum(values[r["run"]] for r in mismatched.runs if r["trainable"] == "all") / 2
    )


def test_beside_finds_the_same_share_of_layers() -> None:
    """A model that is not the study's is compared at the same depth, its own with its own numbers only."""
    protocol = load_protocol("lowdata2021")

    def cell(k: int | str, mean: float) -> dict[str, Any]:
        scores = {"n": 5, "mean": mean, "median": mean, "std": 0.01, "min": mean, "max": mean}
        number = 6 if isinstance(k, str) else k
        return {
            **{"trainable": k if isinstance(k, str) else f"last {k}", "tuned_layers": number, "validation": scores},
            **{"learning_rates_tried": [5e-5], "trainable_parameters": 10},
        }

    size = {"train_size": 100, "cells": [cell(0, 0.5), cell(5, 0.6), cell("all", 0.7)]}
    group = {"model": "mini", "task": "sst2", "layers": 6, "sizes": [size]}
    analysis = {"models": [{"model": "mini", "layers": 6, "tasks": None}], "groups": [group], "head_only": None}
    rows = [row for row in beside(protocol, analysis) if row["statistic"] == "mean"]
    assert [(row["tuned"], row["measured_tuned"], row["value"]) for row in rows] == [
        ("all", "all", 0.866),
        (10, "last 5", 0.873),
        (0, "last 0", 0.514),
    ]
    assert rows[0]["gap"] == pytest.approx(0.7 - 0.866) and summary_of(rows) is None
    own = json.loads(json.dumps(analysis).replace("mini", "roberta-base").replace('"layers": 6', '"layers": 12'))
    assert summary_of(beside(protocol, own))["cells"] == 2  # type: ignore[index]


def test_gather_refuses_what_it_cannot_tell_apart(tmp_path: Path) -> None:
    rows = [{"k": "0", "seed": "0", "value": "0.5"}]
    for name in ("a", "b"):
        write_csv(tmp_path / f"{name}.csv", rows)
    assert [group.task for group in gather([tmp_path / "a.csv", tmp_path / "b.csv"])] == ["a", "b"]
    with pytest.raises(FrostlineError, match="stands in two of the sources"):
        gather([tmp_path / "a.csv", tmp_path / "a.csv"])
    with pytest.raises(FrostlineError, match="there is no sweep in it"):
        gather([tmp_path])


def test_the_table_of_few_examples_is_of_the_runs_beside_it() -> None:
    docs = Path(__file__).parents[2] / "docs"
    runs, heads = (pd.read_csv(docs / f"lowdata2021-minilm{name}.csv") for name in ("", "-head"))
    rows = re.findall(r"^\| (SST-2|CoLA), ([\d,]+) \|(.*)\|$", (docs / "studies.md").read_text(encoding="utf-8"), re.M)
    assert len(rows) == 10

    def said(some: pd.DataFrame, task: str, size: int) -> str:
        scores = some[(some["task"] == task) & (some["train_size"] == size)]["validation_best"]
        assert len(scores) == (5 if size <= 200 else 3)
        return f"{scores.mean():.3f} ({scores.std():.3f})".replace("0.", ".")

    for task, size, cells in rows:
        of_k = [runs[runs["trainable"] == k] for k in ("last 0", "last 1", "last 2", "last 4", "last 6", "all")]
        wanted = [said(some, task, int(size.replace(",", ""))) for some in (heads, *of_k)]
        assert [cell.strip() for cell in cells.split("|")] == wanted, (task, size)


def test_the_table_of_lee_2019_with_minilm_is_of_the_runs_beside_it() -> None:
    docs = Path(__file__).parents[2] / "docs"
    runs = pd.read_csv(docs / "lee2019-minilm.csv")
    text = (docs / "studies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z0-9a-z-]+), [^,|]+, (\de-\d) \|(.*)\|$", text, re.M)
    assert {task for task, *_ in rows} == set(runs["task"]) and len(rows) == 6
    for task, rate, cells in rows:
        at_rate = runs[(runs["task"] == task) & (runs["learning_rate"] == float(rate))]
        for k, said in zip(("last 0", "last 1", "last 2", "last 3", "all"), cells.split("|"), strict=True):
            scores = at_rate[at_rate["trainable"] == k]["validation_best"]
            assert len(scores) == 3
            assert said.strip() == f"{scores.mean():.3f} ({scores.std():.3f})".replace("0.", "."), (task, k)
    assert f"{(runs['outcome'] == 'degenerate').sum()} of the {len(runs)} runs predict the same" in text
