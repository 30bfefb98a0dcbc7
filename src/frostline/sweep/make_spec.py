"""Make the specification of a sweep from plain values, with one clear message for each mistake."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from frostline import FrostlineError
from frostline.data.wording import did_you_mean
from frostline.statistics.recipe import NAMED
from frostline.sweep.setting_errors import advice, grid_advice, way_advice
from frostline.sweep.specification import SweepSpec
from frostline.training.ways.names import require_free


def make_spec(values: Mapping[str, Any]) -> SweepSpec:
    """A specification from plain values.

    Raises:
        FrostlineError: A key is unknown (the message has the nearest name), or a value is missing or impossible.
    """
    known = SweepSpec.model_fields
    for key, value in values.items():
        if key in known:
            continue
        if isinstance(value, Mapping):
            raise FrostlineError(
                f"There is no table [{key}]: move its settings to the top of the file. Only class_weights, grid and way are "
                "tables."
            )
        hint = did_you_mean(key, known) or f": choose from {', '.join(sorted(known))}"
        raise FrostlineError(f"There is no setting {key!r}{hint}.")
    if values.get("tune_modules") is not None and values.get("tune") is None:
        values = {**values, "tune": NAMED}
    try:
        return _check_names(SweepSpec.model_validate(values))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        if name == "grid":
            raise FrostlineError(
                grid_advice(first, {key: field.description for key, field in known.items()})
            ) from error
        if name == "way":
            raise FrostlineError(way_advice(first)) from error
        description = known[name].description
        if first["type"] == "missing":
            flag = name.replace("_", "-")
            raise FrostlineError(
                f"{name} is missing: give --{flag}, or the key in a TOML file ({description})."
            ) from error
        raise FrostlineError(f"{name} cannot be {values[name]!r}: {advice(first, description)}.") from error


def _check_names(spec: SweepSpec) -> SweepSpec:
    """Refuse ways that nobody knows, ``named`` without module names, and module names without ``named``."""
    require_free(spec.way)
    tunes = spec.values_of("tune")
    for tune in tunes:
        spec.way_of(tune)
    if any(tune.is_way for tune in tunes) and not any(tune.is_k for tune in tunes):
        raise FrostlineError(
            "Ways to tune are compared with the last k layers or with full fine-tuning: add one, such as full or last-2."
        )
    if NAMED in spec.values_of("tune") and spec.tune_modules is None:
        raise FrostlineError(
            "tune has `named`, but no parts are named: give --tune-modules with module paths, such as "
            "encoder.layer.11,pooler."
        )
    if NAMED not in spec.values_of("tune") and spec.tune_modules is not None:
        requested = ",".join(map(str, spec.values_of("tune")))
        raise FrostlineError(
            f"tune_modules names {', '.join(spec.tune_modules)}, but {requested} trains no named parts: add `named`, or "
            "leave --tune-modules out."
        )
    return spec
