"""How many of the last layers of a pretrained transformer should I fine-tune on my data, what does it cost, how sure is that?

>>> import frostline
>>> found = frostline.find(model="...", train="reviews.csv", out="found")
>>> print(found.sentence)
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frostline.api.bundle import Bundle, Bundled, bundle, load_bundle
    from frostline.api.find import find
    from frostline.api.prediction import Predictions, TagPredictions, predict
    from frostline.api.probe import probe
    from frostline.api.push import push
    from frostline.api.results import Results, open
    from frostline.api.sweep import Plan, plan, sweep
    from frostline.api.training_audit import AuditCallback, Moved, TrainingAudit, audit, audit_folders
    from frostline.api.work import work
    from frostline.frozen.exactness import Check, check
    from frostline.report.trackers import track
    from frostline.search.probing import Probed
    from frostline.statistics.answer import Answer
    from frostline.sweeps.execution.ray_tasks import Ray
    from frostline.sweeps.merge import merge
    from frostline.sweeps.settings import Settings
    from frostline.training.run import Run

__all__ = [
    "Answer",
    "AuditCallback",
    "Bundle",
    "Bundled",
    "Check",
    "FrostlineError",
    "Moved",
    "Plan",
    "Predictions",
    "Probed",
    "Ray",
    "Results",
    "Run",
    "Settings",
    "TagPredictions",
    "TrainingAudit",
    "audit",
    "audit_folders",
    "bundle",
    "check",
    "find",
    "load_bundle",
    "merge",
    "open",
    "plan",
    "predict",
    "probe",
    "push",
    "sweep",
    "track",
    "work",
]

_MODULES = {
    "api.bundle": ("Bundle", "Bundled", "bundle", "load_bundle"),
    "api.find": ("find",),
    "api.prediction": ("Predictions", "TagPredictions", "predict"),
    "api.probe": ("probe",),
    "api.push": ("push",),
    "api.results": ("Results", "open"),
    "api.sweep": ("Plan", "plan", "sweep"),
    "api.training_audit": ("AuditCallback", "Moved", "TrainingAudit", "audit", "audit_folders"),
    "api.work": ("work",),
    "frozen.exactness": ("Check", "check"),
    "report.trackers": ("track",),
    "search.probing": ("Probed",),
    "statistics.answer": ("Answer",),
    "sweeps.execution.ray_tasks": ("Ray",),
    "sweeps.merge": ("merge",),
    "sweeps.settings": ("Settings",),
    "training.run": ("Run",),
}


class FrostlineError(ValueError):
    """A mistake that the user can correct. The message says what is wrong, where (file, row, key), and what to do.

    The command line prints the message and exits with code 2. In Python it is an ordinary ``ValueError``, whose message names
    arguments in place of flags.
    """

    def __str__(self) -> str:
        from frostline.data.wording import spoken

        return spoken(super().__str__())

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message, because the mistake is in the cell and not in the code that found it."""
        return [f"{type(self).__name__}: {self}"]


def __getattr__(name: str) -> Any:
    """Import an exported name on first use, because importing torch takes seconds and many uses do not need it."""
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'frostline' has no attribute {name!r}")
    with warnings.catch_warnings():  # tqdm, which is imported too, misses widgets in a notebook. Progress needs none
        warnings.filterwarnings("ignore", "IProgress not found")
        return getattr(import_module(f"frostline.{module}"), name)


def __dir__() -> list[str]:
    return __all__
