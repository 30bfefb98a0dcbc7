"""The command that would make an answer surer."""

from pathlib import Path
from typing import Any

import pytest

from frostline.report.answer.next_command import next_command


def curve(probability: float, seeds: int | None, choice: str = "last 2", other: float = 0.5) -> dict[str, Any]:
    choices = [{"choice": "last 2", "probability": probability if choice == "last 2" else other, "value": 0.8}]
    decision = {"choice": choice, "probability": probability, "reference": "all"}
    reference = {"choice": "all", "probability": 1.0, "value": 0.7}
    cells = [
        {"trainable": name, "runs": 1, "learning_rate": rate, "tuned_layers": 2}
        for name, rate in (("last 2", 2e-4), ("all", 1e-4))
    ]
    known = {"decision": decision, "choices": [*choices, reference], "cells": cells}
    return {**known, "learned": True, "seeds_to_decide": seeds}


def test_it_adds_the_seeds_that_would_probably_decide() -> None:
    assert next_command(Path("my out"), [0, 1, 2], curve(0.7, 7)) == "frostline sweep 'my out/sweep.toml' --seeds 7"
    assert next_command(Path("o"), [5, 6], curve(0.7, 4)) == "frostline sweep o/sweep.toml --seeds 5,6,7,8"


def test_after_one_seed_come_five() -> None:
    assert next_command(Path("o"), [0], curve(0.7, None)) == "frostline sweep o/sweep.toml --seeds 5"


@pytest.mark.parametrize("probability, seeds", [(0.96, 7), (0.03, 7), (0.7, None), (0.7, 3), (0.7, 500)])
def test_a_sure_answer_or_one_that_seeds_cannot_improve_needs_none(probability: float, seeds: int | None) -> None:
    assert next_command(Path("o"), [0, 1, 2], curve(probability, seeds)) is None


def test_if_full_is_recommended_the_others_must_be_sure() -> None:
    assert next_command(Path("o"), [0, 1], curve(1.0, 7, choice="all", other=0.5)) is not None
    assert next_command(Path("o"), [0, 1], curve(1.0, 7, choice="all", other=0.01)) is None


def test_nothing_compared_or_nothing_learned_needs_none() -> None:
    assert next_command(Path("o"), [0], {**curve(0.7, 5), "decision": None}) is None
    assert next_command(Path("o"), [0], {**curve(0.7, 5), "learned": False}) is None


def test_after_a_search_only_the_compared_choices_get_more_seeds() -> None:
    command = next_command(Path("o"), [0, 1, 2], curve(0.7, None), of_search=True)
    assert command == "frostline sweep o/sweep.toml --tune 2,all --learning-rate 0.0001,0.0002 --seeds 5"
    full = next_command(Path("o"), [0, 1], curve(1.0, None, choice="all", other=0.5), of_search=True)
    assert full == command


def test_if_full_is_recommended_the_second_best_choice_gets_more_seeds() -> None:
    known = curve(1.0, None, choice="all", other=0.5)
    close = {"choice": "last 5", "probability": 0.9, "value": 0.79}
    cell = {"trainable": "last 5", "runs": 1, "learning_rate": 5e-5, "tuned_layers": 5}
    known |= {"choices": [close, *known["choices"]], "cells": [cell, *known["cells"]]}
    by_value = next_command(Path("o"), [0, 1], known, of_search=True)
    assert by_value == "frostline sweep o/sweep.toml --tune 2,all --learning-rate 0.0001,0.0002 --seeds 5"
    by_certainty = next_command(Path("o"), [0, 1], known, of_search=True, sure=0.95)
    assert by_certainty == "frostline sweep o/sweep.toml --tune 5,all --learning-rate 5e-05,0.0001 --seeds 5"


def test_a_reference_that_a_search_did_not_train_is_trained() -> None:
    known = {**curve(0.99, None), "cells": curve(0.99, None)["cells"][:1], "reference_is_full": False}
    known["decision"] |= {"reference": "last 2"}
    command = next_command(Path("o"), [0, 1], known, of_search=True, missing="all")
    assert command == "frostline sweep o/sweep.toml --tune all --learning-rate 0.0002 --seeds 2"
    tried = curve(0.99, None)  # every run of it failed
    assert next_command(Path("o"), [0, 1], tried, of_search=True, missing="all") is None
