"""Numbers as text."""

import pytest

from frostline.report import formatting


def test_numbers() -> None:
    shown = [formatting.parameters(n) for n in (5, 999, 1000, 148_610, 3_697_538, 999_999, 22_713_986)]
    expected = ["5", "999", "1.00 k", "149 k", "3.70 M", "1.00 M", "22.7 M"]
    assert [text.replace("\xa0", " ") for text in shown] == expected
    assert formatting.percent_interval(None, 1.2).replace("\xa0", " ") == "no bound to 120.0 %"
    assert formatting.percent(-0.119).replace("\xa0", " ") == "−11.9 %"
    assert formatting.seconds(None) == formatting.score(None) == "–"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.04, "0.04 s"), (9.94, "9.9 s"), (9.96, "10 s"), (71, "71 s"), (119.6, "2 min"), (250, "4 min 10 s")),
        *((594, "9 min 50 s"), (596, "10 min"), (3600, "60 min"), (7200, "2.0 h"), (9000, "2.5 h")),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert formatting.seconds(seconds).replace("\xa0", " ") == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (1.5e9, "1.50 GB"), (2e12, "2.00 TB")]
)
def test_bytes(count: float, text: str) -> None:
    assert formatting.size(count).replace("\xa0", " ") == text


@pytest.mark.parametrize(
    ("rate", "text"), [(5e-5, "5e-5"), (1e-4, "1e-4"), (1.5e-4, "1.5e-4"), (3e-12, "3e-12"), (0.001, "0.001")]
)
def test_learning_rates(rate: float, text: str) -> None:
    assert formatting.learning_rate(rate) == text


def test_no_line_ends_between_a_number_and_its_unit() -> None:
    text = formatting.unbroken("95 % after 62 s and 2 min 5 s with 3 MB; 5 seeds, 2 hours")
    assert text.replace("\N{NO-BREAK SPACE}", "_") == "95_% after 62_s and 2_min 5_s with 3_MB; 5 seeds, 2 hours"
