"""Saved probes, TF-IDF models and heads of SetFit: predictions, damaged files, and a changed model."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from transformers import AutoTokenizer

import frostline
import frostline.training.probes as probes
from frostline import FrostlineError
from frostline.data.examples import Texts
from frostline.data.files import read_record, write_sealed
from frostline.data.kinds import CLASSIFICATION, REGRESSION, TOKENS
from frostline.data.tags import sentence
from frostline.frozen import forward_pass as batches
from frostline.sweeps.progress import Progress
from frostline.training.probes import WORD
from frostline.training.saved_estimators import (
    ARRAYS,
    BASE,
    ESTIMATOR,
    EstimatorFacts,
    ProbeFacts,
    read_estimator,
    write_estimator,
)
from small_models import load
from tiny import EXACT, sentences

ABOUT = {"task": "films", "task_type": CLASSIFICATION, "labels": ("no", "yes"), "columns": {"text": "text"}}
TASK: dict[str, Any] = {**ABOUT, "max_length": 32, "sentence": "It is good."}
LINEAR = {"weights": np.array([[1.0, -1.0], [0.0, 2.0]]), "bias": np.array([0.0, -np.inf])}
READS: dict[str, Any] = {"layers": (1,), "vector": "mean", "model": "m", "revision": None, "precision": "float32"}
READS |= {"weights": "w", "vocabulary": "v"}
KINDS: dict[str, tuple[EstimatorFacts, dict[str, Any]]] = {
    "probe": (EstimatorFacts(**TASK, probe=ProbeFacts(**READS, depth=1)), LINEAR),
    "words": (EstimatorFacts(**TASK, terms=("bad", "good")), {**LINEAR, "idf": np.ones(2)}),
    "setfit": (EstimatorFacts(**TASK), LINEAR),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_is_what_was_written(tmp_path: Path, kind: str) -> None:
    assert read_estimator(tmp_path) is None
    facts, arrays = KINDS[kind]
    write_estimator(tmp_path, facts, arrays)
    found = read_estimator(tmp_path)
    assert found is not None and found.facts == facts
    assert {name: array.tolist() for name, array in found.arrays.items()} == {n: x.tolist() for n, x in arrays.items()}
    card = (tmp_path / "README.md").read_text()
    assert ("truncated to 32 tokens" in card) == (kind != "words")  # a TF-IDF model reads whole texts
    for said in ("`--base FOLDER` gives its place", ", cut to its first layer, which"):
        assert (said in card) == (kind == "probe")


def test_a_words_model_predicts_texts(tmp_path: Path) -> None:
    facts, arrays = KINDS["words"]
    write_estimator(tmp_path, facts, {**arrays, "bias": np.zeros(2)})
    found = frostline.predict(tmp_path, ["good", "bad", "so"])
    np.testing.assert_allclose(found.values[:, 1], 1 / (1 + np.exp([-2.0, 2.0, 0.0])), rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "file", "place"),
    [*(("probe", file, place) for file in (ESTIMATOR, ARRAYS) for place in (0, 0.5, 0.999, None)), ("words", ARRAYS, 0.5)],
)  # fmt: skip
def test_damage_is_noticed(tmp_path: Path, kind: str, file: str, place: float | None) -> None:
    write_estimator(tmp_path, *KINDS[kind])
    content = bytearray((tmp_path / file).read_bytes())
    if place is not None:
        content[int(place * len(content))] ^= 1
    (tmp_path / file).write_bytes(content if place is not None else b"\0" * 50)
    with pytest.raises(FrostlineError, match=r"is damaged .*: run the command that wrote it again"):
        read_estimator(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        *(({"labels": labels}, "labels|shapes") for labels in (["a"], None, "ab", [1, 2])),
        *(({name: value}, name) for name, value in (("max_length", -1), ("task_type", "x"), ("columns", None))),
        *(
            ({"probe": {**READS, **own}}, f"probe.{next(iter(own))}")
            for own in (*({"layers": layers} for layers in ("x", [], [-1], {}, None)), {"model": None}, {"vector": "x"})
        ),
        ({"terms": ["bad", "good"], "probe": None}, "shapes"),
    ],
)
def test_a_forged_probe_is_damaged(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    write_estimator(tmp_path, *KINDS["probe"])
    write_sealed(tmp_path / ESTIMATOR, {**read_record(tmp_path / ESTIMATOR), **change}, inside=tmp_path)
    with pytest.raises(FrostlineError, match=rf"is damaged \(.*({reason})"):
        read_estimator(tmp_path)


def test_a_saved_probe_gives_the_predictions_that_were_scored(
    tiny_bert: Path, probe_tables: dict[str, Path], tmp_path: Path
) -> None:
    frame = pd.read_csv(probe_tables["validation"])
    for label, more in (("label", {}), ("words", {"task_type": REGRESSION})):
        got = frostline.probe(
            model=tiny_bert, label_column=label, out=tmp_path / label, **probe_tables, **more, **EXACT
        )
        result = frostline.predict(tmp_path / label / "probe", probe_tables["validation"])
        if more:
            assert not result.classes
            score = np.corrcoef(result.values[:, 0], frame["words"])[0, 1]
        else:
            score = (np.array(result.labels) == frame["label"]).mean()
            np.testing.assert_allclose(result.values.sum(1), 1, rtol=1e-6)
        assert score == pytest.approx(got.report.best.validation, abs=1e-6)


@pytest.fixture(scope="module")
def finished(tiny_bert: Path, tiny_table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a probe. Tests must not write into it."""
    out = tmp_path_factory.mktemp("finished") / "o"
    frostline.probe(model=tiny_bert, train=tiny_table, out=out, **EXACT)
    return out / "probe"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": "others"}, "The weights, configuration or code of .* have changed since the probe in"),
        ({"vocabulary": "others"}, "The tokenizer files of .* have changed since the probe in"),
        ({"layers": [99]}, "reads other layers than .* has"),
        ({"layers": [1, 2, 3, 1, 2]}, "reads other layers than .* has"),
    ],
)
def test_a_model_that_is_not_that_of_the_probe_is_refused(
    finished: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "probe"))
    record = read_record(folder / ESTIMATOR)
    write_sealed(folder / ESTIMATOR, {**record, "probe": {**record["probe"], **change}}, inside=folder)
    with pytest.raises(FrostlineError, match=message):
        frostline.predict(folder, ["a good film"])


def test_pairs_are_refused_by_a_probe_of_single_texts(finished: Path) -> None:
    with pytest.raises(FrostlineError, match="was trained on single texts"):
        frostline.predict(finished, pd.DataFrame({"sentence1": ["good"], "sentence2": ["bad"]}))


def test_a_token_that_the_model_does_not_know_is_refused(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> None:
    """The training texts do not have it, so that the probe can be fitted."""
    model = Path(shutil.copytree(tiny_bert, tmp_path / "model"))
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_tokens(["zzq"])
    tokenizer.save_pretrained(model)
    frostline.probe(model=model, train=tiny_table, out=tmp_path / "o", **EXACT)
    with pytest.raises(FrostlineError, match="The tokenizer gives the token 'zzq' the number"):
        frostline.predict(tmp_path / "o" / "probe", ["a good film", "a zzq film"])


def test_the_model_of_a_probe_can_be_moved(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> None:
    model, probe, texts = tmp_path / "bert", tmp_path / "o" / "probe", ["a good film"]
    shutil.copytree(tiny_bert, model)
    frostline.probe(model=model, train=tiny_table, out=tmp_path / "o", **EXACT)
    before = frostline.predict(probe, texts).values
    moved = model.rename(tmp_path / "moved")
    with pytest.raises(
        FrostlineError,
        match=r"reads another model. There is no model folder .* give its folder with --base. .* --embed",
    ):
        frostline.predict(probe, texts)
    assert frostline.predict(probe, texts, base=moved).values.tolist() == before.tolist()
    with pytest.raises(FrostlineError, match="reads no other one: leave --base out"):
        frostline.predict(tiny_bert, texts, base=moved)


def test_an_embedded_model_moves_with_its_probe(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> None:
    """Of a probe, and of a comparison that recommends one. The comparison is repeated with and without it."""
    model, texts = Path(shutil.copytree(tiny_bert, tmp_path / "bert")), ["a good film", "the plot was dull"]
    (model / "1_Pooling").mkdir()  # as sentence encoders have it
    (model / "1_Pooling" / "config.json").write_text("{}")
    (model / "modules.json").write_text(json.dumps([{"path": "1_Pooling", "type": "models.Pooling"}]))
    given: dict[str, Any] = {"model": model, "train": tiny_table, "embed": True}
    frostline.probe(**given, out=tmp_path / "o", **EXACT)
    grid = {"tune": "probe,0", "seeds": 1, "price": 50, "num_train_epochs": 1, "progress": Progress()}
    saved = frostline.sweep(**given, **grid, out=tmp_path / "w").model_folder
    assert not (frostline.sweep(**{**given, "embed": False}, **grid, out=tmp_path / "w").model_folder / BASE).exists()
    assert frostline.sweep(**given, **grid, out=tmp_path / "w").model_folder == saved
    folders = {"probe": tmp_path / "o" / "probe", "way": saved}
    expected = {name: frostline.predict(folder, texts).values.tolist() for name, folder in folders.items()}
    shutil.rmtree(model)
    for name, folder in folders.items():
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        moved = Path(shutil.move(folder, tmp_path / "elsewhere" / name))
        assert frostline.predict(moved, texts).values.tolist() == expected[name]
        card, record = (moved / "README.md").read_text(), (moved / ESTIMATOR).read_text()
        assert "of bert, which is in the folder base." in card and "- negative\n- positive\n" in card
        assert str(tmp_path) not in card + record
        (moved / BASE / "tokenizer.json").write_text("{}")
        with pytest.raises(FrostlineError, match=r"is not what was copied there \(the checksum of base/tokenizer.json"):
            frostline.predict(moved, texts)


def test_a_prediction_does_not_depend_on_the_other_examples(finished: Path, tiny_table: Path) -> None:
    frame = pd.read_csv(tiny_table)[["text"]]
    many, one = (frostline.predict(finished, some).values for some in (frame, frame[7:8]))
    assert many[7].tolist() == one[0].tolist()


@pytest.mark.parametrize("of_words", [False, True])
def test_streamed_predictions_are_bitwise_identical(
    tiny_bert: Path, tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch, *, of_words: bool
) -> None:
    """In several groups of texts, some of which are equal; nothing is left on the disk."""
    monkeypatch.setattr(probes, "SHARD_ROWS", 8)
    monkeypatch.setitem(batches.TOKENS, "cpu", 64)
    task_type, weights = TOKENS if of_words else CLASSIFICATION, np.random.default_rng(0).normal(size=(2 * 32, 2))
    model = load(tiny_bert, task_type=task_type)
    own = {"model": str(tiny_bert), "weights": model.weights, "vocabulary": model.vocabulary, "layers": (1, 2)}
    reads = ProbeFacts(**{**READS, **own, "vector": WORD if of_words else "mean"})
    arrays = {"weights": weights, "bias": np.zeros(2)}
    write_estimator(tmp_path, EstimatorFacts(**{**TASK, "task_type": task_type}, probe=reads), arrays)
    found = [row["text"] for row in [*sentences(15, seed=3), *sentences(5, seed=3)]]
    texts = tuple(sentence(one.split(), "a sentence", "") if of_words else one for one in found)
    given = Texts(texts=texts, pairs=None, rows=np.arange(20), name="texts")
    saved = read_estimator(tmp_path)
    assert saved is not None
    expected, _ = saved.logits(given)
    streamed, _ = saved.logits(given, streams=lambda weight_bytes: True)
    assert expected.tobytes() == streamed.tobytes() and len(np.unique(streamed)) > 10
    assert not [path for path in empty_cache.rglob("*") if path.is_file() or path.suffix == ".part"]
