"""Layers that are read when they run."""

from pathlib import Path

import pytest
import torch

from frostline.model.anatomy import probe_batch
from frostline.model.model_files import is_unread
from frostline.model.pretrained import Pretrained
from frostline.model.streaming import Stream, stream_of
from small_models import both, sharded


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pretrained, Pretrained]:
    return both(sharded(tmp_path_factory.mktemp("stream") / "model", "bert"))


def stream_in(pretrained: Pretrained) -> Stream:
    stream = pretrained.stream
    assert stream is not None
    return stream


def test_only_lower_layers_are_not_in_memory(models: tuple[Pretrained, Pretrained]) -> None:
    loaded, streamed = models
    stream = stream_in(streamed)
    assert loaded.stream is None and stream_of(loaded.model) is None
    assert stream.absent == set(stream.in_layers(streamed.anatomy, range(3)))
    assert stream.absent == {name for name, p in streamed.model.named_parameters() if is_unread(p)}


def test_the_model_gives_the_same_logits(models: tuple[Pretrained, Pretrained]) -> None:
    for pretrained in models:
        pretrained.start_run(frozenset(pretrained.new), 0)
    batch = probe_batch(models[0].model)
    with torch.no_grad():
        expected, found = (one.model(**batch).logits for one in models)
    assert torch.equal(expected, found) and not found.isnan().any()


def test_a_layer_stays_while_a_context_holds_it(models: tuple[Pretrained, Pretrained]) -> None:
    _, streamed = models
    stream, anatomy = stream_in(streamed), streamed.anatomy
    names, before = stream.in_layers(anatomy, [1]), set(stream.absent)
    with stream.loaded(names):
        with stream.loaded(stream.in_layers(anatomy, [0, 1])):
            assert stream.absent == before - set(stream.in_layers(anatomy, [0, 1]))
        assert stream.absent == before - set(names)
        streamed.model(**probe_batch(streamed.model))
        assert stream.absent == before - set(names)
    assert stream.absent == before
    with pytest.raises(ZeroDivisionError), stream.loaded(names):
        _ = 1 / 0
    assert stream.absent == before


def test_a_digest_notices_a_layer_that_came_into_memory(models: tuple[Pretrained, Pretrained]) -> None:
    _, streamed = models
    stream = stream_in(streamed)
    before = streamed.frozen_digest(frozenset())
    with stream.loaded(stream.in_layers(streamed.anatomy, [0])):
        assert streamed.frozen_digest(frozenset()) != before
    assert streamed.frozen_digest(frozenset()) == before


def test_kept_layers_are_not_released(tmp_path: Path) -> None:
    _, streamed = both(sharded(tmp_path / "model", "llama"))
    stream = stream_in(streamed)
    kept = stream.in_layers(streamed.anatomy, [2])
    stream.keep(kept)
    streamed.model(**probe_batch(streamed.model))
    assert stream.absent == set(stream.in_layers(streamed.anatomy, [0, 1]))
