"""Which token the head reads. Modules of the last layer that run for that token only: see tests of the last layer."""

import pytest

from frostline.frozen.check.exactness import check
from frostline.frozen.check.head_token import find_head_reads
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


def test_a_head_that_takes_the_mean_reads_all() -> None:
    model = small_model("modernbert")
    model.config.classifier_pooling = "mean"
    batch = small_batch(model)
    assert find_head_reads(model, find_layers(model, batch), batch) == "all"
    rows = check(model, tuned_layers=[0, 1])
    assert [row.refused for row in rows] == [None, None]
