"""A loaded classifier: its logits do not depend on where its file stores the weights."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import frostline
from frostline.model.classifier import load_classifier
from frostline.model.packed_layout import ALIGNED
from small_models import random_texts, write_base


@pytest.fixture
def moved(tmp_path: Path) -> list[Path]:
    """The same classifier in four folders. The files store its weights at different addresses."""
    folders = []
    for n in range(4):
        folder = write_base(tmp_path / str(n), "bert")
        weights = load_file(folder / "model.safetensors")
        save_file(weights, folder / "model.safetensors", {"format": "pt", "note": "." * 8 * n})
        folders.append(folder)
    return folders


def test_predictions_are_bitwise_identical_wherever_the_file_stores_the_weights(moved: list[Path]) -> None:
    for text in random_texts(20):  # a product with a single row depends on the address of the weights
        values = [frostline.predict(folder, [text]).values for folder in moved]
        for other in values[1:]:
            np.testing.assert_array_equal(values[0], other)


def test_all_weights_but_the_table_of_the_vocabulary_are_aligned(moved: list[Path]) -> None:
    for folder in moved:
        model = load_classifier(folder).model
        table = model.get_input_embeddings().weight
        assert all(p.data_ptr() % ALIGNED == 0 for p in model.parameters() if p is not table)
