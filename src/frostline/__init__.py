"""How many of the last layers of a pretrained transformer should I fine-tune on my data, what does it cost, how sure is that?

>>> import frostline
>>> answer = frostline.Sweep(model="...", train="reviews.csv", tune="0,1,2,4,all", seeds=5, out="reviews").run()
>>> print(answer["sentence"])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frostline.api import Sweep, write_report
    from frostline.checking import Check, check
    from frostline.errors import FrostlineError
    from frostline.finding import find
    from frostline.prediction import Predictions, predict
    from frostline.probing import Probed, probe
    from frostline.specification import RunSpec, SweepSpec
    from frostline.sweep.plan import Plan

__all__ = [
    "Check",
    "FrostlineError",
    "Plan",
    "Predictions",
    "Probed",
    "RunSpec",
    "Sweep",
    "SweepSpec",
    "check",
    "find",
    "predict",
    "probe",
    "write_report",
]

_HOMES = {
    "Check": "checking",
    "FrostlineError": "errors",
    "Plan": "sweep.plan",
    "Predictions": "prediction",
    "Probed": "probing",
    "RunSpec": "specification",
    "Sweep": "api",
    "SweepSpec": "specification",
    "check": "checking",
    "find": "finding",
    "predict": "prediction",
    "probe": "probing",
    "write_report": "api",
}


def __getattr__(name: str) -> Any:
    """Import on first use: torch takes seconds, and much of frostline does without it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'frostline' has no attribute {name!r}")
    return getattr(import_module(f"frostline.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
