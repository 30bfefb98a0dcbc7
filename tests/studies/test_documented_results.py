"""The documented tables of our runs of the studies match the stored results."""

import json
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def table_rows(caption: str) -> list[list[str]]:
    """The rows of the documented table whose caption begins so."""
    tables = json.loads((RESULTS / "studies.json").read_text(encoding="utf-8"))["tables"]
    (table,) = [table for table in tables if table["caption"].startswith(caption)]
    return table["rows"]  # type: ignore[no-any-return]


def mean_and_deviation(scores: pd.Series) -> str:
    return f"{scores.mean():.3f} ({scores.std():.3f})".replace("0.", ".")


def test_the_low_data_table_matches_its_runs() -> None:
    runs, heads = (pd.read_csv(RESULTS / f"lowdata2021-minilm{name}.csv") for name in ("", "-head"))
    rows = table_rows("**Few examples (lowdata2021) with MiniLM**")
    assert len(rows) == 10
    for name, *cells in rows:
        task, size = name.split(", ")
        train_size = int(size.replace(",", ""))
        of_k = [runs[runs["recipe"] == k] for k in ("head only", "last 1", "last 2", "last 4", "last 6", "full")]
        for some, cell in zip((heads, *of_k), cells, strict=True):
            scores = some[(some["task"] == task) & (some["train_size"] == train_size)]["validation_best"]
            assert len(scores) == (5 if train_size <= 200 else 3)
            assert cell == mean_and_deviation(scores), name


def test_the_table_of_lee_et_al_matches_its_runs() -> None:
    runs = pd.read_csv(RESULTS / "lee2019-minilm.csv")
    rows = table_rows("**Lee et al. with MiniLM**")
    assert {name.split(", ")[0] for name, *_ in rows} == set(runs["task"]) and len(rows) == 6
    for name, *cells in rows:
        task, _, rate = name.split(", ")
        at_rate = runs[(runs["task"] == task) & (runs["learning_rate"] == float(rate))]
        for k, cell in zip(("head only", "last 1", "last 2", "last 3", "full"), cells, strict=True):
            scores = at_rate[at_rate["recipe"] == k]["validation_best"]
            assert len(scores) == 3 and cell == mean_and_deviation(scores), (name, k)
    prose = (ROOT / "docs" / "benchmarks" / "studies.md").read_text(encoding="utf-8")
    assert f"{(runs['outcome'] == 'degenerate').sum()} of the {len(runs)} runs predict the same" in prose
