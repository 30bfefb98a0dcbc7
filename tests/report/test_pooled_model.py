"""A recommended model whose head reads the mean of all tokens: the saved folder, its card, and how it is loaded."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from frostline import FrostlineError
from frostline.api.bundle import bundle
from frostline.api.prediction import predict
from frostline.report.explanations import loading
from frostline.report.rebuild import write_report
from pages import answer_of
from tiny import LABELS, recommended_predictions, saved_sweep


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
    assert code is not None and len(code.splitlines()) == 3 and code.startswith("from sentence_transformers import")
    exec(code, {})
    assert capsys.readouterr().out.startswith("[[")
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "ways-to-tune.md").read_text(encoding="utf-8")
    (printed,) = re.findall(r"```text\n(from sentence_transformers.*?)```", page, re.DOTALL)
    exec(printed.replace("ways/model", str(pooled / "model")), {})
    assert capsys.readouterr().out.strip() in {f"['{label}']" for label in LABELS}


def test_answer_card_and_page_say_what_the_head_reads(pooled: Path) -> None:
    card = " ".join((pooled / "model" / "README.md").read_text().split())
    assert answer_of(pooled)["opened_by"] == "sentence-transformers" and "library_name: sentence-transformers" in card
    assert "The head reads the mean of all tokens." in card and "SentenceTransformer(" in card
    assert "SentenceTransformer(" in write_report(pooled).read_text(encoding="utf-8")


def test_pairs_are_loaded_as_pairs(pooled: Path) -> None:
    answer: dict[str, Any] = answer_of(pooled)
    answer["columns"] = {**answer["columns"], "text_pair": "other"}
    assert 'encode([("A text.", "Its pair.")])' in str(loading(answer, pooled / "model"))
    answer["calibration"]["saved"] = True
    assert str(loading(answer, pooled / "model")).startswith("import frostline")


def test_a_bundle_refuses_it(pooled: Path, classified: Path, tmp_path: Path) -> None:
    with pytest.raises(FrostlineError, match="has another head than its type, which a bundle cannot hold"):
        bundle([pooled, classified], out=tmp_path / "b", names=["a", "b"])
