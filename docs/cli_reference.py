"""Write docs/reference/command-line.md from the program itself.

python docs/cli_reference.py
"""

from pathlib import Path
from typing import Any

from typer.main import get_command

from frostline.cli import app

TARGET = Path(__file__).parent / "reference" / "command-line.md"


def cell(text: str) -> str:
    """Text that stands in a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def verb(name: str, command: Any, context: Any) -> str:
    """A section for one verb: what it does, how it is called, and a table for each panel of options."""
    own = type(context)(command, info_name=name, parent=context)
    paragraphs = "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    usage = " ".join(own.command_path.split()[-2:]) if context.parent else f"frostline {name}"
    arguments = " ".join(command.collect_usage_pieces(own))
    parts = [f"## frostline {name}", paragraphs, f"```text\n{usage} {arguments}\n```"]
    panels: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(own):
        record = param.get_help_record(own)
        if record and "--help" not in record[0]:
            argument = param.param_type_name == "argument"
            panel = "Arguments" if argument else getattr(param, "rich_help_panel", None) or "Options"
            panels.setdefault(panel, []).append(record)
    for panel, records in panels.items():
        rows = "\n".join(f"| `{cell(flag).replace('&lt;', '<')}` | {cell(text)} |" for flag, text in records)
        parts.append(f"**{panel}**\n\n| flag | meaning |\n|---|---|\n{rows}")
    return "\n\n".join(parts)


def main() -> None:
    group: Any = get_command(app)
    context = group.make_context("frostline", [], resilient_parsing=True)
    sections = ["# Command line", " ".join((group.help or "").split())]
    for name in group.list_commands(context):
        command = group.commands[name]
        if hasattr(command, "commands"):
            sections += [verb(f"{name} {sub}", command.commands[sub], context) for sub in command.commands]
        else:
            sections.append(verb(name, command, context))
    TARGET.write_text("\n\n".join(sections) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
