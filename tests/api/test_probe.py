"""``frostline.probe`` end to end, from data to reports and saved probes."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

import frostline
from frostline import FrostlineError
from frostline.model.model_files import ESTIMATOR
from frostline.training.saved_estimators import ARRAYS
from frozen.passes import bytes_of
from tiny import EXACT, sentences
from tiny import Frostline as Program


def test_undefined_scores_are_null_and_not_plotted(
    tiny_bert: Path, probe_tables: dict[str, Path], tmp_path: Path
) -> None:
    """After the embeddings, all examples have the same first token. The correlation of a single row is undefined, too."""
    settings = {"model": tiny_bert, "label_column": "words", **probe_tables, "task_type": "regression", **EXACT}
    for name, validation in (("all", probe_tables["validation"]), ("one", pd.read_csv(probe_tables["validation"])[:1])):
        probed = frostline.probe(**{**settings, "validation": validation}, out=tmp_path / name)
        facts = json.loads((tmp_path / name / "probes.json").read_text(), parse_constant=pytest.fail)
        assert facts["probes"][0]["held_out"] is None and facts["probes"][0]["validation"] is None
        assert "nan" not in (tmp_path / name / "tables" / "probes.csv").read_text()
        page = (tmp_path / name / "report.html").read_text()
        assert " nan" not in page and ">nan" not in page
        no_score = name == "one"
        assert (probed.report.best.validation is None) == no_score == ("No probe has a" in page)
        assert (probed.report.high is None) == no_score


def test_another_label_column_needs_no_forward_pass(
    tiny_bert: Path, probe_tables: dict[str, Path], empty_cache: Path
) -> None:
    settings = {"model": tiny_bert, **probe_tables, **EXACT}
    films = frostline.probe(**settings, label_column="label")
    cached = {file: file.stat().st_mtime_ns for file in empty_cache.rglob("*.safetensors")}
    texts = pd.concat([pd.read_csv(probe_tables[name]) for name in ("train", "validation")])["text"]
    assert sum(len(load_file(file)["keys"]) for file in cached) == texts.nunique()
    assert frostline.probe(**settings, label_column="words").report.columns["label"] == "words"
    assert frostline.probe(**settings, label_column="label").report == films.report
    assert {file: file.stat().st_mtime_ns for file in empty_cache.rglob("*.safetensors")} == cached


def test_the_command_writes_reports_and_probes(
    frostline: Program, tiny_bert: Path, probe_tables: dict[str, Path]
) -> None:
    own = [f"--{name}={probe_tables[name]}" for name in ("train", "validation")]
    words = ["--model", tiny_bert, *own, "--text-column", "text", "--out", "p"]
    result = frostline("probe", *words, "--label-column", "words")
    assert result.code == 0, result.err
    assert "after layer" in result.out and "words: accuracy on 60 validation examples" in result.out
    assert result.out.endswith("\np/report.html\np/probe\n")
    assert Path("p/report.html").read_text().count("<figure") == 1
    facts = json.loads(Path("p/probes.json").read_text())
    assert facts["columns"]["label"] == "words"
    assert Path("p/tables/probes.csv").read_text().count("\n") == 1 + 4 * 3 + 1
    assert Path("p/figures/probe_curve.svg").exists()
    result = frostline("predict", "p/probe", probe_tables["validation"], "--out", "predicted.csv")
    assert result.code == 0 and Path("predicted.csv").read_text().startswith("row,text,label,p(")
    assert frostline("probe", *words, "--label-column", "label").code == 0  # the same folder again


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--kind", "tree"], "There is no kind of probe 'tree': give ridge or logistic"),
        (["--label-column", "lable"], "there is no column 'lable'"),
        (
            ["--task-type", "regression", "--label-column", "words", "--kind", "logistic"],
            "--kind logistic is for one label",
        ),
        (["--out", "full"], "full exists and contains no probes"),
        (["--max-length", "4"], "would be truncated"),
    ],
)
def test_mistakes_are_one_message_and_write_nothing(
    frostline: Program, tiny_bert: Path, probe_tables: dict[str, Path], more: list[str], message: str
) -> None:
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    words = ["--model", tiny_bert, "--train", probe_tables["train"], "--text-column", "text"]
    label = [] if "--label-column" in more else ["--label-column", "label"]
    result = frostline("probe", *words, *label, *more)
    assert result.code == 2 and message in result.err and result.err.count("\n") == 1, result.err
    assert not Path("frostline-probe").exists()


def test_a_setting_of_training_is_refused(tiny_bert: Path, probe_tables: dict[str, Path]) -> None:
    with pytest.raises(FrostlineError, match="There is no setting 'tune' of `frostline probe`"):
        frostline.probe(model=tiny_bert, tune="0,1", **probe_tables)


def test_probes_of_streamed_layers_are_the_same(
    tiny_bert: Path, probe_tables: dict[str, Path], tmp_path: Path, empty_cache: Path
) -> None:
    made = []
    for stream in (False, True):
        out = tmp_path / f"out-{stream}"
        probed = frostline.probe(model=tiny_bert, label_column="label", out=out, stream=stream, **probe_tables, **EXACT)
        (file,) = empty_cache.rglob("*.safetensors")
        saved = [(out / "probe" / name).read_bytes() for name in (ESTIMATOR, ARRAYS)]
        made.append((probed.report, bytes_of(file), saved))
        shutil.rmtree(empty_cache)
    assert made[0] == made[1]


def test_probes_of_pairs_also_read_each_text_alone(tiny_bert: Path, tmp_path: Path) -> None:
    """Whether both texts are the same is in their distance. Texts in the other order have the same predictions."""
    texts = [row["text"] for row in sentences(150)]
    labels = ["no" if n // 2 % 2 else "yes" for n in range(len(texts))]
    second = [texts[n - 2 * (label == "no")] for n, label in enumerate(labels)]
    table = pd.DataFrame({"text": texts, "text_pair": second, "label": labels})
    swapped = table.rename(columns={"text": "text_pair", "text_pair": "text"})
    files = {name: tmp_path / f"{name}.csv" for name in ("train", "validation", "swapped")}
    for name, frame in (("train", table[:100]), ("validation", table[100:]), ("swapped", swapped[100:])):
        frame.to_csv(files[name], index=False)
    given = {"train": files["train"], "validation": files["validation"], "out": tmp_path / "out", **EXACT}
    probed = frostline.probe(model=tiny_bert, **given)
    report = probed.report
    assert [one.layers for one in report.probes if one.vector == "apart"] == [(1,), (2,), (3,), (1, 2, 3)]
    assert (report.best.vector, report.best.validation) == ("apart", 1.0) and "both texts read alone" in report.sentence
    assert max(one.validation or 0 for one in report.probes if one.vector != "apart") < 0.9
    predicted = [frostline.predict(tmp_path / "out" / "probe", files[name]) for name in ("validation", "swapped")]
    assert predicted[0].labels == labels[100:]
    np.testing.assert_allclose(predicted[0].values, predicted[1].values, rtol=1e-5)
