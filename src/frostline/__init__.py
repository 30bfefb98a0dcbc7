"""How many of the last layers of a pretrained transformer should I fine-tune on my data, what does it cost, how sure is that?

>>> import frostline
>>> answer = frostline.Sweep(model="...", train="reviews.csv", tune="0,1,2,4,full", seeds=5, out="reviews").run()
>>> print(answer["sentence"])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frostline.api.bundle import Bundled, bundle
    from frostline.api.bundle_prediction import Bundle, load_bundle
    from frostline.api.compare import compare
    from frostline.api.find import find
    from frostline.api.outputs import LabelSetPredictions, Predictions
    from frostline.api.prediction import predict
    from frostline.api.probe import probe
    from frostline.api.sweep import Sweep
    from frostline.api.tags import TagPredictions
    from frostline.api.work import work
    from frostline.frozen.check.cut_comparison import Check
    from frostline.frozen.check.exactness import check
    from frostline.report.rebuild import write_report
    from frostline.sweep.merge import merge
    from frostline.sweep.plan import Plan
    from frostline.sweep.ray.cluster import Ray
    from frostline.sweep.specification import SweepSpec
    from frostline.training.probes.fitting import Probed
    from frostline.training.specification import RunSpec

__all__ = [
    "Bundle",
    "Bundled",
    "Check",
    "FrostlineError",
    "LabelSetPredictions",
    "Plan",
    "Predictions",
    "Probed",
    "Ray",
    "RunSpec",
    "Sweep",
    "SweepSpec",
    "TagPredictions",
    "bundle",
    "check",
    "compare",
    "find",
    "load_bundle",
    "merge",
    "predict",
    "probe",
    "work",
    "write_report",
]

_MODULES = {
    "Bundle": "api.bundle_prediction",
    "Bundled": "api.bundle",
    "Check": "frozen.check.cut_comparison",
    "LabelSetPredictions": "api.outputs",
    "Plan": "sweep.plan",
    "Predictions": "api.outputs",
    "Probed": "training.probes.fitting",
    "Ray": "sweep.ray.cluster",
    "RunSpec": "training.specification",
    "Sweep": "api.sweep",
    "SweepSpec": "sweep.specification",
    "TagPredictions": "api.tags",
    "bundle": "api.bundle",
    "check": "frozen.check.exactness",
    "compare": "api.compare",
    "find": "api.find",
    "load_bundle": "api.bundle_prediction",
    "merge": "sweep.merge",
    "predict": "api.prediction",
    "probe": "api.probe",
    "work": "api.work",
    "write_report": "report.rebuild",
}


class FrostlineError(ValueError):
    """A mistake that the user can correct. The message says what is wrong, where (file, row, key), and what to do.

    The command line prints the message and exits with code 2. In Python it is an ordinary ``ValueError``.
    """


def __getattr__(name: str) -> Any:
    """Import an exported name on first use, because importing torch takes seconds and many uses do not need it."""
    if name not in _MODULES:
        raise AttributeError(f"module 'frostline' has no attribute {name!r}")
    return getattr(import_module(f"frostline.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
