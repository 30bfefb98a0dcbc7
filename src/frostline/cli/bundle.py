"""`frostline bundle`: several models with shared frozen layers in one folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from frostline.cli.help import PanelCommand
from frostline.cli.printing import print_table, size_of
from frostline.cli.program import app
from frostline.data.wording import comma_separated

if TYPE_CHECKING:
    from frostline.api.bundle import Bundled

Models = Annotated[list[Path], typer.Argument(help="Folders of fine-tuned models: OUT or OUT/model of sweeps.")]
Out = Annotated[Path, typer.Option(help="Folder of the bundle.")]
Names = Annotated[str | None, typer.Option(help="Names of the tasks, in order. [default: names of the folders]")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing bundle.")]


@app.command(cls=PanelCommand, short_help="Keep several models that share their frozen layers as one.")
def bundle(models: Models, *, out: Out, names: Names = None, overwrite: Overwrite = False) -> None:
    """Keep several fine-tuned models that share their frozen layers in one folder.

    The models must be fine-tuned from one pretrained model. Layers are shared if their weights are bitwise identical.
    `frostline predict` then labels texts for all tasks, and the shared layers run once. The predictions are bitwise
    identical to those of each model alone.

    Example: frostline bundle sentiment/model topic/model --out both
    """
    from frostline.api.bundle import bundle as write_bundle

    bundled = write_bundle(
        models, out=out, names=None if names is None else comma_separated(names), overwrite=overwrite
    )
    print_bundled(bundled)
    print(out)


def print_bundled(bundled: "Bundled") -> None:
    """Print what each task shares, and what the bundle costs compared with the separate models."""
    rows = [{"task": name, "shared layers": f"{n} of {bundled.layers}"} for name, n in bundled.shared_layers.items()]
    print_table(rows, ("task", "shared layers"))
    print(
        "The embeddings are shared, too. On random texts, all logits are bitwise identical to those of each model alone.\n"
    )
    one, many = bundled.cost, bundled.separate
    costs = {
        "disk": (size_of(many.disk_bytes), size_of(one.disk_bytes), one.disk_bytes / many.disk_bytes),
        "memory of the weights": (
            size_of(many.memory_bytes),
            size_of(one.memory_bytes),
            one.memory_bytes / many.memory_bytes,
        ),
        "layers that run": (str(many.layers), str(one.layers), one.layers / many.layers),
        "time for 16 short texts": (f"{many.seconds:.3f} s", f"{one.seconds:.3f} s", one.seconds / many.seconds),
    }
    header = ("", "separate models", "bundle", "share")
    print_table(
        [dict(zip(header, (name, a, b, f"{share:.0%}"), strict=True)) for name, (a, b, share) in costs.items()], header
    )
