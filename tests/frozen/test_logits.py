"""The logits of a classifier whose layers are streamed are those of the whole model, bit for bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from frostline import FrostlineError
from frostline.data.examples import Texts
from frostline.data.tags import sentence
from frostline.frozen import logits
from frostline.frozen.logits import logits_of_texts
from frostline.model import classifier as classifiers
from frostline.model import streaming
from frostline.model.classifier import Classifier, load_classifier
from frostline.model.packed_layout import ALIGNED
from frostline.model.terms import LAST, MEAN, OWN, HeadKind
from frostline.model.weights import is_unread
from frozen.passes import layers_in_memory
from small_models import both, sharded, sharded_classifier, write_head
from tiny import sentences

COUNT = 24


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    """Several batches, and a cache of its own."""
    monkeypatch.setattr(classifiers, "BATCH", 8)


def texts(*, of_words: bool = False) -> Texts:
    found = [row["text"] for row in sentences(COUNT, seed=3)]
    if of_words:
        found = [sentence(one.split(), "a sentence", "") for one in found]
    return Texts(texts=tuple(found), pairs=None, rows=np.arange(COUNT), name="texts")


def streamed(folder: Path, **options: Any) -> Classifier:
    return load_classifier(folder, streams=lambda weight_bytes: True, **options)


def pair(folder: Path, **options: Any) -> tuple[Classifier, Classifier]:
    """The classifier in a folder with the whole model in memory, and with streamed layers."""
    return load_classifier(folder, **options), streamed(folder, **options)


def has_equal_logits(folder: Path, *, of_words: bool = False) -> bool:
    """Whether the logits of the streamed classifier are those of the loaded one, bit for bit."""
    whole, by_layer = pair(folder, of_words=of_words)
    tokens = whole.encode(texts(of_words=of_words))
    assert whole.anatomy is None and by_layer.anatomy is not None
    expected, found = logits_of_texts(whole, tokens), logits_of_texts(by_layer, tokens)
    assert len(expected) == (tokens.lengths.sum() if of_words else COUNT)
    return torch.equal(expected, found) and not found.isnan().any()


@pytest.mark.parametrize(
    ("model_type", "dtype", "shard"),
    [
        ("bert", torch.float32, "100KB"),
        ("llama", torch.float32, "1GB"),
        ("llama", torch.bfloat16, "100KB"),
        pytest.param("gemma2", torch.float32, "100KB", marks=pytest.mark.slow),
        pytest.param("deberta-v2", torch.float32, "100KB", marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_same_bits(model_type: str, dtype: torch.dtype, shard: str, tmp_path: Path) -> None:
    """In one file or many, in the type of the weights; the embeddings of a gemma2 are tied."""
    assert has_equal_logits(sharded_classifier(tmp_path / "model", model_type, dtype=dtype, shard=shard))


def test_tags_of_words(tmp_path: Path) -> None:
    assert has_equal_logits(sharded_classifier(tmp_path / "model", "bert", of_words=True), of_words=True)


@pytest.mark.parametrize("kind", [HeadKind(LAST), HeadKind(MEAN, lstm_width=8, states=3)], ids=str)
def test_other_heads(kind: HeadKind, tmp_path: Path) -> None:
    """Models that were tuned with streamed layers and another head. Their lower layers are copied from file to file."""
    loaded, pretrained = both(sharded(tmp_path / "model", "bert"))
    for name, one in (("loaded", loaded), ("streamed", pretrained)):
        write_head(one, kind, tmp_path / name)
        assert has_equal_logits(tmp_path / name)
    tokens = load_classifier(tmp_path / "loaded").encode(texts())
    expected, found = (logits_of_texts(load_classifier(tmp_path / name), tokens) for name in ("loaded", "streamed"))
    assert torch.equal(expected, found)


def test_a_bilstm_that_tags_words_reads_its_lower_layers_together(tmp_path: Path) -> None:
    _, pretrained = both(sharded(tmp_path / "model", "bert"))
    write_head(pretrained, HeadKind(OWN, lstm_width=8, states=2), tmp_path / "saved")
    assert has_equal_logits(tmp_path / "saved", of_words=True)


def test_each_layer_is_read_once_and_is_alone_in_memory(tmp_path: Path) -> None:
    """Beside the last layer, which is never released."""
    by_layer = streamed(sharded_classifier(tmp_path / "model", "bert"))
    present, lower = layers_in_memory(by_layer.model, by_layer.anatomy)
    logits_of_texts(by_layer, by_layer.encode(texts()))
    assert present == [(0, 3), (1, 3), (2, 3), (3,)] and all(map(is_unread, lower))


def test_weights_that_a_layer_computes_with_are_aligned(tmp_path: Path) -> None:
    """As those of a loaded classifier, or the last bits would depend on where the file stores them."""
    by_layer = streamed(sharded_classifier(tmp_path / "model", "bert"))
    stream, table = streaming.stream_of(by_layer.model), by_layer.model.get_input_embeddings().weight
    assert stream is not None
    with stream.loaded(stream.absent):
        assert all(p.data_ptr() % ALIGNED == 0 for p in by_layer.model.parameters() if p is not table)


def test_texts_that_do_not_fit_on_the_disk_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They pass through the layers in groups. A disk that is too small for a single batch is named."""
    folder = sharded_classifier(tmp_path / "model", "bert")
    whole, by_layer = pair(folder)
    tokens = whole.encode(texts())
    expected = logits_of_texts(whole, tokens)
    longest = 4 * by_layer.anatomy.width * 8 * int(tokens.lengths.max()) if by_layer.anatomy else 0
    present, _ = layers_in_memory(by_layer.model, by_layer.anatomy)
    free = [logits.RESERVED_BYTES + longest]
    monkeypatch.setattr(logits, "free_bytes", lambda folder: free[-1])
    assert torch.equal(logits_of_texts(by_layer, tokens), expected)
    assert 1 < present.count((0, 3)) <= 3  # groups of texts, of three batches
    free.append(free[0] - 1)
    with pytest.raises(
        FrostlineError, match=r"The hidden states of 8 texts take 0\.0 GB, but only 0\.0 GB are free in"
    ):
        logits_of_texts(by_layer, tokens)
