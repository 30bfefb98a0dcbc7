"""The templates of pages: one environment for all, and the rule that a page runs no script but ours."""

import base64
import hashlib
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from frostline.report import formatting

SHOWN = (
    *("score", "percent", "seconds", "size", "parameters", "times", "rate", "trainable", "target"),
    *("difference", "p_value", "count"),
)


def render(name: str, **content: Any) -> str:
    """The page that template ``name`` makes; what is not :class:`Markup` is text on it, never markup.

    A template extends ``base.html.j2`` and fills its blocks; ``parts.html.j2`` has what stands on more than one page.
    """
    environment = Environment(
        loader=PackageLoader("frostline.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {name: getattr(formatting, name) for name in SHOWN}
    environment.globals |= {
        "score_interval": formatting.score_interval,
        "percent_interval": formatting.percent_interval,
    }
    script = environment.loader.get_source(environment, "report.js")[0] if environment.loader else ""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(name).render(script=Markup(script), script_digest=digest, **content)
