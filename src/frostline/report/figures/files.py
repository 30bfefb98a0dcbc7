"""Figures as inline SVG for a page, and as SVG, PNG and PDF files."""

import hashlib
import html
import io
import re
from collections.abc import Mapping
from pathlib import Path

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from frostline.data.files import replace_file
from frostline.report.figures.style import ROLES


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
