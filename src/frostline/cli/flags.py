"""One flag for each setting of a sweep, grouped in panels of ``--help``, and flags with several values."""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Optional, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from frostline import FrostlineError
from frostline.data.wording import comma_joined, comma_separated
from frostline.sweeps.settings import GROUPS, Settings
from frostline.sweeps.toml import NOT_SETTINGS, TRUST, read_toml, require_trust
from frostline.training.settings import TrainingSettings

TABLES = ("grid", "way")  # settings that only a file can give, as tables
File = Annotated[Path | None, typer.Argument(help="TOML file with the same settings; a flag takes precedence over it.")]
TrustRemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")]


def retry_option(default: str) -> Any:
    """The flag ``--retry`` of a command that trains runs again which have ended."""
    return typer.Option(
        metavar="LIST",
        help="Train runs again that ended before: failed (in an error), diverged, or both. Older results are kept in "
        f"retried/. [default: {default}]",
        show_default=False,
    )


def with_settings(
    *,
    file: bool = True,
    only: Collection[str] | None = None,
    leave_out: Collection[str] = (),
    defaults: str | None = None,
    others: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., None]], Any]:
    """Give a command one flag for each setting of a sweep, after its own flags.

    The command is called with a dictionary of the settings that were given, then with its own flags by name
    (:func:`with_fields`).

    Args:
        file: Whether a TOML file may give settings too.
        only: The settings to offer; by default all of them.
        leave_out: Settings to leave out; the command may have its own flags for them.
        defaults: The text that the help shows as every default, instead of the defaults of a sweep.
        others: The defaults that differ from those of a sweep.
    """

    others = others or {}

    def decorate(command: Callable[..., None]) -> Any:
        keyword, command = inspect.Parameter.KEYWORD_ONLY, with_fields(command)
        own = [one.replace(kind=keyword) for one in inspect.signature(command).parameters.values()][1:]
        first = [inspect.Parameter("file", keyword, default=None, annotation=File)] * file

        def run(**flags: Any) -> None:
            path = flags.pop("file", None)
            own_flags = {parameter.name: flags.pop(parameter.name) for parameter in own}
            given = {name: value for name, value in flags.items() if value is not None}
            of_file = {}
            if path:
                of_file = read_toml(path)
                require_trust(of_file, path, trusted=given.get(TRUST) is True)
                if path.name == "sweep.toml" and "identity" in of_file and (path.parent / "runs").is_dir():
                    from frostline.sweeps.results.folder import Folder

                    # the folder of the sweep may have been moved
                    of_file |= {"out": str(path.parent), **Folder(path.parent).moved_paths(given)}
            weights = given.get("class_weights", "")
            if "=" in weights:  # a table, as in a file
                parts = [part.rpartition("=") for part in comma_separated(weights)]
                given["class_weights"] = {label: weight for label, _, weight in parts}
                if len(given["class_weights"]) < len(parts):
                    raise FrostlineError(f"--class-weights {weights} names a label twice: give one weight for each.")
            of_file = {name: value for name, value in of_file.items() if name not in NOT_SETTINGS}
            command({**others, **of_file, **given}, **own_flags)

        return _declared(run, command, [*first, *own, *_settings(only, leave_out, defaults, others)])

    return decorate


def with_fields(command: Callable[..., None]) -> Any:
    """Replace each argument of a command that is a dataclass by a flag for each of its fields, after all other flags."""
    declared = inspect.signature(command).parameters.values()
    kinds: dict[str, Any] = {one.name: one.annotation for one in declared if is_dataclass(one.annotation)}
    fields = {name: inspect.signature(kind).parameters for name, kind in kinds.items()}

    def run(*arguments: Any, **flags: Any) -> None:
        objects = {name: kind(**{flag: flags.pop(flag) for flag in fields[name]}) for name, kind in kinds.items()}
        command(*arguments, **flags, **objects)

    own = [one for one in declared if one.name not in kinds]
    return _declared(run, command, [*own, *(field for some in fields.values() for field in some.values())])


def _declared(run: Callable[..., None], command: Callable[..., None], parameters: list[inspect.Parameter]) -> Any:
    """``run`` with the name and the help of a command, and with these parameters."""
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    return run


def _settings(
    only: Collection[str] | None, leave_out: Collection[str], defaults: str | None, others: Mapping[str, Any]
) -> Iterator[inspect.Parameter]:
    """A parameter for each setting, panel by panel. Within a panel, settings of the sweep come before settings of a run."""
    panels = {}
    for name, field in Settings.model_fields.items():
        if name not in (*TABLES, *leave_out) and (only is None or name in only):
            group = next(one for one, group in GROUPS.items() if name in group.model_fields)
            panels[name] = str(_of_help(field)["panel"] or group)
    names = list(GROUPS)
    for name in sorted(panels, key=lambda name: (names.index(panels[name]), name in TrainingSettings.model_fields)):
        field = Settings.model_fields[name]
        boolean = field.annotation in (bool, bool | None)
        kind: Any = Optional[bool] if boolean else Optional[str]  # noqa: UP045
        flag = name.replace("_", "-")
        assert field.description is not None
        if defaults or name in others:
            default = f" [default: {defaults or as_typed(others[name])}]"
        else:
            text = _of_help(field)["default"] if field.default is None else as_typed(field.default)
            default = " [required]" if field.is_required() else f" [default: {text}]" if text else ""
        # the placeholder for a value: LIST (with commas), NUMBER or VALUE
        is_tuple = get_origin(field.annotation) is tuple
        kinds: set[Any] = (
            {field.annotation} if is_tuple else set(get_args(field.annotation) or [field.annotation]) - {NoneType}
        )
        kinds = {kind.__origin__ if get_origin(kind) is Annotated else kind for kind in kinds}
        metavar = "NUMBER" if kinds <= {int, float} else "VALUE"
        if any(get_origin(kind) is tuple for kind in kinds):
            metavar = "LIST"
        option = typer.Option(
            f"--{flag}/--no-{flag}" if boolean else f"--{flag}",
            metavar=None if boolean else metavar,
            help=f"{field.description[0].upper()}{field.description[1:]}.{default}",
            show_default=False,
            rich_help_panel=panels[name].capitalize(),
        )
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _of_help(field: FieldInfo) -> dict[str, Any]:
    """What :func:`frostline.data.kinds.of_help` says of a setting."""
    extra = field.json_schema_extra
    return extra if isinstance(extra, dict) else {"default": "", "panel": ""}


def as_typed(value: Any) -> str:
    """The value of a setting as a user types it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return comma_joined(value) if isinstance(value, list | tuple) else str(value)


def of_setting(name: str, value: Any) -> str:
    """The value of this setting as a user types it: a list of one seed ends in a comma, because a number alone counts seeds."""
    return as_typed(value) + "," * (name == "seeds" and isinstance(value, list | tuple) and len(value) == 1)


def as_words(flags: Mapping[str, Any]) -> list[str]:
    """Flags as a user types them. Those that are None are left out."""
    words = []
    for name, value in flags.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, dict):
            words.append(f"--{flag}={comma_joined(f'{key}={one}' for key, one in value.items())}")
        elif value is not None:
            words.append(f"--{flag}={of_setting(name, value)}")
    return words


def split_words(flag: str, words: Sequence[str] | None) -> list[str] | None:
    """All values of a flag, or None if it was not given.

    Raises:
        FrostlineError: It has no value, as of an empty variable.
    """
    parts = [part for some in words or () for part in comma_separated(some) if part]
    if words and not parts:
        raise FrostlineError(f"{flag} has no value: give at least one, or leave it out.")
    return parts or None


def split_pairs(flag: str, words: Sequence[str] | None) -> dict[str, str]:
    """``a=b,c=d`` as a dictionary.

    Raises:
        FrostlineError: A part is not of the form NAME=VALUE, or a name is there twice.
    """
    found: dict[str, str] = {}
    for word in (part for some in words or () for part in comma_separated(some)):
        name, equals, value = word.partition("=")
        if not (name.strip() and equals and value.strip()):
            raise FrostlineError(f"{flag} {word!r} is no pair: give NAME=VALUE; separate several with commas.")
        if name.strip() in found:
            raise FrostlineError(f"{flag} has {name.strip()!r} twice: give one value for it.")
        found[name.strip()] = value.strip()
    return found
