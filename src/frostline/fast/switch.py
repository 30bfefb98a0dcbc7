"""One switch for all speed-ups, so that tests and benchmarks can compare each with the plain path.

``FROSTLINE_PLAIN=1`` in the environment turns every speed-up off. ``FROSTLINE_WITHOUT=attention,dropout`` turns off some.
The code of torch and transformers runs instead. Results agree within float rounding, with one exception: without
``dropout``, ``attention`` or ``packing``, other random numbers decide which elements dropout drops. Their distribution is
the same.

The environment is read each time a speed-up could be used. A test can therefore change it, and forked workers inherit it.
"""

import os

from frostline import FrostlineError
from frostline.data.wording import did_you_mean

SPEED_UPS = {
    "attention": "attention over packed short examples, with a hand-written backward pass",
    "dropout": "dropout masks with sixteen random bits per element",
    "sparse_gradients": "optimizer steps update only those rows of embedding tables that were read",
    "last_layer": "the last layer is computed for the head's token only",
    "packing": "batches without padding",
    "malloc": "the process keeps freed memory between runs",
    "garbage_collection": "the garbage collector ignores objects that outlive all runs",
    "workers": "several runs at once, each in a forked process with one thread",
}


def enabled(name: str) -> bool:
    """Whether the speed-up with this name is on.

    Raises:
        FrostlineError: ``FROSTLINE_WITHOUT`` contains an unknown name.
    """
    assert name in SPEED_UPS, name
    return os.environ.get("FROSTLINE_PLAIN", "0") in ("", "0") and name not in _switched_off()


def _switched_off() -> list[str]:
    """The names in ``FROSTLINE_WITHOUT``."""
    names = [name for part in os.environ.get("FROSTLINE_WITHOUT", "").split(",") if (name := part.strip())]
    for name in names:
        if name not in SPEED_UPS:
            raise FrostlineError(
                f"FROSTLINE_WITHOUT={name} names no speed-up{did_you_mean(name, SPEED_UPS)}: choose from {', '.join(SPEED_UPS)}."
            )
    return names
