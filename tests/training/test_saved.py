"""Saved probes: predictions, damaged files, and a changed model."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from transformers import AutoTokenizer

import frostline
import frostline.training.probes as examples
from frostline import FrostlineError
from frostline.data.examples import Texts
from frostline.data.files import read_record, write_sealed
from frostline.data.kinds import CLASSIFICATION, REGRESSION, TOKENS
from frostline.data.load import read_unlabelled
from frostline.data.tags import sentence
from frostline.frozen import forward_pass as batches
from frostline.model.device import this_machine
from frostline.training.linear_models import Probe
from frostline.training.probes import PROBE_FACTS, PROBE_WEIGHTS, WORD, ProbeInput, save_probe, saved_probe
from small_models import load
from tiny import sentences
from training.probe_tables import EXACT, write_probe_tables


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write_probe_tables(tmp_path_factory.mktemp("tables"))


def test_a_saved_probe_gives_the_predictions_of_the_fitted_probe(
    tiny_bert: Path, tables: dict[str, Any], tmp_path: Path
) -> None:
    for labels, more in (("label", {}), ("words", {"task_type": REGRESSION})):
        (got,) = frostline.probe(
            model=tiny_bert, label_columns=labels, out=tmp_path / labels, **tables, **more, **EXACT
        )
        folder = tmp_path / labels / "probe"
        texts, _ = read_unlabelled(tables["validation"])
        result = frostline.predict(folder, texts)
        features = got.best.predicted if labels == "words" else got.best.predicted.argmax(1)
        if labels == "words":
            np.testing.assert_allclose(result.values, features, rtol=1e-5)
            assert not result.labels
        else:
            assert (result.values.argmax(1) == features).all()
            np.testing.assert_allclose(result.values.sum(1), 1, rtol=1e-6)
            assert result.labels == ("negative", "positive")


@pytest.fixture(scope="module")
def finished(tiny_bert: Path, tiny_table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a probe. Tests must not write into it."""
    out = tmp_path_factory.mktemp("finished") / "o"
    frostline.probe(model=tiny_bert, train=tiny_table, out=out, **EXACT)
    return out / "probe"


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(finished, tmp_path / "probe"))


def test_a_model_that_has_changed_is_an_error(folder: Path, tiny_table: Path) -> None:
    texts, _ = read_unlabelled(tiny_table)
    write_sealed(folder / PROBE_FACTS, {**read_record(folder / PROBE_FACTS), "weights": "others"}, inside=folder)
    with pytest.raises(FrostlineError, match=r"The weights of .* have changed since the probe in"):
        frostline.predict(folder, texts)


@pytest.mark.parametrize("file", [PROBE_FACTS, PROBE_WEIGHTS])
@pytest.mark.parametrize("place", [0, 0.5, 0.9, 0.999, None])
def test_a_damaged_probe_is_an_error(folder: Path, file: str, place: float | None) -> None:
    content = bytearray((folder / file).read_bytes())
    if place is not None:
        content[int(place * len(content))] ^= 1
    (folder / file).write_bytes(content if place is not None else b"\0" * 50)
    with pytest.raises(FrostlineError, match="is damaged"):
        saved_probe(folder)


def test_a_probe_without_one_of_its_facts_is_damaged(folder: Path) -> None:
    about = read_record(folder / PROBE_FACTS)
    del about["vector"]
    write_sealed(folder / PROBE_FACTS, about, inside=folder)
    with pytest.raises(FrostlineError, match=r"is damaged \(vector: field required\): fit it again"):
        saved_probe(folder)


@pytest.mark.parametrize(
    "change",
    [
        *({"layers": layers} for layers in ("x", [], [-1], {}, None)),
        *({"labels": labels} for labels in (["a"], None, "ab", [1, 2])),
        *({"max_length": -1}, {"inverse_temperature": None}, {"task_type": "x"}, {"model": None}, {"vector": "x"}),
    ],
)
def test_a_forged_probe_is_damaged(folder: Path, change: dict[str, Any]) -> None:
    write_sealed(folder / PROBE_FACTS, {**read_record(folder / PROBE_FACTS), **change}, inside=folder)
    with pytest.raises(FrostlineError, match="is damaged"):
        saved_probe(folder)


def test_pairs_are_refused_by_a_probe_of_single_texts(finished: Path) -> None:
    pairs, _ = read_unlabelled(pd.DataFrame({"sentence1": ["good"], "sentence2": ["bad"]}))
    with pytest.raises(FrostlineError, match="was trained on single texts"):
        frostline.predict(finished, pairs)


def test_a_token_that_the_model_does_not_know_is_refused(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> None:
    """The training texts do not have it, so that the probe can be fitted."""
    model = Path(shutil.copytree(tiny_bert, tmp_path / "model"))
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_tokens(["zzq"])
    tokenizer.save_pretrained(model)
    frostline.probe(model=model, train=tiny_table, out=tmp_path / "o", **EXACT)
    texts, _ = read_unlabelled(pd.DataFrame({"text": ["a good film", "a zzq film"]}))
    with pytest.raises(FrostlineError, match="The tokenizer gives the token 'zzq' the number"):
        frostline.predict(tmp_path / "o" / "probe", texts)


def test_a_prediction_does_not_depend_on_the_other_examples(finished: Path, tiny_table: Path) -> None:
    frame = pd.read_csv(tiny_table)
    many, one = (frostline.predict(finished, read_unlabelled(some)[0]).values for some in (frame, frame[7:8]))
    assert many[7].tolist() == one[0].tolist()


def test_a_folder_without_a_probe(tmp_path: Path) -> None:
    assert saved_probe(tmp_path) is None


@pytest.mark.parametrize("of_words", [False, True])
def test_streamed_predictions_are_bitwise_identical(
    tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, of_words: bool
) -> None:
    """In several groups of texts, some of which are equal; nothing is left on the disk."""
    monkeypatch.setattr("huggingface_hub.constants.HF_ASSETS_CACHE", str(tmp_path / "assets"))
    monkeypatch.setattr(examples, "SHARD_ROWS", 8)
    monkeypatch.setitem(batches.TOKENS, "cpu", 64)
    draw = np.random.default_rng(0)
    weights = draw.normal(size=(2 * 32, 2))
    probe = Probe(weights, np.zeros(2), np.zeros(64), np.ones(64), 1.0, 1.0, np.zeros((0, 0)), CLASSIFICATION)
    inputs = ProbeInput((1, 2), WORD if of_words else "mean")
    task_type = TOKENS if of_words else CLASSIFICATION
    about = {"task": "t", "task_type": task_type, "labels": ["a", "b"], "columns": {}, "max_length": 32, "sentence": ""}
    pretrained = load(tiny_bert, task_type=task_type)
    save_probe(tmp_path, inputs, probe, pretrained, this_machine("cpu", "float32"), about)
    found = [row["text"] for row in [*sentences(15, seed=3), *sentences(5, seed=3)]]
    texts = tuple(sentence(one.split(), "a sentence", "") if of_words else one for one in found)
    given = Texts(texts=texts, pairs=None, rows=np.arange(20), name="texts")
    saved = saved_probe(tmp_path)
    assert saved is not None
    expected, _ = saved.values(given)
    streamed, _ = saved.values(given, streams=lambda weight_bytes: True)
    assert expected.tobytes() == streamed.tobytes() and len(np.unique(streamed)) > 10
    assert not [path for path in (tmp_path / "assets").rglob("*") if path.is_file() or path.suffix == ".part"]
