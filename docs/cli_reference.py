"""Write docs/reference/command-line.md from the program itself.

python docs/cli_reference.py
"""

import re
from pathlib import Path
from typing import Any

from typer.main import get_command

from frostline.cli.program import app, panels_of

TARGET = Path(__file__).parent / "reference" / "command-line.md"
FLAG = re.compile(r"(?<![\w`-])--[a-z][a-z-]*")


def prose(text: str) -> str:
    """A help text as Markdown: flags as code, an example as a block."""
    if text.startswith("Example: "):
        return f"```text\n$ {text.removeprefix('Example: ')}\n```"
    parts = text.split("`")  # every second part is code already
    parts[::2] = [FLAG.sub(r"`\g<0>`", part) for part in parts[::2]]
    return "`".join(parts)


def cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def verb(name: str, command: Any, experiment: Any) -> str:
    """A section for one verb: what it does, how it is called, and a table for each panel of options."""
    own = type(experiment)(command, info_name=name, parent=experiment)
    paragraphs = [prose(" ".join(part.split())) for part in (command.help or "").split("\n\n")]
    arguments = " ".join(command.collect_usage_pieces(own)).replace("{", "").replace("}", "").upper()
    parts = [f"## frostline {name}", *paragraphs, f"```text\nfrostline {name} {arguments}\n```"]
    for panel, records in panels_of(command, own).items():
        rows = [f"| `{flag}` | {prose(cell(text))} |" for flag, text in records if flag != "--help"]
        if rows:
            parts.append("\n".join([f"**{panel}**\n", "| flag | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def main() -> None:
    group: Any = get_command(app)
    experiment = group.make_context("frostline", [], resilient_parsing=True)
    sections = ["# Command line", " ".join((group.help or "").split())]
    for name in group.list_commands(experiment):
        command = group.commands[name]
        if hasattr(command, "commands"):
            sections += [verb(f"{name} {sub}", command.commands[sub], experiment) for sub in command.commands]
        else:
            sections.append(verb(name, command, experiment))
    TARGET.write_text("\n\n".join(sections) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
