"""The template environment of all pages. The content security policy of a page allows only its own script."""

import base64
import hashlib
import re
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from frostline.data.wording import capitalized
from frostline.report import formatting, names

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
