"""The saved model of each way opens without frostline: with transformers alone, or as an adapter of PEFT."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, GPT2Config, GPT2ForSequenceClassification

from frostline.api.sweep import sweep_of
from frostline.report.answer.recommendation import with_best_run
from frostline.report.recommended_model import save_recommended
from frostline.sweep.progress import Progress
from frostline.sweep.results.folder import Folder
from tiny import tiny_tokenizer


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random GPT-2, whose weight matrices are transposed, with a tokenizer."""
    folder = tmp_path_factory.mktemp("gpt2")
    tokenizer = tiny_tokenizer("input_ids", "attention_mask")
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=16, n_layer=3, n_head=2, n_positions=64, pad_token_id=tokenizer.pad_token_id
    )
    GPT2ForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def saved_model_of(way: str, model: Path, table: Path, out: Path, **more: Any) -> tuple[Path, Folder, Any]:
    """The saved model of a way, as if it had been recommended, its sweep, and the logits of its run."""
    given = {
        "model": model,
        "train": table,
        "out": out,
        "seeds": 1,
        "num_train_epochs": 2,
        "learning_rate": 1e-2,
        "precision": "float32",
        **more,
    }
    sweep = sweep_of(f"{way},last-1", progress=Progress(), **given)
    answer = sweep.run(save_model=False)
    folder = Folder(out)
    run = next(run for run in folder.runs if run.recipe == way)
    first = answer["sizes"][0]
    first["recommended"] = {**with_best_run(first["cells"], way), "test": None}
    saved = save_recommended(sweep._prepare(Progress()), answer, Progress())
    assert saved is not None and json.loads((saved / "frostline.json").read_bytes())["run"] == run.digest
    return saved, folder, folder.store.predictions(run.digest)["validation_best"]


def logits_of(model: Any, saved: Path, folder: Folder) -> Any:
    examples = folder.split("validation")
    assert examples is not None
    batch = AutoTokenizer.from_pretrained(saved)(list(examples.texts), padding=True, return_tensors="pt")
    with torch.no_grad():
        return model.eval()(**batch).logits.numpy()


@pytest.mark.parametrize("way", ["lora-1", "gradual", "lp-ft"])
def test_the_saved_model_of_a_way_opens_with_transformers_alone(
    way: str, tiny_bert: Path, tiny_table: Path, tmp_path: Path
) -> None:
    saved, folder, expected = saved_model_of(way, tiny_bert, tiny_table, tmp_path / "o")
    model = AutoModelForSequenceClassification.from_pretrained(saved)
    assert not [name for name in model.state_dict() if "lora" in name]
    np.testing.assert_allclose(logits_of(model, saved, folder), expected, atol=1e-4)
    assert 0 <= json.loads((saved / "frostline.json").read_bytes())["logit_gap"] < 1e-4


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # PEFT asks transformers for it
@pytest.mark.parametrize("model_type", ["bert", "gpt2"])
def test_keep_adapter_saves_what_peft_loads_onto_the_pretrained_model(
    model_type: str, tiny_bert: Path, gpt2: Path, tiny_table: Path, tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft")
    pretrained = {"bert": tiny_bert, "gpt2": gpt2}[model_type]
    saved, folder, expected = saved_model_of("lora-2", pretrained, tiny_table, tmp_path / "o", keep_adapter=True)
    base = AutoModelForSequenceClassification.from_pretrained(pretrained, num_labels=2)
    untrained = logits_of(base, saved, folder)
    loaded = peft.PeftModel.from_pretrained(base, saved / "adapter")
    np.testing.assert_allclose(logits_of(loaded, saved, folder), expected, atol=1e-4)
    assert abs(untrained - expected).max() > 0.01
    assert json.loads((saved / "adapter" / "adapter_config.json").read_bytes())["fan_in_fan_out"] == (
        model_type == "gpt2"
    )


def test_without_the_flag_and_for_other_ways_no_adapter_is_saved(
    tiny_bert: Path, tiny_table: Path, tmp_path: Path
) -> None:
    pytest.importorskip("peft")
    plain, *_ = saved_model_of("lora-2", tiny_bert, tiny_table, tmp_path / "plain")
    other, *_ = saved_model_of("lp-ft", tiny_bert, tiny_table, tmp_path / "other", keep_adapter=True)
    assert not (plain / "adapter").exists() and not (other / "adapter").exists()
