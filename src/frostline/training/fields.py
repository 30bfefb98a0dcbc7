"""Types of the settings of runs and sweeps. They also accept comma-separated text from a command line or a TOML file."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic.types import JsonValue

from frostline.data.parsing import comma_separated
from frostline.statistics.recipe import Recipe
from frostline.statistics.threshold_rule import check_threshold

Strict = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

MOST_SEEDS = 100_000


def panel(name: str, default: str = "") -> dict[str, JsonValue]:
    """The entry of a setting in ``--help``.

    Args:
        name: The panel that shows the flag: data, model, grid, training, resources or output.
        default: The text to show as the default if the setting is None.
    """
    return {"panel": name, "default_text": default}


def _as_list(value: Any) -> Any:
    """A single value or comma-separated text as a list."""
    if isinstance(value, str):
        return [_number(part) for part in comma_separated(value) if part]
    return list(value) if isinstance(value, list | tuple | range | set) else [value]


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _as_strings(value: Any) -> Any:
    """Comma-separated text as a list of strings. A label that looks like a number stays a string."""
    values = comma_separated(value) if isinstance(value, str) else _as_list(value)
    return [str(x) if isinstance(x, int | float) else x for x in values]


def _as_seeds(value: Any) -> Any:
    """The seeds 0 to 4 for ``5``. A list stays unchanged."""
    values = _as_list(value)
    if isinstance(value, int) or (isinstance(value, str) and "," not in value):
        if not values or not isinstance(values[0], int) or values[0] < 1:
            raise ValueError("give a number of seeds, 1 or more, or a list of them")
        if values[0] > MOST_SEEDS:
            raise ValueError(f"give {MOST_SEEDS:,} seeds or fewer")
        return list(range(values[0]))
    return values


def _not_empty_and_distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("give at least one value")
    if len(set(values)) < len(values):
        raise ValueError("a value appears twice; give each once")
    return values


def _at_least_two_or_none(folds: int | str) -> int | str:
    if folds == 1:
        raise ValueError("give 2 or more, 0 for none, or auto")
    return folds


Positive = Annotated[float, Field(gt=0)]
Tunes = Annotated[tuple[Recipe, ...], BeforeValidator(_as_list), AfterValidator(_not_empty_and_distinct)]
Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=2**63)], ...],
    BeforeValidator(_as_seeds),
    AfterValidator(_not_empty_and_distinct),
]
Sizes = Annotated[
    tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_as_list), AfterValidator(_not_empty_and_distinct)
]
Strings = Annotated[tuple[str, ...], BeforeValidator(_as_strings)]
Folds = Annotated[Annotated[int, Field(ge=0)] | Literal["auto"], AfterValidator(_at_least_two_or_none)]
LearningRates = Annotated[tuple[Positive, ...], BeforeValidator(_as_list), AfterValidator(_not_empty_and_distinct)]
HeadLearningRate = Annotated[
    Positive | None,  # None: the same as for the layers. Files use "same", because TOML has no null
    BeforeValidator(lambda value: None if value == "same" else value),
    PlainSerializer(lambda value: "same" if value is None else value, when_used="json"),
]
HeadLearningRates = Annotated[
    tuple[HeadLearningRate, ...], BeforeValidator(_as_list), AfterValidator(_not_empty_and_distinct)
]
Threshold = Annotated[float | str, BeforeValidator(check_threshold)]
