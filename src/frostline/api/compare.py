"""``frostline.compare``: other ways to tune beside the last k layers."""

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from frostline import FrostlineError
from frostline.api.sweep import Sweep
from frostline.statistics.answer import Answer
from frostline.sweep.progress import Progress
from frostline.sweep.setting_errors import advice
from frostline.training.fields import Tunes
from frostline.training.ways.names import DEFAULT_RATES, DEFAULT_WAYS


def compare(*, ways: str | Sequence[str] = DEFAULT_WAYS, progress: Progress | None = None, **settings: Any) -> Answer:
    """Train ways to tune on the same examples, and recommend one.

    By default, each has three learning rates. Those of what trains only a head are ``head_learning_rate``.

    Args:
        ways: Names of ways, or a text with commas between them. At least one of them is a k or full fine-tuning.
        progress: Shows progress; by default on the terminal.
        **settings: The settings of :class:`frostline.Sweep`, except ``tune``. ``way`` defines ways of your own
            by name, as dictionaries of the fields of :class:`frostline.training.ways.way.Way`.

    Returns:
        The answer, as in ``answer.json``.

    Raises:
        FrostlineError: A setting, the data or the model is unusable; the message says what to do.
    """
    return sweep_of(ways, progress=progress, **settings).run()


def sweep_of(ways: str | Sequence[str], *, progress: Progress | None = None, **settings: Any) -> Sweep:
    """The sweep that compares these ways.

    Raises:
        FrostlineError: A setting is unknown or impossible.
    """
    if settings.get("tune") is not None:
        raise FrostlineError("A comparison has ways instead of tune: give --ways, such as last-2,lora-2,full.")
    try:
        tunes = TypeAdapter(Tunes).validate_python(ways)
    except ValidationError as error:
        reason = advice({**error.errors()[0], "loc": ("ways",)}, None)
        raise FrostlineError(f"ways cannot be {ways!r}: {reason}.") from error
    return Sweep(progress=progress, **{**DEFAULT_RATES, **settings, "tune": tunes})
