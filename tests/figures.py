"""Saves blank figures: drawing takes most of the time of a small sweep, and only tests of reports look at figures."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from matplotlib.figure import Figure

DRAW = Figure.savefig
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 10"><rect id="blank" width="10" height="10"/></svg>'


def save_blank(figure: Figure, target: Any, *, format: str, **options: Any) -> None:
    """Save a blank figure, in place of ``Figure.savefig``."""
    target.write(SVG if format == "svg" else SVG.encode())


def draw_nothing() -> None:
    """Let matplotlib save blank figures from now on."""
    Figure.savefig = save_blank  # type: ignore[method-assign]


@contextmanager
def drawn() -> Iterator[None]:
    """Let matplotlib save real figures inside the context."""
    before, Figure.savefig = Figure.savefig, DRAW  # type: ignore[method-assign]
    try:
        yield
    finally:
        Figure.savefig = before  # type: ignore[method-assign]
