"""`frostline analyze`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tiny import Frostline


def test_analyze_answers_from_a_table(frostline: Frostline, desk: Path) -> None:
    got = frostline("analyze", "runs.csv", "--columns", "score=acc", "--chance", "t=0.5", "--out", "a")
    assert got.code == 0 and got.err == ""
    told = " ".join(got.out.split())
    begin = "model, t: Tune the last 2 layers. Expect accuracy 0.81"
    assert begin in told
    assert "reach 95 % of the last 4 layers' gain over the majority-class baseline" in told
    analysis = json.loads((desk / "a" / "analysis.json").read_text())
    assert analysis["groups"][0]["sizes"][0]["cells"][2]["validation"]["mean"] == pytest.approx(0.815)
    names = {path.name for path in (desk / "a" / "tables").iterdir()}
    assert {"answers.csv", "answers.tex", "scores_model_t.csv"} <= names
    assert {"validation_curve_model_t.svg", "validation_curve_model_t.pdf"} <= {
        p.name for p in (desk / "a" / "figures").iterdir()
    }
    page = (desk / "a" / "report.html").read_text()
    assert "runs.csv" in page and "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")


def test_files_of_an_older_analysis_are_removed(frostline: Frostline, desk: Path) -> None:
    for name in ("m-1.5", "n"):
        assert frostline("analyze", "runs.csv", "--set", f"model={name}", "--out", "a").code == 0
    names = {path.name for folder in ("tables", "figures") for path in (desk / "a" / folder).iterdir()}
    assert {"scores_n_t.csv", "validation_curve_n_t.svg"} <= names and not [one for one in names if "m-1.5" in one]


def test_without_a_baseline_shares_are_of_the_score(frostline: Frostline, desk: Path) -> None:
    got = frostline("analyze", "runs.csv", "--out", "a")
    assert got.code == 0 and "to reach 95 % of the last 4 layers' score (95 %" in " ".join(got.out.split())
    page = (desk / "a" / "report.html").read_text()
    assert "The baseline of t is unknown: shares there are of full fine-tuning’s score." in page


def test_many_tasks_are_one_table(frostline: Frostline, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are down and models across. On a narrow terminal, each has a line."""
    rows = [
        f"{model},{task},{k},{seed},{0.6 + 0.1 * (2 if k == 'full' else min(k, 2)) + 0.01 * seed:.3f}"
        for model in ("bert", "roberta", "a-third-model")
        for task in ("t", "u")
        for k in (0, 1, 2, 4, "full")
        for seed in range(4)
        if (model, task) != ("roberta", "u")
    ]
    (desk / "many.csv").write_text("\n".join(["model,task,k,seed,acc", *rows]) + "\n")
    words = ("analyze", "many.csv", "--columns", "score=acc", "--out", "a")
    for columns in ("120", "60"):
        monkeypatch.setenv("COLUMNS", columns)
        got = frostline(*words)
        lines, told = got.out.splitlines(), " ".join(got.out.split())
        assert got.code == 0 and max(map(len, lines[:6])) <= int(columns)
        if columns == "120":
            assert lines[0].split() == ["task", "bert", "roberta", "a-third-model"]
            assert lines[1].startswith("t     last 2 (") and [line.count("%") for line in lines[1:3]] == [3, 2]
        else:
            assert lines[0].startswith("t, bert: last 2 (") and lines[4] == "u, roberta: –"
        assert "Tune the last" not in told and "how sure it is to reach 95 % of full fine-tuning’s score." in told
        assert "bert: Tuning the last 2 layers reaches 95 % of the score" in told
        assert "The largest k is taken to cost as much as full fine-tuning: if the model has more layers, give" in told
    page = (desk / "a" / "report.html").read_text()
    assert page.index("<h1>") < page.index("<b>What to tune</b>") < page.index("A sentence for each of 5 curves")
    assert "one table" in " ".join(frostline("analyze", "--help").out.split())


def test_an_unknown_number_of_layers_is_said_with_the_costs(frostline: Frostline, desk: Path) -> None:
    """Without it, the largest k of the table counts as all layers, which makes it too dear."""
    rows = ["k,seed,acc", *(f"{k},0,{acc}" for k, acc in ((0, 0.6), (2, 0.82), (6, 0.88), ("full", 0.885)))]
    (desk / "some.csv").write_text("\n".join(rows) + "\n")
    words = ("analyze", "some.csv", "--columns", "score=acc", "--out", "a")
    for more, known in (((), False), (("--set", "layers=12"), True), (("--as-published", "lee2019"), True)):
        told = " ".join(frostline(*words, *more).out.split())
        assert ("Tuning the last 6 layers is taken to cost as much as full fine-tuning: if the" in told) is not known
        costs = {one["choice"]: one["cost_of_full"] for one in _choices(desk / "a")}
        assert costs["last 6"] == (0.5 if "layers=12" in more else 1.0)


def test_runs_without_a_score_are_counted(frostline: Frostline, desk: Path) -> None:
    rows = [
        "k,seed,acc,outcome",
        "0,0,0.5,ok",
        "0,1,,",
        "0,2,,ok",
        *(f"full,{seed},0.{seed + 6},ok" for seed in range(3)),
    ]
    (desk / "some.csv").write_text("\n".join(rows) + "\n")
    assert frostline("analyze", "some.csv", "--columns", "score=acc", "--out", "a").out.startswith(
        "Runs without a score, counted as diverged: 1.\n"
        "Runs without a score that did not fail, as where a metric is not defined: 1.\n"
    )


def _choices(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((out / "analysis.json").read_text())["groups"][0]["sizes"][0]["choices"]
    return found


def test_every_setting_is_recorded(frostline: Frostline, desk: Path) -> None:
    base = ["analyze", "runs.csv", "--columns", "score=acc", "--chance", "t=0.5", "--out", "a"]

    def settings(*words: str) -> dict[str, Any]:
        assert frostline(*base, *words).code == 0
        return json.loads((desk / "a" / "analysis.json").read_text())["settings"]  # type: ignore[no-any-return]

    ours = settings()
    assert (ours["target"], ours["corrected"], ours["by_mean"], ours["one_learning_rate"]) == (0.95, True, False, False)
    assert settings("--target", "0.9", "--margin", "0.02") == {**ours, "target": 0.9, "margin": 0.02}
    published = settings("--as-published", "lee2019", "--target", "0.8")
    assert published["by_mean"] and published["failed_below"] == 0.9 and published["target"] == 0.8


def test_a_folder_of_a_sweep_is_a_source(frostline: Frostline, finished_sweep: Path, tmp_path: Path) -> None:
    got = frostline("analyze", finished_sweep, "--out", "a")
    assert got.code == 0
    (group,) = json.loads((tmp_path / "a" / "analysis.json").read_text())["groups"]
    assert group["validation_rows"] == 16 and group["chance"] == 0.5 and group["layers"] == 3
    (link,) = re.findall(r'href="([^"#]*report.html)"', (tmp_path / "a" / "report.html").read_text())
    assert (tmp_path / "a" / link).resolve() == (finished_sweep / "report.html").resolve()


@pytest.mark.parametrize(
    "words, message",
    [
        (("analyze", "none.csv", "--out", "a"), "none.csv: there is no such file"),
        (("analyze", "two.csv", "--out", "a"), "two.csv: the score could be 'acc', 'f1'; choose one with --columns"),
        (("analyze", "runs.csv", "--chance", "s=0.5", "--out", "a"), "--chance s: there is no such task"),
        (("analyze", "runs.csv", "--columns", "acc", "--out", "a"), "--columns 'acc' is no pair"),
        (
            ("analyze", "runs.csv", "--columns", "score=acc", "--chance", "t=half", "--out", "a"),
            "--chance: 'half' is not a number; give one, such as 0.5",
        ),
        (("analyze", "runs.csv", "--columns", "score=acc", "--as-published", "lee", "--out", "a"), "no study 'lee'"),
        (
            ("analyze", "runs.csv", "--columns", "score=acc", "--out", "used"),
            "used holds a sweep or search, whose report",
        ),
        (("study", "lowdata2021", "--out", "used"), "used holds a sweep or search, whose report"),
        (("analyze", "sst2", "--out", "a"), "sst2 contains no sweep (no sweep.toml)"),
        (("study", "lee", "--out", "a"), "There is no study 'lee'"),
        (("study", "lowdata2021", "--data", "MNLI=sst2", "--out", "a"), "MNLI is not a task of this study"),
        (("study", "lowdata2021", "--model", "nowhere", "--out", "a"), "'nowhere' (revision main) is neither a folder"),
        (("study", "lowdata2021", "--data", "SST-2", "--out", "a"), "--data 'SST-2' is no pair"),
        (("study", "lee2019", "--plan", "--tune", "named", "--out", "a"), "give --tune-modules"),
    ],
)
def test_mistakes_are_one_message(frostline: Frostline, desk: Path, words: tuple[str, ...], message: str) -> None:
    got = frostline(*words)
    assert got.code == 2 and message in got.err and got.err.count("\n") == 1
    assert not (desk / "a").exists()


def test_a_tilde_means_the_home_folder(frostline: Frostline, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell does not expand the tilde in --out=~/a."""
    monkeypatch.setenv("HOME", str(desk / "home"))
    got = frostline("analyze", "runs.csv", "--columns", "score=acc", "--out=~/a")
    assert got.code == 0 and (desk / "home" / "a" / "report.html").is_file() and not (desk / "~").exists()
