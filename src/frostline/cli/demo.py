"""`frostline demo`: the embedded example."""

from pathlib import Path
from typing import Annotated

import typer

from frostline.cli.answer_output import run_and_print
from frostline.cli.help import PanelCommand
from frostline.cli.program import app

Out = Annotated[Path, typer.Option(help="Folder for results, answer, page and model.")]
Task = Annotated[str, typer.Option(help="polarity or agreement; the sentences are generated.")]
Seeds = Annotated[int, typer.Option(min=1, help="Runs of each k.")]


@app.command(cls=PanelCommand, short_help="Run the embedded example, offline, in one to two minutes.")
def demo(out: Out = Path("frostline-demo"), task: Task = "polarity", seeds: Seeds = 3) -> None:
    """Run the embedded example offline: answer, page and model in one to two minutes (agreement takes longer)."""
    from frostline.api.demo import demo_sweep

    run_and_print(demo_sweep(out, task=task, seeds=seeds))
