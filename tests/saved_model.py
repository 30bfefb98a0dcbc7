"""Runs sweeps with hostile labels that save their recommended model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from frostline.api.sweep import Sweep
from frostline.sweep.results.folder import Folder, read_rows
from page_text import answer_of
from tiny import OTHER

LABELS = ("<script>alert(1)</script>", "=1+1", "w" * 120, "``` | مرحبا 😀 [x](y) **b** {{ 7 * 7 }}")
WORDS = ("good", "bad", "warm", "cold")
MAX_LENGTH = 12


def saved_sweep(base: Path, out: Path, label: Callable[[int], Any], **settings: Any) -> Path:
    """Run a sweep into ``out`` and save its model. ``label(n)`` is the label of a text whose first word is ``WORDS[n]``."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, 4, 160)
    texts = [f"{WORDS[n]} {' '.join(rng.choice(OTHER, rng.integers(2, 20)))}" for n in first]
    rows = pd.DataFrame({"text": texts, "label": [label(n) for n in first]})
    sweep = Sweep(
        model=str(base), train=rows[:80], validation=rows[80:], test="none", seeds=2, out=str(out),
        learning_rate=5e-3, max_length=MAX_LENGTH, max_truncated=1.0, precision="float32", task="films | <b>",
        **{"tune": "0,all", "head_learning_rate": 2e-2, "num_train_epochs": 4, **settings},
    )  # fmt: skip
    sweep.run()
    return out


def recommended_predictions(out: Path) -> tuple[list[str], np.ndarray]:
    """The validation texts, and the logits of the recommended run for them."""
    examples = read_rows(out, "validation")
    assert examples is not None
    run = answer_of(out)["sizes"][0]["recommended"]["run"]
    return list(examples.texts), Folder(out).store.predictions(run)["validation_best"]
