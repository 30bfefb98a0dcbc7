"""The exactness check of a sweep, before anything is trained."""

from typing import Any

import pytest

import frostline.sweep.execution.cuts as cuts
from frostline import FrostlineError
from frostline.api.sweep import Sweep
from frostline.frozen.exactness import Check
from frostline.statistics.recipe import FULL, Recipe
from frostline.sweep.progress import Progress


@pytest.mark.parametrize("k, shown", [(Recipe(1), " with last 1"), (FULL, " with full"), (None, "")])
def test_a_model_that_cannot_be_cut_exactly_leaves_no_folder(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, k: Any, shown: str
) -> None:
    monkeypatch.setattr(cuts, "check", lambda *_, **__: [Check(k, None, None, None, "Its layers talk.")])
    with pytest.raises(FrostlineError, match=rf"cannot be cut exactly{shown}: Its layers talk\."):
        Sweep(progress=Progress(), **settings).run()
    assert not settings["out"].exists()
