"""Which token the head reads. ``tests/fast/test_last_layer.py`` tests the modules that run for that token only."""

import pytest

from frostline.frozen.exactness import check, find_head_reads
from frostline.model.anatomy import find_layers
from small_models import small_batch, small_model


@pytest.mark.parametrize(
    "model_type, reads",
    [
        ("bert", "first"),
        ("roberta", "first"),
        ("distilbert", "first"),
        ("deberta-v2", "first"),
        ("modernbert", "first"),
        ("gpt2", "last"),
        ("llama", "last"),
        ("opt", "last"),
        ("gte", "first"),
    ],
)
def test_the_token_that_the_head_reads(model_type: str, reads: str) -> None:
    model = small_model(model_type)
    batch = small_batch(model)
    assert find_head_reads(model, find_layers(model, batch), batch) == reads


def test_a_head_with_mean_pooling_reads_all_tokens() -> None:
    model = small_model("modernbert")
    model.config.classifier_pooling = "mean"
    batch = small_batch(model)
    assert find_head_reads(model, find_layers(model, batch), batch) == "all"
    rows = check(model, tuned_layers=[0, 1])
    assert [row.refused for row in rows] == [None, None]
