"""The saved model: its folder as others read it, its card, training once more on all labelled rows, and the last steps."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from filelock import FileLock
from huggingface_hub import ModelCard
from safetensors.numpy import load_file
from scipy.special import softmax
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    GPT2Config,
    GPT2ForSequenceClassification,
    pipeline,
)

import frostline
import frostline.report.recommended_model as recommended_model
from frostline import FrostlineError
from frostline.api.bundle import bundle
from frostline.api.prediction import predict
from frostline.data.load import read_unlabelled
from frostline.model.loading import load_pretrained
from frostline.model.terms import OUTPUT_KEYS
from frostline.report import formatting
from frostline.report.answer.make_answer import best_run
from frostline.report.explanations import loading, sentence_without_command
from frostline.report.rebuild import EARLIER_MODEL, OTHER_MODEL, OTHER_OUTPUTS, finish, write_report
from frostline.report.recommended_model import RecommendedRun, Saved, refit_of, save_recommended
from frostline.statistics.answer import Answer
from frostline.statistics.recipe import Recipe
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder
from frostline.training.saved_estimators import read_estimator
from frostline.training.start import require_peft
from hostile import failing
from pages import answer_of
from small_models import with_own_code
from synthetic_sweep import make_folder
from tiny import (
    LABELS,
    MAX_LENGTH,
    OTHER,
    QUICK,
    WORDS,
    Notes,
    contents,
    plan_of,
    recommended_predictions,
    saved_sweep,
    sentences,
    tiny_tokenizer,
)


def test_pipeline_gives_the_labels_and_the_logits_of_the_run(classified: Path) -> None:
    texts, logits = recommended_predictions(classified)
    classify = pipeline("text-classification", model=str(classified / "model"), top_k=None)
    found = classify(texts, truncation=True, function_to_apply="none")
    labels = sorted(LABELS)
    assert Folder(classified).identity.labels == tuple(labels)
    ours = np.array([[{x["label"]: x["score"] for x in row}[label] for label in labels] for row in found])
    assert np.abs(ours - logits).max() < 1e-5 * np.abs(logits).max()
    likely = classify(texts, truncation=True, top_k=1)
    assert [row[0]["label"] for row in likely] == [labels[n] for n in logits.argmax(1)]


def test_pipeline_gives_the_predicted_number(regressed: Path, classified: Path) -> None:
    texts, logits = recommended_predictions(regressed)
    found = pipeline("text-classification", model=str(regressed / "model"))(texts, truncation=True)
    assert np.abs(np.array([row["score"] for row in found]) - logits[:, 0]).max() < 1e-5 * np.abs(logits).max()
    config = json.loads((regressed / "model" / "config.json").read_text())
    assert config["problem_type"] == "regression"
    text = ModelCard.load(regressed / "model" / "README.md").text
    assert "the predicted number" in text and "```json" not in text
    for folder in (classified, regressed):  # the card loads the model as the answer does
        code = loading(answer_of(folder), Path("path/to/this/folder"))
        assert f"```python\n{code}\n```" in (folder / "model" / "README.md").read_text()


def test_the_folder_holds_the_model_and_nothing_of_this_machine(licensed_bert: Path, classified: Path) -> None:
    folder = classified / "model"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "README.md", "config.json", "frostline.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"
    }  # fmt: skip
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1
    for path in folder.iterdir():
        content = path.read_bytes()
        assert str(licensed_bert).encode() not in content and os.fsencode(classified) not in content
    facts, answer = json.loads((folder / "frostline.json").read_text()), answer_of(classified)
    assert facts["run"] == answer.sizes[0].recommended.run and facts["sentence"] == sentence_without_command(answer)
    assert facts["labels"] == sorted(LABELS) and facts["max_length"] == MAX_LENGTH and facts["logit_gap"] == 0
    config = json.loads((folder / "config.json").read_text())
    assert config["use_cache"] is True and config["problem_type"] == "single_label_classification"
    assert "frostline" not in json.dumps(config) and "_attn_implementation" not in config
    assert config["id2label"] == {str(n): label for n, label in enumerate(sorted(LABELS))}
    assert AutoTokenizer.from_pretrained(folder).model_max_length == MAX_LENGTH
    state = AutoModelForSequenceClassification.from_pretrained(folder).state_dict()
    assert all(value.dtype == torch.float32 for value in state.values() if value.is_floating_point())


def test_an_older_folder_is_replaced_as_a_whole(licensed_bert: Path, classified: Path, tmp_path: Path) -> None:
    folder, answer, out = Folder(classified), answer_of(classified), tmp_path / "deep"
    identity, target = folder.identity, out / "model"
    pretrained = load_pretrained(str(licensed_bert), labels=identity.labels, task_type=identity.task_type)
    plan: Any = SimpleNamespace(identity=identity, spec=folder.spec, store=SimpleNamespace(out=out))
    spec = next(run for run in folder.runs if run.digest == answer.sizes[0].recommended.run)
    experiment: Any = SimpleNamespace(for_run=lambda _: SimpleNamespace(pretrained=pretrained))
    save = partial(RecommendedRun(plan, answer, Progress(), spec)._write, experiment)
    limit = (pretrained.tokenizer.model_max_length, dict(pretrained.tokenizer.init_kwargs))
    save(Saved(0.0, trained_again=False))
    (target / "old.txt").write_text("of an older model")
    save(Saved(2.5e-4, trained_again=True))
    assert not (target / "old.txt").exists() and "0.00025" in (target / "README.md").read_text()
    assert [path.name for path in target.parent.iterdir()] == ["model"]
    assert (pretrained.tokenizer.model_max_length, pretrained.tokenizer.init_kwargs) == limit
    assert pretrained.model.config.use_cache is False
    before = contents(target)
    with pytest.raises(FrostlineError, match=r"could not be written to .*No space left"), failing(1, "ENOSPC"):
        save(Saved(0.0, trained_again=False))
    assert contents(target) == before and [path.name for path in target.parent.iterdir()] == ["model"]


def test_temperature_and_threshold_are_saved_and_applied(licensed_bert: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"tune": "0", "head_learning_rate": 2e-3, "num_train_epochs": 2}
    out = saved_sweep(licensed_bert, tmp_path / "out", lambda n: "ab"[n % 2], **settings)
    model, texts = out / "model", recommended_predictions(out)[0]
    plain, runs = predict(model, texts), sorted(path.name for path in (out / "runs").iterdir())
    assert plain.temperature == 1 and not plain.thresholds and not {*OUTPUT_KEYS} & read_config(model).keys()
    saved_sweep(licensed_bert, out, lambda n: "ab"[n % 2], **settings, calibrate=True, threshold=0.7)
    assert sorted(path.name for path in (out / "runs").iterdir()) == runs, "no run is trained for it"
    answer, config, found = answer_of(out), read_config(model), predict(model, texts)
    temperature = answer.calibration.temperature
    keys = {"calibration_temperature": temperature, "decision_threshold": 0.7, "decision_threshold_label": "b"}
    assert keys.items() <= config.items() and found.temperature == temperature != 1
    assert found.labels == ["b" if p >= 0.7 else "a" for p in found.values[:, 1]] != plain.labels
    card = " ".join((model / "README.md").read_text().split())
    assert "is saved as calibration\\_temperature in config.json" in card and "This threshold was given." in card
    assert card.count("frostline predict applies what is saved") == 1
    assert "Precision, recall and F1 on validation at the threshold 0.5, over" in card
    page = (out / "report.html").read_text()
    assert page.count("These scores are at the threshold 0.5.") == 1 and ", at the threshold 0.5)." in page
    scores = [row["score"] for row in pipeline("text-classification", model=str(model))(texts, truncation=True)]
    assert scores == pytest.approx(plain.values.max(1), abs=1e-5), "transformers ignores the keys"
    AutoModelForSequenceClassification.from_pretrained(model).save_pretrained(tmp_path / "again")
    assert keys.items() <= read_config(tmp_path / "again").items(), "and keeps them"


def read_config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config


def test_a_model_with_code_of_its_own_is_saved_with_it(licensed_bert: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(licensed_bert, tmp_path / "own"))
    with_own_code(folder)
    out = saved_sweep(folder, tmp_path / "out", lambda n: "ab"[n % 2], tune="0", trust_remote_code=True)
    assert json.loads((out / "model" / "config.json").read_text())["use_cache"] is True
    assert (out / "model" / "modeling_own.py").is_file() and (out / "report.html").is_file()
    assert "No other choice was trained." in " ".join((out / "model" / "README.md").read_text().split())
    texts, logits = recommended_predictions(out)
    got = predict(out / "model", read_unlabelled(pd.DataFrame({"text": texts}))[0], trust_remote_code=True)
    assert [got.classes[n] for n in got.values.argmax(1)] == ["ab"[n] for n in logits.argmax(1)]


def test_card(classified: Path) -> None:
    loaded = ModelCard.load(classified / "model" / "README.md")
    assert loaded.data.license == "apache-2.0" and loaded.data.base_model is None
    assert loaded.data.pipeline_tag == "text-classification" and loaded.data.metrics == ["accuracy"]
    recommended = answer_of(classified).sizes[0].recommended
    (result,) = loaded.data.eval_results
    assert result.dataset_name == "films | <b>" and result.dataset_split == "validation"
    assert result.metric_value == recommended.validation_best
    text = loaded.text
    assert "the best on validation" in text and f"seed {recommended.seed}" in text and "bitwise identical" in text
    assert "films \\| &lt;b&gt;" in text and "<b>" not in text
    assert "Choice and report use the same data" in text and "(this model)" in text
    for line in text.splitlines():
        if line.startswith(("| classifier head only", "| all")):
            assert line.count("|") == 9
    block = text.split("```json\n")[1].split("\n```")[0]
    assert list(json.loads(block).values()) == sorted(LABELS)


def test_card_of_named_parts(licensed_bert: Path, tmp_path: Path) -> None:
    settings = {"tune": "named", "tune_modules": "layer.1,pooler", "num_train_epochs": "3.5,4", "depth": 2}
    out = saved_sweep(licensed_bert, tmp_path / "out", lambda n: LABELS[n], **settings)
    text = " ".join(ModelCard.load(out / "model" / "README.md").text.split())
    cut = "cut to its first 2 layers, with layer.1, pooler and the head of 2 layers fine-tuned for"
    assert re.search(rf"{cut} (3.5|4) epochs on", text)
    assert [json.loads((out / file).read_text())["depth"] for file in ("answer.json", "model/frostline.json")] == [2, 2]
    assert "were named by the user" in text
    assert "Nothing was compared" in text and "swept the number" not in text and "bitwise identical" in text


@pytest.mark.slow
def test_the_card_of_an_unfinished_sweep_has_no_test_scores_yet(licensed_bert: Path, tmp_path: Path) -> None:
    rows = pd.DataFrame({"text": [f"{WORDS[n % 4]} {OTHER[n % 7]} {n}" for n in range(80)], "label": ["a", "b"] * 40})
    settings = {
        **{"model": str(licensed_bert), "train": rows, "tune": "0", "out": tmp_path / "out", "num_train_epochs": 4},
        **{"head_learning_rate": 2e-2, "precision": "float32"},
    }
    frostline.sweep(save_model=False, **settings, seeds=2)
    folder = Folder(tmp_path / "out")
    second = next(spec for spec in folder.runs if spec.seed != folder.runs[0].seed)
    shutil.rmtree(folder.store.runs / second.digest)
    frostline.sweep(**settings, seeds=1)
    said = (tmp_path / "out" / "model" / "README.md").read_text()
    assert "the test set is evaluated when every run of the grid is done" in said
    assert "no test set was given" not in said
    frostline.sweep(**settings, seeds=2)
    done = (tmp_path / "out" / "model" / "README.md").read_text()
    assert "is evaluated when" not in done and "no test set" not in done


@pytest.fixture(scope="module")
def pooled(licensed_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep that recommends such a model."""
    out = tmp_path_factory.mktemp("pooled") / "o"
    return saved_sweep(licensed_bert, out, lambda n: LABELS[n], tune="0,mean-pooled", price=0)


def test_the_logits_are_those_of_the_run_with_and_without_frostline(
    pooled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sentence_transformers import SentenceTransformer  # takes seconds

    texts, logits = recommended_predictions(pooled)
    found = SentenceTransformer(str(pooled / "model"), device="cpu").encode(list(texts))
    assert np.abs(found - logits).max() < 1e-5 * np.abs(logits).max()
    assert predict(pooled / "model", list(texts)).values == pytest.approx(softmax(logits, axis=1), abs=1e-5)
    code = loading(answer_of(pooled), pooled / "model")
    assert code is not None and len(code.splitlines()) == 3 and code.startswith("import frostline\n")
    exec(code, {})
    shown = capsys.readouterr().out
    assert any(f"'label': {label!r}" in shown for label in LABELS)
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "ways-to-tune.md").read_text(encoding="utf-8")
    (printed,) = re.findall(r"```text\n(from sentence_transformers.*?)```", page, re.DOTALL)
    exec(printed.replace("ways/model", str(pooled / "model")), {})
    assert capsys.readouterr().out.strip() in {f"['{label}']" for label in LABELS}


def test_answer_card_and_page_say_what_the_head_reads(pooled: Path, classified: Path, tmp_path: Path) -> None:
    card = " ".join((pooled / "model" / "README.md").read_text().split())
    assert answer_of(pooled).opened_by == "sentence-transformers" and "library_name: sentence-transformers" in card
    assert "The head reads the mean of all tokens." in card and "frostline.predict(" in card
    assert "| share of the gain of head only |" in card and "full" not in card.split("## Selection")[1].split("|---")[0]
    assert "| share of full's gain |" in (classified / "model" / "README.md").read_text()
    opened = "The model opens with frostline or sentence-transformers, not with transformers' `pipeline`."
    assert opened in answer_of(pooled).sentence and "pipeline" not in answer_of(classified).sentence
    write_report(pooled)
    assert "frostline.predict(" in (pooled / "report.html").read_text(encoding="utf-8")
    with pytest.raises(FrostlineError, match="has another head than its type, which a bundle cannot hold"):
        bundle([pooled, classified], out=tmp_path / "b", names=["a", "b"])
    answer = answer_of(pooled)  # of pairs
    answer.columns = {**(answer.columns or {}), "text_pair": "other"}
    assert '"text_pair": ["Its pair."]' in str(loading(answer, pooled / "model"))


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


def saved_models_of(
    ways: str, model: Path, table: Path, out: Path, keep_adapter: Callable[[str], bool]
) -> Iterator[tuple[str, Path, Folder, Any]]:
    """Each way of a comparison with its saved model, as if it had been recommended, its sweep, and the logits of its run."""
    own = {"model": model, "train": table, "out": out, "seeds": 1, "num_train_epochs": 2, "learning_rate": 1e-2}
    own |= {"precision": "float32", "progress": Progress()}
    answer = frostline.sweep(tune=f"{ways},last-1", save_model=False, **own).answer
    for way in ways.split(","):
        folder, first = Folder(out), answer.sizes[0]
        run = next(run for run in folder.runs if run.recipe == way)
        first.recommended = best_run(first.cell(way))
        plan = plan_of(**own, tune=f"{ways},last-1", keep_adapter=keep_adapter(way))
        save_recommended(plan, answer, Progress())
        saved = out / "model"
        assert facts(out)["run"] == run.digest
        yield way, saved, folder, folder.store.predictions(run.digest)["validation_best"]


def logits_of(model: Any, saved: Path, folder: Folder) -> Any:
    examples = folder.split("validation")
    assert examples is not None
    batch = AutoTokenizer.from_pretrained(saved)(list(examples.texts), padding=True, return_tensors="pt")
    with torch.no_grad():
        return model.eval()(**batch).logits.numpy()


def test_the_saved_model_of_a_way_opens_with_transformers_alone(
    tiny_bert: Path, tiny_table: Path, tmp_path: Path
) -> None:
    """Without the flag, and for other ways than LoRA, no adapter is saved."""
    pytest.importorskip("peft")
    ways, with_flag = "lora-1,gradual,lp-ft", lambda way: way == "lp-ft"
    for _, saved, folder, expected in saved_models_of(ways, tiny_bert, tiny_table, tmp_path / "o", with_flag):
        model = AutoModelForSequenceClassification.from_pretrained(saved)
        assert not [name for name in model.state_dict() if "lora" in name] and not (saved / "adapter").exists()
        np.testing.assert_allclose(logits_of(model, saved, folder), expected, atol=1e-4)
        assert 0 <= json.loads((saved / "frostline.json").read_bytes())["logit_gap"] < 1e-4


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # PEFT asks transformers for it
@pytest.mark.parametrize(("model_type", "way"), [("bert", "lora-all"), ("gpt2", "lora-2")])
def test_keep_adapter_saves_what_peft_loads_onto_the_pretrained_model(
    model_type: str, way: str, tiny_bert: Path, gpt2: Path, tiny_table: Path, tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft")
    pretrained = {"bert": tiny_bert, "gpt2": gpt2}[model_type]
    ((_, saved, folder, expected),) = saved_models_of(way, pretrained, tiny_table, tmp_path / "o", lambda way: True)
    base = AutoModelForSequenceClassification.from_pretrained(pretrained, num_labels=2)
    untrained = logits_of(base, saved, folder)
    loaded = peft.PeftModel.from_pretrained(base, saved / "adapter")
    np.testing.assert_allclose(logits_of(loaded, saved, folder), expected, atol=1e-4)
    assert abs(untrained - expected).max() > 0.01
    written = json.loads((saved / "adapter" / "adapter_config.json").read_bytes())
    assert written["fan_in_fan_out"] == (model_type == "gpt2")
    assert written["base_model_name_or_path"] == pretrained.name  # no path of this machine


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"tune": "lora-1,last-1", "depth": 2}, "but --depth 2 leaves layers out: leave --keep-adapter out"),
        (
            {"tune": "mean,last-1", "way": {"mean": {"tune": 1, "low_rank": 4, "head_reads": "mean"}}},
            "but mean has another head",
        ),
    ],
)
def test_no_adapter_of_what_peft_would_load_onto_another_model(
    settings: dict[str, Any], why: str, tiny_bert: Path, tiny_table: Path, tmp_path: Path
) -> None:
    pytest.importorskip("peft")
    with pytest.raises(FrostlineError, match=why):
        plan_of(model=tiny_bert, train=tiny_table, out=tmp_path / "o", keep_adapter=True, **settings)


def test_without_peft_the_flag_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FrostlineError, match="needs PEFT: install it"):
        require_peft()


FOLDS: dict[str, Any] = {"train": pd.DataFrame(sentences(60)), "folds": 3}
LAST = {"load_best_model_at_end": False, "evaluations_per_epoch": 0}  # as a refit, which has no validation rows


def trained(out: Path, **settings: Any) -> tuple[Answer, list[str]]:
    """The answer of a sweep of one recipe, and what a user read."""
    notes = Notes()
    given = {**QUICK, "tune": 2, "test": "none", "workers": 1, "out": out, **settings}
    return frostline.sweep(**given, progress=notes).answer, notes.notes


def weights(out: Path) -> dict[str, Any]:
    return load_file(out / "model" / "model.safetensors")


def facts(out: Path) -> Any:
    return json.loads((out / "model" / "frostline.json").read_bytes())


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


@pytest.mark.parametrize("held_out", [False, True])
def test_it_is_the_model_of_a_sweep_that_trains_on_all_rows(tiny_bert: Path, tmp_path: Path, held_out: bool) -> None:
    """With folds that is the default. Rows that are held out for validation come after those of training."""
    rows, given = pd.DataFrame(sentences(60)), {"model": tiny_bert, **LAST, "seeds": [2]}
    parts = {"train": rows[:45], "validation": rows[45:], "refit": True} if held_out else {"train": rows, "folds": 3}
    answer, _ = trained(tmp_path / "o", **given, **parts)
    trained(tmp_path / "all", **given, train=rows, validation=rows[45:])
    assert answer.refit_rows == 60 and facts(tmp_path / "o")["refit"]["rows"] == 60
    assert_same(weights(tmp_path / "o"), weights(tmp_path / "all"))


def test_it_is_trained_once(tiny_bert: Path, tmp_path: Path) -> None:
    """A second call finds it, also for another card; without the flag it is replaced."""
    given = {"model": tiny_bert, **FOLDS}
    answer, _ = trained(tmp_path / "o", seeds=3, **given)
    found = facts(tmp_path / "o")
    assert found["run"] == answer.sizes[0].recommended.run and found["logit_gap"] is None  # type: ignore[union-attr]
    card = (tmp_path / "o" / "model" / "README.md").read_text()
    assert "on all 60 labelled" in card and "fine-tuned on 60 examples" in card and "metric_value" not in card
    said, page = (
        "on all 60 labelled rows. Scores are those of the validated runs",
        (tmp_path / "o/report.html").read_text(),
    )
    assert "which had 40 training examples" in card and f"{said}, which had 40 training examples." in page
    runs = "2 runs, each on examples that it was not trained on"  # the third one has learned nothing
    assert f"of 40 validation examples are misclassified (tuning the last 2 layers, {runs})." in page
    file, before = tmp_path / "o" / "model" / "model.safetensors", weights(tmp_path / "o")
    written = file.stat().st_mtime_ns
    trained(tmp_path / "o", seeds=3, **given)
    assert file.stat().st_mtime_ns == written
    trained(tmp_path / "o", seeds=3, **given, calibrate=True)  # another card, the same weights
    assert file.stat().st_mtime_ns != written
    assert_same(weights(tmp_path / "o"), before)
    plain, _ = trained(tmp_path / "o", seeds=3, **given, refit=False)
    assert plain.refit_rows is None and facts(tmp_path / "o")["logit_gap"] == 0
    assert any(abs(before[name] - value).max() > 0 for name, value in weights(tmp_path / "o").items())


def test_it_has_the_micro_batches_that_fitted_into_memory(settings: dict[str, Any]) -> None:
    plan = plan_of(**settings, folds=3)
    spec = plan.requested[-1]
    plan.experiment.worker.micro_batches[spec.stack_key] = 2
    refit, experiment = refit_of(spec, plan.experiment)
    assert experiment.micro_batch(refit) == 2


def test_if_it_fails_the_validated_model_is_saved(
    tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **more: Any) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(recommended_model, "run", fail)
    answer, notes = trained(tmp_path / "o", model=tiny_bert, **FOLDS, seeds=1)
    kept = "Training on all 60 labelled rows failed (RuntimeError: no memory); the saved model is that of the best run instead."
    assert kept in notes and answer.refit_rows is None and facts(tmp_path / "o")["logit_gap"] == 0


def test_a_way_that_stops_early_is_not_trained_on_all_rows(tiny_bert: Path, tmp_path: Path) -> None:
    """No validation rows would be left to stop it, so it would be trained much longer than the run that was scored."""
    given: dict[str, Any] = {
        **QUICK,
        "model": tiny_bert,
        "train": FOLDS["train"],
        "out": tmp_path / "o",
        "test": "none",
    }
    given |= {"seeds": 1, "tune": "early,last-1", "way": {"early": {"tune": 1, "patience": 1}}, "refit": True}
    answer = frostline.sweep(**given, save_model=False, progress=Progress()).answer
    answer.sizes[0].recommended = best_run(answer.sizes[0].cell("early"))
    save_recommended(plan_of(**given), answer, notes := Notes())
    assert any(one.startswith("early stops when its score on validation does not rise") for one in notes.notes)
    assert facts(tmp_path / "o")["logit_gap"] == 0 and "refit" not in facts(tmp_path / "o")


def test_a_way_without_the_loop_is_fitted_again(tiny_bert: Path, tmp_path: Path) -> None:
    given = {**FOLDS, "model": tiny_bert, "seeds": 3, "test": "none", "tune": "words,0", "price": 50}
    answer, _ = trained(out := tmp_path / "o", **given)
    assert answer.sizes[0].recommended.recipe == "words" and answer.refit_rows == 60  # type: ignore[union-attr]
    assert len(list(frostline.predict(out / "model", ["a warm film"]).rows())) == 1
    shutil.rmtree(out / "model")
    save_recommended(plan_of(**{**QUICK, **given, "out": out}), answer, Notes(), interrupted=True)
    assert "refit" not in facts(out)  # an interrupted search saves what it has


def test_a_sweep_keeps_no_other_model_than_the_one_that_is_recommended(tiny_bert: Path, tmp_path: Path) -> None:
    """In the folder of a search, more runs can change which of the models that train no layer is the best."""
    given = {**FOLDS, "model": tiny_bert, "seeds": 3, "test": "none", "tune": "words,0", "price": 50}
    answer, _ = trained(out := tmp_path / "o", **given)
    plan, size = plan_of(**{**QUICK, **given, "out": out}), answer.sizes[0]
    answer.sentence = "More runs have changed this."
    assert size.decision is not None
    for choice in map(Recipe, ("words", "probe")):
        size.recommended, size.decision = None, replace(size.decision, choice=choice)
        save_recommended(plan, answer, notes := Notes())
        assert (out / "model").is_dir() == (choice == "words") == (not notes.notes)
        if choice == "words":
            assert size.decision is not None and read_estimator(out / "model").facts.sentence == answer.sentence


PRICES = [{**row, "label": 3e5 + 1e5 * (row["label"] == "positive") + 7.3 * n} for n, row in enumerate(sentences(60))]


@pytest.mark.parametrize("numbers", [{}, {"train": pd.DataFrame(PRICES), "task_type": "regression"}])
def test_card_and_settings_follow_the_answer_whatever_its_sentence(
    tiny_bert: Path, tmp_path: Path, numbers: dict[str, Any]
) -> None:
    """More runs, a new price or other columns can change the table of the card and not the sentence.

    The saved weights are those of the run, which large numbers give within rounding.
    """
    given = {"model": tiny_bert, **FOLDS, "seeds": 3, "refit": False, **numbers}
    answer, _ = trained(out := tmp_path / "o", **given)
    plan, card, file = plan_of(**{**QUICK, "test": "none", **given, "tune": 2, "out": out}), "model/README.md", "model"
    written = (out / file).stat().st_ino
    save_recommended(plan, answer, Notes())
    assert (out / file).stat().st_ino == written  # nothing has changed
    answer.sizes[0].cells[0].seconds = 7200.0
    save_recommended(plan, answer, Notes())
    assert formatting.seconds(7200.0) in (out / card).read_text() and facts(out)["trained_again"] is False
    answer.columns = {**(answer.columns or {}), "text": "review"}
    save_recommended(plan, answer, Notes())
    assert facts(out)["columns"]["text"] == "review"


def test_a_model_that_is_not_recommended_any_more_is_named(tiny_bert: Path, tmp_path: Path) -> None:
    given = {"model": tiny_bert, **FOLDS, "seeds": 3, "tune": "0,2", "price": 90}
    before, _ = trained(out := tmp_path / "o", **given)
    given["price"] = 0
    answer, _ = trained(out, save_model=False, **given)
    assert [one.sizes[0].recommended.recipe for one in (before, answer)] == ["head only", "last 2"]  # type: ignore[union-attr]
    assert answer.sentence.count(OTHER_MODEL) == 1 and answer == frostline.open(out).answer
    assert OTHER_MODEL in (out / "report.html").read_text()
    write_report(out)
    assert frostline.open(out).sentence.count(OTHER_MODEL) == 1
    answer, _ = trained(out, **given)
    assert OTHER_MODEL not in answer.sentence and OTHER_MODEL not in (out / "report.html").read_text()
    answer, _ = trained(out, save_model=False, threshold=0.9, **given)
    assert answer.sentence.endswith(OTHER_OUTPUTS) and OTHER_MODEL not in answer.sentence
    assert OTHER_OUTPUTS not in trained(out, threshold=0.9, **given)[0].sentence
    shutil.rmtree(out / "runs")
    assert write_report(out).sentence.startswith("There is no answer")
    assert frostline.open(out).sentence.endswith(EARLIER_MODEL)


def finished(out: Path) -> Answer:
    plan: Any = SimpleNamespace(store=SimpleNamespace(out=out), spec=SimpleNamespace(track=None))
    return finish(plan, Progress(), save_model=False)


def test_one_process_at_a_time_finishes_and_an_error_leaves_the_lock_free(tmp_path: Path) -> None:
    out = make_folder(tmp_path / "out", tune=(0, "full"), seeds=1)
    (out / "report.html").unlink()
    with ThreadPoolExecutor() as pool:
        with FileLock(out / ".finish.lock"):
            waiting = pool.submit(finished, out)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.5)
            assert not (out / "report.html").exists()
        assert waiting.result().sentence and (out / "report.html").exists()
    (out / "validation.parquet").unlink()
    for _ in range(2):
        with pytest.raises(FrostlineError, match=r"validation\.parquet"):
            finished(out)


def test_scores_of_a_refit_come_with_a_warning(tiny_bert: Path, tmp_path: Path, frostline: Any) -> None:
    """The rows may be those that it was trained on."""
    rows = pd.DataFrame(sentences(60))
    rows.to_csv(tmp_path / "rows.csv", index=False)
    given = {"model": tiny_bert, "train": rows, "folds": 3, "seeds": 1}
    warning = "trained on, which are all 60 labelled rows of its sweep"
    for refit in (True, False):
        trained(tmp_path / "o", **given, refit=refit)
        found = frostline("evaluate", tmp_path / "o" / "model", tmp_path / "rows.csv")
        assert (warning in " ".join(found.err.split())) is refit
