"""Names and types of settings in Python, and what is said of unknown ones."""

import inspect
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest

import frostline
from frostline.api.keywords import Floats, Grid, Integers, ModelAndData, Strings, Training
from frostline.search import DEFAULTS
from frostline.sweeps.settings import NOT_OF_SEARCH, OF_MODEL_AND_DATA, Settings

FIELDS = Settings.model_fields
# What is accepted for these is more than a value of another type: paths, tables, names of ways, `same`, tables of a TOML file.
OWN = {"model", "depth", "train", "validation", "test", "data", "tune", "head_learning_rate", "way", "grid"}


def accepted(kind: Any) -> Any:
    """What is accepted for a setting of this type: several values also as one value, or as a text with commas."""
    if get_origin(kind) is Annotated:
        return accepted(get_args(kind)[0])
    if get_origin(kind) is tuple:
        return {str: Strings, int: Integers, float: Floats}[accepted(get_args(kind)[0])]
    if get_origin(kind) is Union or "|" in str(kind):
        return Union[tuple(map(accepted, get_args(kind)))]  # noqa: UP007
    return kind


def test_every_setting_is_a_keyword_with_its_type() -> None:
    everything = {*FIELDS} - {"out"}  # an argument of its own, because `more` has none
    assert {*get_type_hints(Grid)} == everything
    assert {*get_type_hints(Training)} == everything - {"tune", *NOT_OF_SEARCH}
    assert {*get_type_hints(ModelAndData)} == OF_MODEL_AND_DATA
    hints = get_type_hints(Grid)
    assert {name: hints[name] for name in everything - OWN} == {
        name: accepted(FIELDS[name].annotation) for name in everything - OWN
    }


@pytest.mark.parametrize("name", ["sweep", "find", "plan", "probe", "Results.more"])
def test_a_signature_names_every_setting_with_its_default(name: str) -> None:
    first, _, method = name.partition(".")
    function = getattr(getattr(frostline, first), method) if method else getattr(frostline, first)
    shown = inspect.signature(function).parameters
    assert (
        shown["max_length"].default in (None, ...) and shown["precision"].annotation == FIELDS["precision"].annotation
    )
    assert not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in shown.values())
    assert ("tune" in shown) == (name != "probe")
    others = {"find": DEFAULTS, "Results.more": {"folds": ..., "tune": ...}, "sweep": {"folds": 0}}.get(name, {})
    assert {setting: shown[setting].default for setting in others} == others


def test_an_unknown_name_is_refused_with_the_nearest_one(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frostline.data.wording._for_shell", [False])
    own: dict[str, Any] = {"model": "m", "train": "t.csv", "out": tmp_path / "o"}
    for function, wrong, message in (
        (frostline.find, "budgett", r"no setting 'budgett' of `frostline\.find` \(did you mean 'budget'\?\)"),
        (frostline.sweep, "learning_rates", r"of `frostline\.sweep` \(did you mean 'learning_rate'\?\)"),
        (frostline.plan, "save_model", r"of `frostline\.plan`"),
    ):
        with pytest.raises(ValueError, match=message):
            function(**own, **{wrong: 1})


def test_a_refused_value_has_no_traceback_of_the_validation(tmp_path: Any) -> None:
    with pytest.raises(frostline.FrostlineError, match="tune cannot be -1") as caught:
        frostline.sweep(model="m", train="t.csv", tune=-1, out=tmp_path / "o")
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    with pytest.raises(frostline.FrostlineError, match="retry cannot be 'errors': give failed, diverged"):
        frostline.sweep(model="m", train="t.csv", tune=0, out=tmp_path / "o", retry=["errors"])
