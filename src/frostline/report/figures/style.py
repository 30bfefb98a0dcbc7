"""The common style of all figures.

Each role has a colour, which is readable on white paper and on a dark screen. A page can override it with a CSS variable such as
``--figure-ink``, which inline SVG uses.
"""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, QUIET = "#757575", "#757576"  # text; lines in the background
VALIDATION, TRAIN, FAILED = "#2f7fc1", "#b8751a", "#d1495b"  # blue, amber, red: safe for colour-blind readers
ROLES = {"ink": INK, "quiet": QUIET, "validation": VALIDATION, "train": TRAIN, "failed": FAILED}

STYLE: dict[Any, Any] = {
    "axes.edgecolor": QUIET,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.labelsize": 12,
    "figure.constrained_layout.use": True,
    "font.size": 12,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "legend.fontsize": 11,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.4,
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
}


def figure_of(width: int, height: int) -> tuple[Figure, Axes]:
    """A transparent figure of this size in pixels."""
    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    axes = figure.add_subplot()
    figure.patch.set_alpha(0)
    axes.patch.set_alpha(0)
    return figure, axes


def draw_frame(axes: Axes, title: str = "") -> None:
    """Draw the horizontal grid, remove the left spine and set the title."""
    axes.set_title(title, pad=10)
    axes.grid(axis="y", color=QUIET, alpha=0.18, linewidth=0.8)
    axes.spines["left"].set_visible(False)


def log_axis_of_sizes(axes: Axes, sizes: Sequence[int]) -> None:
    """Make x a logarithmic axis with a tick at every train size."""
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("training examples")
