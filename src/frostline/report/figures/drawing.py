"""What all figures share: their style, and how they become inline SVG, and SVG, PNG and PDF files.

Each role has a colour, which is readable on white paper and on a dark screen. A page can override it with a CSS variable such as
``--figure-ink``, which inline SVG uses.
"""

import hashlib
import html
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from frostline.data.files import replace_file

INK, QUIET = "#757575", "#757576"  # text; lines in the background
VALIDATION, TRAIN, FAILED = "#2f7fc1", "#b8751a", "#d1495b"  # blue, amber, red: safe for colour-blind readers
ROLES = {"ink": INK, "quiet": QUIET, "validation": VALIDATION, "train": TRAIN, "failed": FAILED}

DASHED: dict[str, Any] = {"color": QUIET, "linewidth": 1, "linestyle": (0, (4, 4))}
STYLES = (VALIDATION, TRAIN, FAILED, "#4a8f5b", "#8b6fb0", "#7d7d7d"), ("o", "s", "^", "D", "v", "P")

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


class NotebookFigure(Figure):
    """A figure that a notebook shows without pyplot."""

    def _repr_html_(self) -> str:
        return svg(self)


def figure_of(width: int, height: int) -> tuple[Figure, Axes]:
    """A transparent figure of this size in pixels."""
    figure = NotebookFigure(figsize=(width / 72, height / 72), dpi=72)
    axes = figure.add_subplot()
    figure.patch.set_alpha(0)
    axes.patch.set_alpha(0)
    return figure, axes


def style_of(number: int) -> dict[str, Any]:
    """The colour and the marker of one of several models, or kinds of probes."""
    colours, markers = STYLES
    return {"color": colours[number % len(colours)], "marker": markers[number % len(markers)]}


def draw_frame(axes: Axes, title: str) -> None:
    """Draw the horizontal grid, remove the left spine and set the title."""
    axes.set_title(title, pad=10)
    axes.grid(axis="y", color=QUIET, alpha=0.18, linewidth=0.8)
    axes.spines["left"].set_visible(False)


def svg(figure: Figure, name: str = "") -> str:
    """The figure as an ``<svg>`` element with reproducible bytes and ids that are unique on a page.

    Identical figures on one page need different names. The label of the figure becomes its ``aria-label``. The layout is
    computed here and stays the same when the figure is saved in another format.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "frostline", "text.parse_math": False}):
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    figure.set_layout_engine("none")
    text = buffer.getvalue()
    text = text[text.index("<svg") :].strip()
    own = f"f{hashlib.sha256(f'{name} {text}'.encode()).hexdigest()[:8]}-"
    text = re.sub(r'\bid="', f'id="{own}', text)
    text = re.sub(r'href="#', f'href="#{own}', text)
    text = text.replace("url(#", f"url(#{own}")
    for role, colour in ROLES.items():
        text = text.replace(colour, f"var(--figure-{role}, {colour})")
    label = html.escape(str(figure.get_label()), quote=True)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def save_figures(out: Path, figures: Mapping[str, Figure]) -> dict[str, Markup]:
    """Write each figure into ``out``/figures as SVG, PNG and PDF with a transparent background, and return the SVGs for a page.

    The same figure gives the same bytes. The PDF embeds its fonts as TrueType.
    """
    svgs = {}
    for name, figure in figures.items():
        svgs[name], png, pdf = Markup(svg(figure, name)), io.BytesIO(), io.BytesIO()
        figure.savefig(png, format="png", dpi=200, transparent=True, metadata={"Software": None})
        with matplotlib.rc_context({"pdf.fonttype": 42, "text.parse_math": False}):
            figure.savefig(pdf, format="pdf", transparent=True, metadata={"CreationDate": None})
        contents = {"svg": f"{svgs[name]}\n".encode(), "png": png.getvalue(), "pdf": pdf.getvalue()}
        for kind, content in contents.items():
            replace_file(out / "figures" / f"{name}.{kind}", content, inside=out)
    return svgs
