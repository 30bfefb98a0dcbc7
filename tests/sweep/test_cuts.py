"""The exactness check of a sweep, before anything is trained."""

from typing import Any

import pytest

import frostline.sweep.execution.cuts as cuts
from frostline import FrostlineError
from frostline.api.sweep import Sweep
from frostline.frozen.exactness import Check
from frostline.statistics.recipe import FULL, Recipe
from frostline.sweep.progress import Progress
from tiny import run_sweep


@pytest.mark.parametrize("k, shown", [(Recipe(1), " with last 1"), (FULL, " with full"), (None, "")])
def test_a_model_that_cannot_be_cut_exactly_leaves_no_folder(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, k: Any, shown: str
) -> None:
    monkeypatch.setattr(cuts, "check", lambda *_, **__: [Check(k, None, None, None, "Its layers talk.")])
    with pytest.raises(FrostlineError, match=rf"cannot be cut exactly{shown}: Its layers talk\."):
        Sweep(progress=Progress(), **settings).run()
    assert not settings["out"].exists()


def test_the_cut_of_named_parts_is_checked_before_they_are_trained(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, check = [], cuts.check

    def spy(model: Any, **what: Any) -> Any:
        calls.append(what)
        return check(model, **what)

    monkeypatch.setattr(cuts, "check", spy)
    run_sweep(settings, tune="0,named", tune_modules="layer.1,pooler")
    assert calls == [{"tuned_layers": [0, "full"], "tune_modules": ("layer.1", "pooler"), "max_uncut_layers": 0}]
    run_sweep(settings, tune="1,all", out=settings["out"].with_name("full"))
    assert calls[1:] == [{"tuned_layers": [1, "full"], "tune_modules": None, "max_uncut_layers": None}]


def test_the_cut_is_checked_with_every_head(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, Any]] = []

    def spy(model: Any, **what: Any) -> list[Check]:
        calls.append((type(model).__name__, what["tuned_layers"]))
        return [Check(0, "packed", 0.0, 0.0)]

    monkeypatch.setattr(cuts, "check", spy)
    run_sweep(settings, tune="1,all,mean-pooled-0")
    assert calls == [("BertForSequenceClassification", [1, "full"]), ("WithHead", [0, "full"])]
