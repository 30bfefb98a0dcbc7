"""Numbers, models, metrics and what was trained as text."""

from collections.abc import Callable
from typing import Any

import pytest

from frostline.data.wording import model_name
from frostline.frozen.forward_pass import POOLED
from frostline.report import formatting, names
from frostline.statistics.recipe import Recipe
from frostline.training.probes import APART, WORD


@pytest.mark.parametrize(
    ("show", "cases"),
    [
        (formatting.parameters, {5: "5", 999: "999", 1000: "1.00 k", 148_610: "149 k", 999_999: "1.00 M"}),
        (formatting.size, {0: "0 B", 999: "999 B", 1000: "1.00 kB", 1.5e9: "1.50 GB", 2e12: "2.00 TB", None: "–"}),
        (formatting.seconds, {0.04: "0.04 s", 9.94: "9.9 s", 9.96: "10 s", 71: "71 s", 119.6: "2 min", None: "–"}),
        (formatting.seconds, {250: "4 min 10 s", 596: "10 min", 3600: "60 min", 7200: "2.0 h", 9000: "2.5 h"}),
        (formatting.learning_rate, {5e-5: "5e-5", 1.5e-4: "1.5e-4", 3e-12: "3e-12", 0.001: "0.001"}),
        (formatting.percent, {-0.119: "−11.9 %", None: "–"}),
        (formatting.score, {-0.0004: "0.000", -0.0006: "−0.001", None: "–"}),
        (formatting.difference, {-0.0004: "+0.000", 0.0123: "+0.012"}),
        (formatting.times, {2.54: "2.5×", 9.96: "10×", 0.05: "0.1×", 0.049: "<0.1×", 0: "0.0×", None: "–"}),
        (model_name, {"/home/me/gt_all/model": "gt_all", "org/model": "org/model", "./tuned": "tuned"}),
        (names.printed, {"probe": "linear probe", "words": "TF-IDF model", "head only": "head only", "last 3": "last 3"}),
        (names.depth, {"head only": "0", "last 3": "3", "full": "full", "named": "named", "words": "TF-IDF"}),
        (names.tuning, {"head only": "tuning the classifier head only", "last 1": "tuning the last layer"}),
        (names.tuning, {"last 3": "tuning the last 3 layers", "full": "full fine-tuning", "lora-2": "tuning with lora-2"}),
        (names.tuning, {"named": "tuning the named parts", "probe": "a linear probe on frozen features"}),
        (names.metric, {"f1_macro": "macro F1", "matthews_correlation": "Matthews correlation", "a_b": "a b"}),
        (names.baseline, {"accuracy": "majority-class baseline", "r2": "mean baseline", "f1": "constant baseline"}),
        (
            formatting.unbroken,
            {"95 % after 2 min 5 s with 3 MB; 5 seeds, 2 hours": "95_% after 2_min 5_s with 3_MB; 5 seeds, 2 hours"},
        ),
    ],
)  # fmt: skip
def test_text(show: Callable[[Any], str], cases: dict[Any, str]) -> None:
    space = "_" if show is formatting.unbroken else " "
    given = Recipe if show in (names.printed, names.depth, names.tuning) else lambda value: value
    assert {value: show(given(value)).replace("\N{NO-BREAK SPACE}", space) for value in cases} == cases


def test_an_unbounded_side_is_named_and_vectors_have_the_names_of_the_results() -> None:
    assert formatting.percent_interval(None, 1.2).replace("\xa0", " ") == "no bound to 120.0 %"
    assert tuple(names.VECTORS) == (*POOLED, WORD, APART)
