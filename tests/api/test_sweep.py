""":func:`frostline.sweep`, and the results."""

import gc
import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import frostline
from frostline.report.answer.run_groups import labelled_split
from frostline.statistics.predictions import RunPredictions
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder
from hostile import flip
from tiny import QUICK, Notes, TrainWith, contents, sentences


def test_all_exported_names_exist_and_are_sorted() -> None:
    assert frostline.__all__ == sorted(frostline.__all__)
    assert dir(frostline) == frostline.__all__
    for name in frostline.__all__:
        assert getattr(frostline, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'sweep_of_any_kind'"):
        frostline.sweep_of_any_kind  # noqa: B018
    assert (Path(frostline.__file__).parent / "py.typed").exists()


def test_splits_in_memory(tiny_bert: Path, tmp_path: Path) -> None:
    frames = {name: pd.DataFrame(sentences(40, seed=n)) for n, name in enumerate(("train", "validation", "test"))}
    out = tmp_path / "o"
    settings = {"model": tiny_bert, **frames, "tune": "0,1", "seeds": 1, "out": out, **QUICK, "progress": Progress()}
    answer = frostline.sweep(**settings, task="mine").answer
    assert answer.task == "mine" and answer.tested
    assert pd.read_parquet(out / "validation.parquet").text.tolist() == frames["validation"].text.tolist()
    assert pd.read_parquet(out / "test.parquet").text.tolist() == frames["test"].text.tolist()
    again = frostline.plan(**settings)
    assert len(again.runs) == 2 and not again.missing(again.runs)


def test_files_of_a_finished_sweep(finished_sweep: Path) -> None:
    names = {path.name for path in finished_sweep.iterdir()}
    tables = {"results.csv", "results.parquet", "scores.csv"}
    assert names >= {"sweep.toml", "runs", *tables, "answer.json", "report.html", "model"}
    assert not [path for path in finished_sweep.rglob("*") if path.name.endswith(".part")]
    assert not (finished_sweep / "weights").exists()  # the saved model has them now
    answer = json.loads((finished_sweep / "answer.json").read_text())
    columns = {"text": "text", "text_pair": None, "label": "label", "indicators": [], "separator": None, "group": None}
    assert answer["columns"] == columns
    assert any("text is column 'text', label is column 'label'" in note for note in answer["notes"])


def test_rows_of_a_group_are_left_out_together(tiny_bert: Path, tmp_path: Path) -> None:
    """Those of an author are in one fold, and the jackknife of the intervals leaves them out together."""
    authors = [f"author {n % 20}" for n in range(80)]
    train = pd.DataFrame(sentences(80)).assign(author=authors)
    settings = {"model": tiny_bert, "train": train, "tune": "0,probe", "seeds": 3, "folds": 3, "test": "none", **QUICK}
    out = tmp_path / "o"
    frostline.sweep(**settings, group_column="author", out=out, save_model=False, progress=Progress())
    stored = pd.read_parquet(out / "validation.parquet")
    assert stored.group.tolist() == authors and stored.groupby("group").fold.nunique().max() == 1
    split = labelled_split(Folder(out), "validation")
    assert split is not None and len(set(split.clusters)) == 20 and len(set(split.texts)) > 60
    groups = RunPredictions(split, lambda run: split.targets).groups
    assert len(groups) == 20 and all(len({authors[n] for n in rows}) == 19 for rows in groups)
    with pytest.raises(frostline.FrostlineError, match="results of other data"):
        frostline.sweep(**settings, out=out, progress=Progress())


def test_undefined_scores_are_null_in_the_answer(tiny_bert: Path, tmp_path: Path) -> None:
    """The jackknife leaves one of two validation rows, and the correlation of a single row is undefined."""
    rows = sentences(18)
    train = pd.DataFrame({"text": [row["text"] for row in rows], "label": [n / 7 for n in range(18)]})
    settings = {"tune": "0,1", "seeds": 2, "margin": 0.1, "task_type": "regression", "out": tmp_path / "o", **QUICK}
    answer = frostline.sweep(save_model=False, model=tiny_bert, train=train, **settings).answer
    assert json.loads(json.dumps(answer.to_json(), allow_nan=False)) == json.loads(
        (tmp_path / "o" / "answer.json").read_text()
    )
    (size,) = answer.sizes
    point = next(one for one in size.operating_points if one.margin)
    assert point.not_ruled_out == "head only" and "nan" not in answer.sentence


@pytest.mark.parametrize("split", ["validation", "test"])
def test_one_row_is_enough_for_an_answer(tiny_bert: Path, tiny_table: Path, tmp_path: Path, split: str) -> None:
    one = pd.DataFrame(sentences(161, seed=9)[-1:])
    settings = {"tune": "0,1", "seeds": 2, "train_size": 20, "out": tmp_path / "o", **QUICK, split: one}
    answer = frostline.sweep(save_model=False, model=tiny_bert, train=tiny_table, **settings).answer
    assert answer.runs.done == 4 and (tmp_path / "o" / "report.html").is_file()
    assert split == "test" or "1 validation example is too few for any conclusion" in answer.sentence
    json.dumps(answer.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda model: (model / "config.json").unlink(), "config.json is missing"),
        (lambda model: flip(model / "model.safetensors"), "the checksum of model.safetensors is wrong"),
        (lambda model: (model / "frostline.json").unlink(), "frostline did not write it"),
        (lambda model: (model / "thesis.txt").write_text("of a user"), "frostline did not write thesis.txt"),
        (lambda model: (model / "README.md").write_text("# An edited card"), None),
    ],
)
def test_a_model_that_was_changed_is_set_aside_and_saved_again(
    finished_sweep: Path, tiny_bert: Path, tiny_table: Path, tmp_path: Path, change: Any, reason: str | None
) -> None:
    out = Path(shutil.copytree(finished_sweep, tmp_path / "o"))
    model, notes = out / "model", Notes()
    change(model)
    changed = contents(model)
    frostline.sweep(model=tiny_bert, train=tiny_table, tune="0,1,all", seeds=2, out=out, progress=notes, **QUICK)
    if reason is None:
        assert contents(model) == changed
        return
    assert f"{model} is not what was saved ({reason}): it is now in {out / 'damaged' / 'model'}." in notes.notes
    assert contents(out / "damaged" / "model") == changed
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (model / name).read_bytes() == (finished_sweep / "model" / name).read_bytes()
    assert contents(model).keys() == contents(finished_sweep / "model").keys()
    assert "The recommended run is trained again, to save its model." in notes.notes
    assert json.loads((model / "frostline.json").read_text())["trained_again"] is True
    assert "trained a second time to save it. Its predictions are bitwise" in (model / "README.md").read_text()


@pytest.mark.usefixtures("every_speed_up")
def test_objects_are_frozen_only_while_a_sweep_runs(settings: dict[str, Any]) -> None:
    frozen = []

    class Interrupts(Progress):
        def result(self, ended: Any) -> None:
            frozen.append(gc.get_freeze_count())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        frostline.sweep(**settings, progress=Interrupts())
    assert frozen[0] > 10_000 and gc.get_freeze_count() == 0


def test_failed_runs_that_are_not_trained_again_are_not_forecast(
    settings: dict[str, Any], train_with: TrainWith
) -> None:
    def fails(spec: Any, experiment: Any, **more: Any) -> Any:
        raise RuntimeError("out of memory")

    class Shown(Progress):
        def begin(self, what: str) -> None:
            begun.append(what)

    begun = list[str]()
    train_with(fails)
    for retry, trained in (("failed",), True), ((), False):
        begun.clear()
        answer = frostline.sweep(retry=retry, **{**settings, "tune": "0", "seeds": 1}, progress=Shown()).answer
        assert answer.runs.failed == 1 and ("checking that the model can be cut" in begun) == trained
