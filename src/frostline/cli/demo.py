"""`frostline demo`: the built-in example."""

from pathlib import Path
from typing import Annotated

import typer

from frostline.cli.answer_output import run_and_print
from frostline.cli.help import PanelCommand
from frostline.cli.program import app

Out = Annotated[Path, typer.Option(help="Folder for results, answer, report and model.")]
Seeds = Annotated[int, typer.Option(min=1, help="Number of runs per k.")]


@app.command(cls=PanelCommand, short_help="Run the built-in example, offline, in one to two minutes.")
def demo(out: Out = Path("frostline-demo"), seeds: Seeds = 3) -> None:
    """Run the built-in example offline, in one to two minutes."""
    from frostline.api.sweep import demo_sweep

    run_and_print(demo_sweep(out, seeds=seeds))
