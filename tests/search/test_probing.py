"""Models that train no layer, as a search fits them."""

from pathlib import Path
from typing import Any

import pytest

import frostline
import frostline.search.search as search_module
from frostline.statistics.run_result import PROBE, WORDS
from frostline.sweep.results.folder import TEST, read_alternatives


def test_models_that_train_no_layer_are_scored_on_test_as_they_are_saved(
    search_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, finish = [], search_module.finish

    def keep(*args: Any, **more: Any) -> Any:
        fitted.append(more["alternatives"])
        return finish(*args, **more)

    monkeypatch.setattr(search_module, "finish", keep)
    frostline.find(**{**search_settings, "test": search_settings["train"], "budget": 1.0})
    found = read_alternatives(search_settings["out"], TEST)
    assert set(found) == set(read_alternatives(search_settings["out"])) == {PROBE, WORDS}
    for name, values in found.items():
        fitted[0].save(name, tmp_path / name)
        saved = frostline.predict(tmp_path / name, search_settings["train"])
        assert [saved.labels[n] for n in values.argmax(1)] == list(saved.predicted)
