"""Help texts: options grouped by panel, verbs in the order in which one needs them."""

from typing import Any

from typer.core import TyperCommand, TyperGroup

VERBS = ("demo", "find", "sweep", "plan", "status", "report", "predict", "probe", "check", "analyze", "study", "cache")


class PanelCommand(TyperCommand):
    """A verb whose ``--help`` shows each panel of options under its name, in plain text that no terminal truncates."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one section for the arguments and one for each panel, in the order of the parameters."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                argument = param.param_type_name == "argument"
                panel = "Arguments" if argument else getattr(param, "rich_help_panel", None) or "Options"
                panels.setdefault(panel, []).append(record)
        for name, records in panels.items():
            with formatter.section(name):
                formatter.write_dl(records)


class OrderedGroup(TyperGroup):
    """The program, whose ``--help`` lists the verbs in the order in which one needs them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the verbs."""
        return [name for name in VERBS if name in self.commands]
