"""The model card of a saved model."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from huggingface_hub import ModelCard

from frostline.api.sweep import Sweep
from frostline.report.explanations import loading
from frostline.sweep.results.folder import Folder
from pages import answer_of
from tiny import LABELS, OTHER, WORDS, saved_sweep


def test_card(classified: Path) -> None:
    loaded = ModelCard.load(classified / "model" / "README.md")
    assert loaded.data.license == "apache-2.0" and loaded.data.base_model is None
    assert loaded.data.pipeline_tag == "text-classification" and loaded.data.metrics == ["accuracy"]
    recommended = answer_of(classified)["sizes"][0]["recommended"]
    (result,) = loaded.data.eval_results
    assert result.dataset_name == "films | <b>" and result.dataset_split == "validation"
    assert result.metric_value == recommended["validation_best"]
    text = loaded.text
    assert "the best on validation" in text and f"seed {recommended['seed']}" in text and "bitwise identical" in text
    assert "films \\| &lt;b&gt;" in text and "<b>" not in text
    assert "Choice and report use the same data" in text and "(this model)" in text
    for line in text.splitlines():
        if line.startswith(("| classifier head only", "| all")):
            assert line.count("|") == 9
    block = text.split("```json\n")[1].split("\n```")[0]
    assert list(json.loads(block).values()) == sorted(LABELS)


def test_the_card_loads_the_model_as_the_answer_does(classified: Path, regressed: Path) -> None:
    for folder in (classified, regressed):
        code = loading(answer_of(folder), Path("path/to/this/folder"))
        assert f"```python\n{code}\n```" in (folder / "model" / "README.md").read_text()


def test_card_of_named_parts(licensed_bert: Path, tmp_path: Path) -> None:
    out = saved_sweep(licensed_bert, tmp_path / "out", lambda n: LABELS[n], tune="named", tune_modules="layer.2,pooler")
    text = " ".join(ModelCard.load(out / "model" / "README.md").text.split())
    assert "with layer.2, pooler and the head of 3 layers fine-tuned on" in text and "were named by the user" in text
    assert "Nothing was compared" in text and "swept the number" not in text and "bitwise identical" in text


def test_card_of_a_regression(regressed: Path) -> None:
    text = ModelCard.load(regressed / "model" / "README.md").text
    assert "the predicted number" in text and "```json" not in text


@pytest.mark.slow
def test_the_card_of_an_unfinished_sweep_has_no_test_scores_yet(licensed_bert: Path, tmp_path: Path) -> None:
    rows = pd.DataFrame({"text": [f"{WORDS[n % 4]} {OTHER[n % 7]} {n}" for n in range(80)], "label": ["a", "b"] * 40})
    settings = {
        **{"model": str(licensed_bert), "train": rows, "tune": "0", "out": tmp_path / "out", "num_train_epochs": 4},
        **{"head_learning_rate": 2e-2, "precision": "float32"},
    }
    Sweep(**settings, seeds=2).run(save_model=False)
    folder = Folder(tmp_path / "out")
    second = next(spec for spec in folder.runs if spec.seed != folder.runs[0].seed)
    shutil.rmtree(folder.store.runs / second.digest)
    Sweep(**settings, seeds=1).run()
    said = (tmp_path / "out" / "model" / "README.md").read_text()
    assert (
        "the test set is evaluated when every run of the grid is done" in said and "no test set was given" not in said
    )
    Sweep(**settings, seeds=2).run()
    done = (tmp_path / "out" / "model" / "README.md").read_text()
    assert "is evaluated when" not in done and "no test set" not in done
