"""A small model, and a cache folder for it."""

from pathlib import Path
from typing import Any

import pytest

from frostline.model.anatomy import Anatomy, find_layers
from frozen.passes import Cache
from small_models import small_model


@pytest.fixture(scope="session")
def bert() -> tuple[Any, Anatomy]:
    """A small BERT and its layers."""
    model = small_model("bert")
    return model, find_layers(model)


@pytest.fixture
def cache(tmp_path: Path, bert: tuple[Any, Anatomy]) -> Cache:
    return Cache(tmp_path / "cache", *bert)


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frostline.frozen.hidden_states.SHARD_ROWS", 7)
