"""One switch for all speed-ups, so that tests and benchmarks can compare each with the plain path.

``FROSTLINE_PLAIN=1`` in the environment turns every speed-up off. ``FROSTLINE_WITHOUT=attention,dropout`` turns off some.
What then runs is torch's and transformers' own code. Results agree within float rounding, with one exception: without
``dropout``, ``attention`` or ``packing`` other random numbers decide which elements dropout drops. Their distribution is
the same.

The environment is read whenever a speed-up is about to be used, so a test can change it, and forked workers inherit it.
"""

import difflib
import os

from frostline import FrostlineError

TRICKS = {
    "attention": "attention over packed short texts, written out",
    "dropout": "dropout masks from sixteen random bits an element",
    "sparse_gradients": "steps of embedding tables through the rows that were read",
    "last_layer": "the last layer computed for the head's token only",
    "packing": "batches without padding",
    "malloc": "freed memory stays with the process between runs",
    "garbage_collection": "objects that outlive all runs are not searched for garbage",
    "workers": "runs side by side in forked processes of one thread",
}


def enabled(trick: str) -> bool:
    """Whether the environment leaves this speed-up on.

    Raises:
        FrostlineError: ``FROSTLINE_WITHOUT`` names no speed-up.
    """
    assert trick in TRICKS, trick
    return os.environ.get("FROSTLINE_PLAIN", "0") in ("", "0") and trick not in _without()


def _without() -> list[str]:
    names = [name for part in os.environ.get("FROSTLINE_WITHOUT", "").split(",") if (name := part.strip())]
    for name in names:
        if name not in TRICKS:
            nearest = difflib.get_close_matches(name, TRICKS, n=1, cutoff=0.0)[0]
            raise FrostlineError(
                f"FROSTLINE_WITHOUT={name} names no speed-up (did you mean {nearest}?): they are {', '.join(TRICKS)}."
            )
    return names
