"""Help texts: options grouped in panels, commands in the order of a typical project."""

from typing import Any

from typer.core import TyperCommand, TyperGroup

COMMANDS = (
    "demo",
    "find",
    "sweep",
    "plan",
    "compare",
    "work",
    "status",
    "merge",
    "report",
    "predict",
    "bundle",
    "probe",
    "check",
    "analyze",
    "study",
    "cache",
)
PANELS = ("Arguments", "Options", "Data", "Model", "Grid", "Search", "Probe")  # these come first, in this order
METAVARS = {"list": "LIST", "path": "PATH", "int": "NUMBER", "float": "NUMBER"}  # by the name that typer gives a type


def panels_of(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """The flags of a command and their help texts, by panel. The most important panels come first."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None:
            argument = param.param_type_name == "argument"
            panel = "Arguments" if argument else getattr(param, "rich_help_panel", None) or "Options"
            panels.setdefault(panel, []).append((plain_flag(record[0], argument=argument), record[1]))
    return {name: panels[name] for name in sorted(panels, key=lambda name: (*PANELS, name).index(name))}


def plain_flag(flag: str, *, argument: bool = False) -> str:
    """A flag or an argument as the help shows it: ``--out PATH``, ``FILE``, ``--[no-]tune-pooler``."""
    name, _, kind = flag.partition(" <")
    if argument:
        return name.upper()
    if kind:
        return f"{name} {next((word for start, word in METAVARS.items() if kind.startswith(start)), 'VALUE')}"
    yes, slash, no = flag.partition(" / --no-")
    return f"--[no-]{no}" if slash and yes == f"--{no}" else flag


class PanelCommand(TyperCommand):
    """A command whose ``--help`` shows its options in panels, as plain text that no terminal truncates."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each panel."""
        for name, records in panels_of(self, ctx).items():
            with formatter.section(name):
                formatter.write_dl(records)


class OrderedGroup(TyperGroup):
    """The program. Its ``--help`` lists the commands in the order of a typical project."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands; those that ``COMMANDS`` lacks come last."""
        return sorted(self.commands, key=lambda name: COMMANDS.index(name) if name in COMMANDS else len(COMMANDS))
