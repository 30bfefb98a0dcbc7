"""The saved model, from sweeps of a tiny model, as transformers and people will read it."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

import frostline.report.card as card
from frostline import FrostlineError
from frostline.api.prediction import predict
from frostline.api.sweep import Sweep
from frostline.data import read_unlabelled
from frostline.model.pretrained import load_pretrained
from frostline.report.card import Saved, save_model
from frostline.sweep.results.folder import Folder
from frostline.sweep.results.rows import read_rows
from tiny import OTHER, tiny_bert_folder

HOSTILE = ("<script>alert(1)</script>", "=1+1", "w" * 120, "``` | مرحبا 😀 [x](y) **b** {{ 7 * 7 }}")
WORDS = ("good", "bad", "warm", "cold")
MAX_LENGTH = 12


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT whose own card names a license."""
    folder = tiny_bert_folder(tmp_path_factory.mktemp("base"))
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\nA tiny model.\n")
    return folder


def _sweep(base: Path, out: Path, label: Any, **settings: Any) -> Path:
    """A whole sweep: answer, report and model in ``out``. ``label`` gives a text's label from its first word's index."""
    draw = np.random.default_rng(0)
    first = draw.integers(0, 4, 160)
    texts = [f"{WORDS[n]} {' '.join(draw.choice(OTHER, draw.integers(2, 20)))}" for n in first]
    rows = pd.DataFrame({"text": texts, "label": [label(n) for n in first]})
    sweep = Sweep(
        model=str(base), train=rows[:80], validation=rows[80:], test="none", seeds=2, out=str(out),
        learning_rate=5e-3, head_learning_rate=2e-2, num_train_epochs=4, max_length=MAX_LENGTH, max_truncated=1.0,
        precision="float32", task="films | <b>", **{"tune": "0,all", **settings},
    )  # fmt: skip
    sweep.run()
    return out


@pytest.fixture(scope="module")
def classified(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _sweep(base, tmp_path_factory.mktemp("classified") / "out", lambda n: HOSTILE[n])


@pytest.fixture(scope="module")
def regressed(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _sweep(base, tmp_path_factory.mktemp("regressed") / "out", lambda n: n / 2.5, problem_type="regression")


def _answer(out: Path) -> dict[str, Any]:
    return json.loads((out / "answer.json").read_text())


def _predictions(out: Path) -> tuple[list[str], np.ndarray]:
    """Texts of validation, and the recommended run's logits for them."""
    examples = read_rows(out, "validation")
    assert examples is not None
    run = _answer(out)["sizes"][0]["recommended"]["run"]
    return list(examples.texts), Folder(out).store.predictions(run)["validation_best"]


def test_pipeline_gives_the_labels_and_the_logits_of_the_run(classified: Path) -> None:
    texts, logits = _predictions(classified)
    classify = pipeline("text-classification", model=str(classified / "model"), top_k=None)
    found = classify(texts, truncation=True, function_to_apply="none")
    labels = sorted(HOSTILE)
    assert Folder(classified).identity.labels == tuple(labels)
    ours = np.array([[{x["label"]: x["score"] for x in row}[label] for label in labels] for row in found])
    assert np.abs(ours - logits).max() < 1e-5 * np.abs(logits).max()
    likely = classify(texts, truncation=True, top_k=1)
    assert [row[0]["label"] for row in likely] == [labels[n] for n in logits.argmax(1)]


def test_pipeline_gives_the_number_itself(regressed: Path) -> None:
    texts, logits = _predictions(regressed)
    found = pipeline("text-classification", model=str(regressed / "model"))(texts, truncation=True)
    assert np.abs(np.array([row["score"] for row in found]) - logits[:, 0]).max() < 1e-5 * np.abs(logits).max()
    config = json.loads((regressed / "model" / "config.json").read_text())
    assert config["problem_type"] == "regression"


def test_what_is_stored_is_the_model_and_nothing_of_this_machine(base: Path, classified: Path) -> None:
    folder = classified / "model"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "README.md", "config.json", "frostline.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"
    }  # fmt: skip
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1
    for path in folder.iterdir():
        content = path.read_bytes()
        assert str(base).encode() not in content and os.fsencode(classified) not in content
    config = json.loads((folder / "config.json").read_text())
    assert config["use_cache"] is True and config["problem_type"] == "single_label_classification"
    assert "frostline" not in json.dumps(config) and "_attn_implementation" not in config
    assert config["id2label"] == {str(n): label for n, label in enumerate(sorted(HOSTILE))}
    assert AutoTokenizer.from_pretrained(folder).model_max_length == MAX_LENGTH
    state = AutoModelForSequenceClassification.from_pretrained(folder).state_dict()
    assert all(value.dtype == torch.float32 for value in state.values() if value.is_floating_point())


def test_facts(classified: Path) -> None:
    facts, answer = json.loads((classified / "model" / "frostline.json").read_text()), _answer(classified)
    recommended = answer["sizes"][0]["recommended"]
    assert facts["run"] == recommended["run"] and facts["sentence"] == answer["sentence"]
    assert facts["labels"] == sorted(HOSTILE) and facts["max_length"] == MAX_LENGTH and facts["metric"] == "accuracy"
    assert facts["spec"]["seed"] == recommended["seed"] and facts["logit_gap"] == 0


def test_card(classified: Path) -> None:
    loaded = ModelCard.load(classified / "model" / "README.md")
    assert loaded.data.license == "apache-2.0" and loaded.data.base_model is None
    assert loaded.data.pipeline_tag == "text-classification" and loaded.data.metrics == ["accuracy"]
    recommended = _answer(classified)["sizes"][0]["recommended"]
    (result,) = loaded.data.eval_results
    assert result.dataset_name == "films | <b>" and result.dataset_split == "validation"
    assert result.metric_value == recommended["validation_best"]
    text = loaded.text
    assert "the best on validation" in text and f"seed {recommended['seed']}" in text and "bit for bit" in text
    assert "films \\| &lt;b&gt;" in text and "<b>" not in text
    assert "Choice and report were made on the same data" in text and "(this model)" in text
    for line in text.splitlines():
        if line.startswith("| head only") or line.startswith("| all"):
            assert line.count("|") == 9
    block = text.split("```json\n")[1].split("\n```")[0]
    assert list(json.loads(block).values()) == sorted(HOSTILE)


def test_card_of_named_parts(base: Path, tmp_path: Path) -> None:
    out = _sweep(base, tmp_path / "out", lambda n: HOSTILE[n], tune="named", tune_modules="layer.2,pooler")
    text = " ".join(ModelCard.load(out / "model" / "README.md").text.split())
    assert "with layer.2, pooler and the head of 3 layers trained on" in text and "were named by hand" in text
    assert "Nothing was compared" in text and "swept the number" not in text and "bit for bit" in text


def test_card_of_a_regression(regressed: Path) -> None:
    text = ModelCard.load(regressed / "model" / "README.md").text
    assert "the number itself" in text and "```json" not in text


def _arguments(base: Path, out: Path) -> tuple[Any, ...]:
    folder, answer = Folder(out), _answer(out)
    identity = folder.identity
    pretrained = load_pretrained(str(base), labels=identity.labels, problem_type=identity.problem_type)
    spec = next(run for run in folder.runs if run.digest == answer["sizes"][0]["recommended"]["run"])
    return pretrained, identity, answer, spec


def test_an_older_folder_is_replaced_whole(base: Path, classified: Path, tmp_path: Path) -> None:
    arguments = _arguments(base, classified)
    pretrained, target = arguments[0], tmp_path / "deep" / "model"
    before = (pretrained.tokenizer.model_max_length, dict(pretrained.tokenizer.init_kwargs))
    assert save_model(target, *arguments, Saved(0.0, trained_again=False)) == target
    (target / "old.txt").write_text("of an older model")
    save_model(target, *arguments, Saved(2.5e-4, trained_again=True))
    assert not (target / "old.txt").exists() and "0.00025" in (target / "README.md").read_text()
    assert [path.name for path in target.parent.iterdir()] == ["model"]
    assert (pretrained.tokenizer.model_max_length, pretrained.tokenizer.init_kwargs) == before
    assert pretrained.model.config.use_cache is False


def test_a_full_disk_leaves_the_older_folder(
    base: Path, classified: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, target = _arguments(base, classified), tmp_path / "model"
    save_model(target, *arguments, Saved(0.0, trained_again=False))
    before = {path.name: path.read_bytes() for path in target.iterdir()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(card, "_facts", full)
    with pytest.raises(FrostlineError, match="No space left"):
        save_model(target, *arguments, Saved(0.0, trained_again=False))
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_swap_that_fails_leaves_the_older_folder(
    base: Path, classified: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, target = _arguments(base, classified), tmp_path / "model"
    save_model(target, *arguments, Saved(0.0, trained_again=False))
    (target / "mine.txt").write_text("still here")
    rename = os.rename

    def fails_for_the_new(source: Path, destination: Path) -> None:
        if str(source).endswith(".part"):
            raise OSError(5, "Input/output error")
        rename(source, destination)

    monkeypatch.setattr(os, "rename", fails_for_the_new)
    with pytest.raises(FrostlineError, match="Input/output"):
        save_model(target, *arguments, Saved(0.0, trained_again=False))
    assert (target / "mine.txt").read_text() == "still here"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


OWN_CODE = """
from transformers import BertConfig, BertForSequenceClassification


class OwnConfig(BertConfig):
    model_type = "own-of-frostline-tests"


class OwnForSequenceClassification(BertForSequenceClassification):
    config_class = OwnConfig
"""


def test_a_model_with_code_of_its_own_is_saved_with_it(base: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(base, tmp_path / "own"))
    (folder / "modeling_own.py").write_text(OWN_CODE)
    config = json.loads((folder / "config.json").read_text())
    kinds = {"AutoConfig": "OwnConfig", "AutoModelForSequenceClassification": "OwnForSequenceClassification"}
    config |= {"model_type": "own-of-frostline-tests", "auto_map": {k: f"modeling_own.{v}" for k, v in kinds.items()}}
    (folder / "config.json").write_text(json.dumps(config))
    out = _sweep(folder, tmp_path / "out", lambda n: "ab"[n % 2], tune="0", trust_remote_code=True)
    assert json.loads((out / "model" / "config.json").read_text())["use_cache"] is True
    assert (out / "model" / "modeling_own.py").is_file() and (out / "report.html").is_file()
    texts, logits = _predictions(out)
    got = predict(out / "model", read_unlabelled(pd.DataFrame({"text": texts}))[0], trust_remote_code=True)
    assert [got.labels[n] for n in got.values.argmax(1)] == ["ab"[n] for n in logits.argmax(1)]


def test_the_card_of_a_sweep_that_is_not_done_says_that_test_waits(base: Path, tmp_path: Path) -> None:
    rows = pd.DataFrame({"text": [f"{WORDS[n % 4]} {OTHER[n % 7]} {n}" for n in range(80)], "label": ["a", "b"] * 40})
    settings = {
        **{"model": str(base), "train": rows, "tune": "0", "out": tmp_path / "out", "num_train_epochs": 4},
        **{"head_learning_rate": 2e-2, "precision": "float32"},
    }
    Sweep(**settings, seeds=2).run(save_model=False)
    folder = Folder(tmp_path / "out")
    second = next(spec for spec in folder.runs if spec.seed != folder.runs[0].seed)
    for path in folder.store.runs.glob(f"{second.digest}.*"):
        path.unlink()
    Sweep(**settings, seeds=1).run()
    said = (tmp_path / "out" / "model" / "README.md").read_text()
    assert "test is looked at when every run of the grid is done" in said and "no test set was given" not in said
    Sweep(**settings, seeds=2).run()
    done = (tmp_path / "out" / "model" / "README.md").read_text()
    assert "is looked at when" not in done and "no test set" not in done
