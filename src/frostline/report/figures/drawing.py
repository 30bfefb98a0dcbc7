"""How figures look, and how they become SVG that a page can hold and files that a README can show.

A colour stands for a role. Each is dark enough for white paper and light enough for a dark screen; a page may say it
better through CSS variables (``--figure-ink`` and so on), which the inline SVG asks for first.
"""

import hashlib
import html
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from frostline.sweep.results.store import replace

INK, QUIET = "#757575", "#757576"  # text; lines that should not be looked at
VALIDATION, TRAIN, FAILED = "#2f7fc1", "#b8751a", "#d1495b"  # blue, amber, red: told apart by every kind of eye
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


def figure_of(width: int, height: int, panels: int = 1, *, abreast: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure of so many units (pixels, where it is shown at its own size) with panels one above the other, or
    ``abreast``."""
    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    figure.patch.set_alpha(0)
    rows, columns = (1, panels) if abreast else (panels, 1)
    axes = [figure.add_subplot(rows, columns, n + 1) for n in range(panels)]
    for panel in axes:
        panel.patch.set_alpha(0)
    return figure, axes


def svg(figure: Figure, name: str = "") -> str:
    """The figure as an ``<svg>`` element: the same bytes every time, and ids that no other figure on a page has.

    Figures that may be alike need different names. What :meth:`Figure.set_label` says of it becomes its ``aria-label``.
    It is laid out here, and not again when it is saved as something else.
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


def save_figures(out: Path, figures: Mapping[str, Figure], svgs: Mapping[str, str]) -> list[Path]:
    """Write each figure into ``out``/figures, as SVG (what :func:`svg` has given), PNG and PDF on a transparent ground; gives
    the paths. ``_narrow`` ones, which a phone shows, are for the page alone.

    The same figure gives the same bytes. The PDF holds its fonts, as TrueType.
    """
    paths = []
    for name in (name for name in figures if not name.endswith("_narrow")):
        figure = figures[name]
        png, pdf = io.BytesIO(), io.BytesIO()
        figure.savefig(png, format="png", dpi=200, transparent=True, metadata={"Software": None})
        with matplotlib.rc_context({"pdf.fonttype": 42, "text.parse_math": False}):
            figure.savefig(pdf, format="pdf", transparent=True, metadata={"CreationDate": None})
        contents = {"svg": f"{svgs[name]}\n".encode(), "png": png.getvalue(), "pdf": pdf.getvalue()}
        for kind, content in contents.items():
            paths.append(out / "figures" / f"{name}.{kind}")
            replace(paths[-1], content)
    return paths
