"""One flag for each setting of a sweep, by the setting's name."""

import inspect
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from frostline.data.folding import between_commas
from frostline.sweep.specification import SweepSpec
from frostline.sweep.toml import read_toml
from frostline.training.specification import Settings


def with_settings(
    *,
    file: bool = True,
    only: Collection[str] | None = None,
    leave_out: Collection[str] = (),
    defaults: str | None = None,
    out: str | None = None,
) -> Callable[[Callable[..., None]], Any]:
    """Give a command one flag for each setting of a sweep, by the setting's name, behind its own.

    The command is called with the settings that were given, then its own flags by name. ``file``: a TOML file may give
    settings too; ``only``: no others than these; ``leave_out``: settings that the command has its own flags for;
    ``defaults``: what all of them default to, in place of a sweep's own defaults; ``out``: the folder, where none is given.
    """

    def decorate(command: Callable[..., None]) -> Any:
        keyword = inspect.Parameter.KEYWORD_ONLY
        own = [p.replace(kind=keyword) for p in list(inspect.signature(command).parameters.values())[1:]]
        argument = Annotated[Path | None, typer.Argument(help="TOML file with the same settings; a flag wins over it")]
        first = [inspect.Parameter("file", keyword, default=None, annotation=argument)] * file

        def run(**flags: Any) -> None:
            path = flags.pop("file", None)
            more = {parameter.name: flags.pop(parameter.name) for parameter in own}
            given = {name: value for name, value in flags.items() if value is not None}
            command(
                {**({} if out is None else {"out": out}), **(_settings_in(path) if path else {}), **_plain(given)},
                **more,
            )

        parameters = [*first, *own, *_settings(only, leave_out, defaults, out)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__doc__, run.__name__ = command.__doc__, command.__name__
        return run

    return decorate


def _settings(
    only: Collection[str] | None, leave_out: Collection[str], defaults: str | None, out: str | None
) -> Iterator[inspect.Parameter]:
    """A parameter for each setting; those of the grid and the data come first."""
    names = [name for name in SweepSpec.model_fields if name not in ("grid", *leave_out)]  # [[grid]] is for files
    names = [name for name in names if only is None or name in only]
    for name in sorted(names, key=lambda name: name in Settings.model_fields):
        field = SweepSpec.model_fields[name]
        kind: Any = Optional[bool] if field.annotation is bool else Optional[str]  # noqa: UP045
        default = "" if field.default is None else f" [default: {shown(field.default)}]"
        default = " [required]" if field.is_required() else default
        default = f" [default: {out}]" if name == "out" and out is not None else default
        default = default if defaults is None else f" [default: {defaults}]"
        flag = "--" + name.replace("_", "-")
        flags = [f"{flag}/--no-{flag[2:]}"] if field.annotation is bool else [flag]
        metavar = None if field.annotation is bool else "VALUE"
        option = typer.Option(*flags, metavar=metavar, help=f"{field.description}{default}", show_default=False)
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def shown(value: Any) -> str:
    """The value of a setting as one would type it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _settings_in(file: Path) -> dict[str, Any]:
    """What a TOML file sets; of a sweep's own sweep.toml, what the sweep found out about itself is left out."""
    return {name: value for name, value in read_toml(file).items() if name != "identity"}


def _plain(flags: dict[str, Any]) -> dict[str, Any]:
    """Words of the command line that a TOML file has other means for."""
    weights = flags.get("class_weights", "")
    if "=" in weights:
        parts = [part.rpartition("=") for part in between_commas(weights)]
        flags["class_weights"] = {label: weight for label, _, weight in parts}
    return flags
