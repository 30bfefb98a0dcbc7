"""Token classification from a file to the saved model: sweep, report, pipeline of transformers."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.trainers import BpeTrainer
from transformers import AutoModel, PreTrainedTokenizerFast, pipeline

import frostline
from frostline import FrostlineError
from frostline.api.bundle import bundle
from frostline.api.find import find
from frostline.api.prediction import TagPredictions
from frostline.api.prediction import predict as frostline_predict
from frostline.data.kinds import TOKENS
from frostline.data.reader import read_table
from frostline.report.explanations import loading
from frostline.statistics.metrics import predict
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder
from small_models import small_config
from tagged import LABELS, small_base, table, tagged
from tiny import QUICK, Frostline, plan_of, run_sweep

SHORT = {"tune": "0", "seeds": 1, **QUICK, "num_train_epochs": 1}
SETTINGS: dict[str, Any] = {"tune": "0,1,all", "seeds": 2, "progress": Progress(), **QUICK}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_base(tmp_path_factory.mktemp("base"), "bert")


@pytest.fixture(scope="module")
def finished(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished sweep on sentences with tags, with report and model."""
    out = tmp_path_factory.mktemp("tags") / "o"
    frostline.sweep(model=base, train=table(120), out=out, **SETTINGS)
    return out


def test_the_answer_is_about_entities(finished: Path) -> None:
    answer = json.loads((finished / "answer.json").read_bytes())
    assert answer["metric"] == "entity_f1" and answer["task_type"] == "token-classification"
    assert answer["sizes"][0]["recommended"]["validation_best"] > 0.5
    assert 0 < answer["chance"] < 0.5 and answer["calibration"]["counted"] == "words" and answer["threshold"] is None


def test_the_saved_model_opens_in_a_pipeline(finished: Path) -> None:
    tagger = pipeline("token-classification", str(finished / "model"), aggregation_strategy="simple")
    found = tagger("Anna sings in Rome")
    assert {one["entity_group"] for one in found} <= {"person", "place"}
    assert tagger.model.config.id2label == dict(enumerate(LABELS))


def test_a_pipeline_finds_the_entities_of_running_text(tmp_path: Path) -> None:
    """With a tokenizer that gives a word after a space other tokens than the word alone."""
    words, tags = tagged(150)
    bpe = Tokenizer(models.BPE(unk_token="<unk>"))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<pad>", "<unk>", "</s>"]
    bpe.train_from_iterator([" ".join(sentence) for sentence in words], BpeTrainer(special_tokens=special))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, pad_token="<pad>", unk_token="<unk>", eos_token="</s>", model_max_length=96
    )
    tokenizer.save_pretrained(tmp_path / "base")
    config = small_config("llama", 3)
    config.vocab_size = len(tokenizer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModel.from_config(config).save_pretrained(tmp_path / "base")
    train = pd.DataFrame({"tokens": words, "ner_tags": tags})
    settings = {**SETTINGS, "tune": "full", "seeds": 1, "learning_rate": 3e-3}
    answer = frostline.sweep(model=tmp_path / "base", train=train, out=tmp_path / "o", **settings).answer
    tagger = pipeline("token-classification", str(tmp_path / "o" / "model"), aggregation_strategy="simple")
    found, expected = [], []
    for sentence, of_sentence in zip(*tagged(30, seed=1), strict=True):
        text = " ".join(sentence)
        ends = np.cumsum([len(word) + 1 for word in sentence]) - 1
        for word, tag, end in zip(sentence, of_sentence, ends, strict=True):
            if tag.startswith("B-"):
                expected.append((text, end - len(word), end))
            elif tag.startswith("I-"):
                expected[-1] = (*expected[-1][:2], end)
        spans = [(one["start"] + (text[one["start"]] == " "), one["end"]) for one in tagger(text)]
        found += [(text, *span) for span in spans]
    assert answer.sizes[0].recommended.validation_best > 0.95
    assert len({*found} & {*expected}) > 0.95 * len(expected) and len(found) < 1.05 * len(expected)


def test_a_threshold_is_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(FrostlineError, match="--threshold is for labels of texts, but words have tags"):
        frostline.sweep(model=base, train=table(60), out=tmp_path / "o", threshold=0.4, **SETTINGS)


def test_a_temperature_divides_the_logits_of_words(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "o"
    settings = {"model": base, "train": table(60), "out": out, "calibrate": True, "progress": Progress(), **SHORT}
    calibration = frostline.sweep(**settings).answer.calibration
    logits = Folder(out).predictions(json.loads((out / "answer.json").read_bytes())["sizes"][0]["recommended"]["run"])
    rows = pd.read_parquet(out / "validation.parquet")
    found = frostline_predict(out / "model", [text.split("\n") for text in rows["text"]])
    assert isinstance(found, TagPredictions) and found.temperature == calibration.temperature != 1
    assert calibration.examples == sum(len(tags) for tags in found.tags)
    for own, probabilities in zip(logits, found.probabilities, strict=True):
        scaled = np.exp(own[: len(probabilities)] / found.temperature)
        np.testing.assert_allclose((scaled / scaled.sum(1, keepdims=True)).max(1), probabilities, atol=1e-5)


def predicted_and_expected(out: Path) -> tuple[list[Any], list[Any]]:
    """Words and tags of the validation examples: as the saved model predicts them, and as its run did."""
    rows, folder = pd.read_parquet(out / "validation.parquet"), Folder(out)
    run = json.loads((out / "answer.json").read_bytes())["sizes"][0]["recommended"]["run"]
    expected = predict(folder.predictions(run), TOKENS)
    found = frostline_predict(out / "model", [text.split("\n") for text in rows["text"]])
    assert isinstance(found, TagPredictions) and found.classes == LABELS and found.truncated == 0
    assert all(0 < p <= 1 for row in found.rows() for p in row["probabilities"])
    tags = [[LABELS[tag] for tag in of_sentence if tag >= 0] for of_sentence in expected]
    words = [text.split("\n") for text in rows["text"]]
    return [(row["tokens"], row["tags"]) for row in found.rows()], list(zip(words, tags, strict=True))


def test_predicted_tags_are_those_of_the_sweep(finished: Path) -> None:
    predicted, expected = predicted_and_expected(finished)
    assert predicted == expected


def test_words_after_the_length_limit_have_no_tag(finished: Path) -> None:
    (row,) = frostline_predict(finished / "model", [["Rome"] * 200]).rows()
    assert row["tags"][:94].count(None) == 0 and set(row["tags"][94:]) == {None}


@pytest.mark.parametrize(
    ("name", "written"), [("new.conll", "new.predictions.conll"), ("new.jsonl", "new.predictions.jsonl")]
)
def test_the_command_writes_word_by_word(
    finished: Path, frostline: Frostline, tmp_path: Path, name: str, written: str
) -> None:
    frame = table(5, seed=7)
    if name.endswith("conll"):
        (tmp_path / name).write_text("\n".join("".join(f"{word}\n" for word in words) for words in frame["tokens"]))
    else:
        frame[["tokens"]].to_json(tmp_path / name, orient="records", lines=True)
    result = frostline("predict", finished / "model", name)
    assert result.code == 0 and f"{written}: 5 sentences" in result.out
    again = read_table(tmp_path / written)
    assert again.cells("tokens") == frame["tokens"].tolist()
    expected = [row["tags"] for row in frostline_predict(finished / "model", tmp_path / name).rows()]
    assert again.cells("tags") == expected
    refused = frostline("predict", finished / "model", name, "--out", "a.csv")
    assert refused.code == 2 and "use .conll, .jsonl or .parquet" in refused.err


def test_words_that_no_line_can_hold_are_written_as_json_lines(
    finished: Path, frostline: Frostline, tmp_path: Path
) -> None:
    for word in ("Anna\tLee", "", "-DOCSTART-"):
        rows = pd.DataFrame({"tokens": [["It", "rains"], [word, "sings"]]})
        rows.to_json(tmp_path / "new.jsonl", orient="records", lines=True)
        result = frostline("predict", finished / "model", "new.jsonl", "--out", "new.conll")
        assert result.code == 2 and f"row 2: a CoNLL file cannot hold the word {word!r}" in result.err
    done = frostline("predict", finished / "model", "new.jsonl", "--out", "tagged.jsonl")
    assert done.code == 0 and "tagged.jsonl: 2 sentences\n" in done.out


def test_words_without_a_token_are_counted(finished: Path, frostline: Frostline, tmp_path: Path) -> None:
    rows = {"tokens": [["It", "", "rains"], ["\u3000", "sings"]], "ner_tags": [["O"] * 3, ["B-person", "O"]]}
    pd.DataFrame(rows).to_json(tmp_path / "new.jsonl", orient="records", lines=True)
    predicted = frostline("predict", finished / "model", "new.jsonl")
    assert "new.predictions.jsonl: 2 sentences; 2 words have no token, and no tag" in predicted.out
    scored = frostline("evaluate", finished / "model", "new.jsonl")
    assert "2 words have no token, and no tag: an entity that begins with one counts as missed." in scored.err


def test_what_a_tagger_cannot_read_is_refused(finished: Path) -> None:
    for texts, sentence in (
        (["Anna sings."], "Sentence 1: 'Anna sings.' is not a list of words; in JSON lines or Parquet, give a list"),
        ([["Anna"], ["sings", 1]], "Sentence 2: the word 1 is not a text"),
        ([["Anna"], ["sings\nloud"]], "Sentence 2: the word .* contains a line break"),
        ([["Anna"], []], "Sentence 2: the sentence has no words"),
        ([], "The list of sentences is empty"),
        (pd.DataFrame({"tokens": ["Anna sings."]}), "is not a list of words"),
    ):
        with pytest.raises(FrostlineError, match=sentence):
            frostline_predict(finished / "model", texts)
    for option, sentence in (
        ({"threshold": 0.5}, "leave --threshold out"),
        ({"text_pair_column": "b"}, "leave --text-pair-column out"),
        ({"threshold": 0.5, "text_pair_column": "b"}, "leave --threshold and --text-pair-column out"),
    ):
        with pytest.raises(FrostlineError, match=f"predicts tags of words: {sentence}"):
            frostline_predict(finished / "model", [["Anna"]], **option)


def test_a_bundle_is_of_models_of_texts(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "model", tmp_path / "other")
    with pytest.raises(FrostlineError, match="predicts tags of words: give one that predicts labels"):
        bundle([finished / "model", tmp_path / "other"], out=tmp_path / "b", names=["one", "other"])


def test_the_report_shows_types_and_wrong_words(finished: Path) -> None:
    page = (finished / "report.html").read_text()
    for text in ("<h2>Types and probabilities</h2>", "Scores by type", "Words by tag", "Entities of 2 types"):
        assert text in page
    assert "A row for each true type, a column for each predicted type. The first word of an entity" in page
    assert "Sentences with the most wrong words" in page or "classified correctly" in page
    card = (finished / "model" / "README.md").read_text()
    assert "pipeline_tag: token-classification" in card and 'aggregation_strategy="simple"' in card
    assert "nan" not in card


def test_all_tokens_are_labelled_on_request(base: Path, tmp_path: Path, tiny_table: Path) -> None:
    given = {"model": base, "train": table(60), "out": tmp_path / "o", **SHORT}
    run_sweep({**given, "label_all_tokens": True})
    (one,), (other,) = Folder(tmp_path / "o").rows, plan_of(**{**given, "out": tmp_path / "p"}).runs
    assert one.train_last is not None and one.run != other.digest
    with pytest.raises(FrostlineError, match="--label-all-tokens is for tags of words"):
        run_sweep({"model": base, "train": tiny_table, "out": tmp_path / "q", "label_all_tokens": True, **SHORT})


@pytest.mark.slow
def test_a_forecast_times_the_scoring_of_words(base: Path, tmp_path: Path) -> None:
    plan = frostline.plan(model=base, train=table(60), out=tmp_path / "o", **SETTINGS)
    assert plan.forecast is not None and all(cell.seconds > 0 for cell in plan.forecast.cells)


@pytest.mark.slow
def test_a_search_fits_probes_of_words(base: Path, tmp_path: Path) -> None:
    settings = {"model": base, "train": table(100), "out": tmp_path / "o", "budget": 1000.0, "progress": Progress()}
    answer = find(**settings, **{**QUICK, "num_train_epochs": 1, "seeds": 2, "tune": "0,1"}).answer
    assert answer.metric == "entity_f1" and answer.decision.choice == "probe"
    (found,) = frostline_predict(tmp_path / "o" / "model", [["Anna", "sings", "in", "Rome"]]).rows()
    assert found["tags"] == ["B-person", "O", "O", "B-place"]
    vectors = {one["vector"] for one in answer.search["probes"]["probes"]}
    assert vectors == {"word"}


def test_a_probe_of_words_competes_and_is_saved(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "o"
    given = {**SETTINGS, "tune": "head,probe", "price": 0, "num_train_epochs": 1, "head_learning_rate": 1e-4}
    answer = frostline.sweep(model=base, train=table(120), out=out, **given).answer
    assert answer.decision.choice == "probe"
    predicted, expected = predicted_and_expected(out)
    assert predicted == expected


def test_a_bilstm_on_frozen_states_is_saved_and_predicts_as_in_the_sweep(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, own = tmp_path / "o", {"lstm": {"tune": 0, "lstm_width": 12, "lstm_states": 2}}
    given = {**SETTINGS, "tune": "0,lstm", "way": own, "price": 0, "head_learning_rate": 3e-2}
    answer = frostline.sweep(model=base, train=table(120), out=out, **given).answer
    assert answer.decision.choice == "lstm" and answer.opened_by == "frostline"
    predicted, expected = predicted_and_expected(out)
    assert predicted == expected
    assert "The head has a BiLSTM." in (out / "model" / "README.md").read_text()
    exec(str(loading(answer, out / "model")), {})
    assert "'tags': [" in capsys.readouterr().out
