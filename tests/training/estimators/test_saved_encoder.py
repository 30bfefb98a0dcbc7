"""The linear head of a saved SetFit model, and damaged folders."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from frostline import FrostlineError
from frostline.training.estimators import NEVER, LinearHead, save_encoder, saved_encoder
from frostline.training.linear_models import by_class

ABOUT = {"task": "t", "sentence": "s", "labels": ("a", "b", "c", "d"), "max_length": 8}


@pytest.mark.parametrize("present", [[1, 3], [0, 1, 3], [0, 1, 2, 3]])
def test_the_probabilities_are_those_of_scikit_learn(present: list[int]) -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(40, 5)), np.array(present)[np.arange(40) % len(present)]
    fitted = LogisticRegression().fit(x, y)
    head = LinearHead(*by_class(fitted, 4, NEVER))
    probabilities = softmax(head.logits(x), 1)
    np.testing.assert_allclose(probabilities[:, present], fitted.predict_proba(x), atol=1e-6)
    assert not np.delete(probabilities, present, 1).any()


def test_a_saved_head_is_read_again_and_damage_is_named(tmp_path: Path) -> None:
    head = LinearHead(np.arange(12.0).reshape(3, 4), np.arange(4.0))
    assert saved_encoder(tmp_path) is None
    save_encoder(tmp_path, head, ABOUT)
    found = saved_encoder(tmp_path)
    assert found is not None and found.about["labels"] == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(found.head.weights, head.weights)
    (tmp_path / "encoder.safetensors").write_bytes(b"?")
    with pytest.raises(FrostlineError, match="is damaged"):
        saved_encoder(tmp_path)
