"""What to give instead of a refused setting. These messages replace pydantic's own."""

from collections.abc import Mapping

from pydantic_core import ErrorDetails

from frostline.data.wording import did_you_mean
from frostline.sweep.grids import GRID
from frostline.training.ways.way import Way


def grid_advice(error: ErrorDetails, descriptions: Mapping[str, str | None]) -> str:
    """The message for an unusable table [[grid]], with the ``descriptions`` of all settings."""
    _, number, key = (*error["loc"], None, None)[:3]
    if error["type"] == "extra_forbidden":
        return f"A table [[grid]] has no key {key!r}: it may set {', '.join(GRID)}."
    if not isinstance(number, int) or key is None:
        return "grid has the wrong form: give tables [[grid]] in a TOML file, or a list of dictionaries in Python."
    detail = advice({**error, "loc": (key,)}, descriptions[str(key)])
    return f"{key} in table {number + 1} of [[grid]] cannot be {error['input']!r}: {detail}."


def way_advice(error: ErrorDetails) -> str:
    """The message for an unusable table [way.NAME]."""
    _, name, key = (*error["loc"], None, None)[:3]
    if name is None:
        return (
            "way has the wrong form: give tables [way.NAME] in a TOML file, or a dictionary of dictionaries in Python."
        )
    if error["type"] == "extra_forbidden":
        hint = did_you_mean(str(key), Way.model_fields) or f": it may set {', '.join(Way.model_fields)}"
        return f"The way in [way.{name}] cannot have {key!r}{hint}."
    if key is None:
        return f"The way {name!r} cannot be used: {advice(error, None)}."
    detail = advice({**error, "loc": (key,)}, Way.model_fields[str(key)].description)
    return f"{key} in [way.{name}] cannot be {error['input']!r}: {detail}."


def advice(error: ErrorDetails, description: str | None) -> str:
    """What to give instead of a refused value. It replaces pydantic's own message."""
    name, kind, context = error["loc"][0], error["type"], error.get("ctx", {})
    if kind == "value_error":
        return error["msg"].removeprefix("Value error, ")
    if name == "tune":
        return "give numbers of layers from 0 (classifier head only) up, all, named (with --tune-modules), or names of ways"
    if name == "ways":
        return "give names of ways in small letters, digits and -, such as last-2,lora-2,full"
    if name == "class_weights":
        return "give none, balanced, or a weight for each label"
    if kind == "literal_error":
        return f"give {context['expected']}"
    limits = {"gt": "above {:g}", "ge": "from {:g} on", "lt": "below {:g}", "le": "up to {:g}"}
    words = [f"a number {words.format(context[key])}" for key, words in limits.items() if key in context]
    kinds = {
        "int": "a whole number",
        "float": "a number",
        "finite": "a finite number",
        "string": "one text in quotes",
        "bool": "true or false",
    }
    words += [word for start, word in kinds.items() if kind.startswith(start)]
    return f"give {words[0]} ({description})" if words else error["msg"].lower()
