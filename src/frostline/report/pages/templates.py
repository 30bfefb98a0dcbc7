"""All pages are written here: the template environment, and the files of tables and figures beside a page.

The content security policy of a page allows only its own script.
"""

import base64
import hashlib
import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from frostline.data.files import remove, replace_file
from frostline.data.wording import capitalized
from frostline.report import formatting, names
from frostline.report.figures.drawing import save_figures
from frostline.report.tables.table import ReportTable, save_tables

FLAG = re.compile(r"(?<!\S)--[a-z][a-z-]*(?: \d(?:[\w.,]*\w)?)?")  # of a command, with a number or numbers


def with_flags(text: str) -> Markup:
    """The escaped text with its flags as code, so that no line ends within one, and with what stands in backticks as code."""
    marked = FLAG.sub(r'<code class="flag">\g<0></code>', str(escape(text)))
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", marked))


FILTERS = {
    "with_flags": with_flags,
    "capitalized": capitalized,
    **{name: getattr(formatting, name) for name in ("score", "percent", "seconds", "parameters", "times")},
    **{name: getattr(names, name) for name in ("printed", "metric", "baseline", "tuning", "whole")},
}


def render(name: str, **content: Any) -> str:
    """Render the template ``name``. Everything except :class:`Markup` is escaped.

    A template extends ``base.html.j2`` and fills its blocks; ``parts.html.j2`` has what several pages share.
    """
    return _environment().get_template(name).render(**content)


def write_report_page(
    out: Path, template: str, written: Collection[ReportTable], figures: Mapping[str, Figure], /, **content: Any
) -> Path:
    """Write report.html, figures/ and tables/ into ``out``, and return the path of the page.

    Args:
        out: The folder.
        template: The name of the page's template.
        written: All tables that get files.
        figures: All figures by name. The template gets them as SVG.
        **content: What else the template shows.
    """
    text, page = render(template, figures=save_figures(out, figures), **content), out / "report.html"
    save_tables(out, written)
    _remove_older(page, {name for table in written for _, name, _ in table.files}, figures)
    replace_file(page, text.encode(), inside=out)
    return page


def _remove_older(page: Path, tables: Collection[str], figures: Collection[str]) -> None:
    """Remove the files of tables and figures that only the older page shows: they are of other runs or settings."""
    out = page.parent
    older = page.read_text(encoding="utf-8", errors="replace") if page.is_file() and not page.is_symlink() else ""
    for name in {*re.findall(r'download="([\w.-]+\.(?:csv|tex))"', older)} - {*tables}:
        remove(out / "tables" / name, inside=out)
    for path in (out / "figures").glob("*.svg"):
        if path.stem not in figures and path.read_text(encoding="utf-8", errors="replace").strip() in older:
            for kind in ("svg", "png", "pdf"):
                remove(path.with_suffix(f".{kind}"), inside=out)


@cache
def _environment() -> Environment:
    """The environment, which compiles each template once."""
    loader = PackageLoader("frostline.report", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    script = loader.get_source(environment, "report.js")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.filters |= FILTERS
    environment.globals |= {
        "percent_interval": formatting.percent_interval,
        "script": Markup(script),
        "script_digest": digest,
    }
    return environment
