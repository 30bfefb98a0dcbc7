"""`frostline check`: the exactness check on a model."""

from typing import Annotated

import typer

from frostline import FrostlineError
from frostline.cli.help import PanelCommand
from frostline.cli.printing import print_table
from frostline.cli.program import app
from frostline.data.kinds import CLASSIFICATION, REGRESSION, TaskType


@app.command(cls=PanelCommand, short_help="Check that cutting a model changes neither logits nor gradients.")
def check(
    model: Annotated[str, typer.Argument(help="Hub name, or folder written by save_pretrained.")],
    revision: Annotated[str | None, typer.Option(help="Commit, tag or branch of a hub model.")] = None,
    trust_remote_code: Annotated[
        bool,
        typer.Option("--trust-remote-code", help="Run code that comes with the model; a hub model needs --revision."),
    ] = False,
    task_type: Annotated[TaskType, typer.Option(help="Type of the head that is checked.")] = CLASSIFICATION,
) -> None:
    """Compare the cut model with the whole model on logits and gradients.

    The check covers every k, with cached hidden states and with packed batches. The whole model is compared with the one that
    transformers loads, on hidden states.
    """
    from frostline.frozen.exactness import TOLERANCE, difference_from_transformers
    from frostline.frozen.exactness import check as check_model
    from frostline.model.loading import load_pretrained

    labels = () if task_type == REGRESSION else ("0", "1")
    pretrained = load_pretrained(
        model, labels=labels, task_type=task_type, revision=revision, trust_remote_code=trust_remote_code
    )
    checks = check_model(pretrained.model)
    refused = [row for row in checks if row.refused]
    columns = (
        "tuned_layers",
        "batches",
        "max_logit_difference",
        "max_gradient_difference",
        *["refused"] * bool(refused),
    )
    print_table(map(vars, checks), columns)
    if refused:
        raise FrostlineError(
            f"{model} cannot be used at {len(refused)} of {len(checks)} values of k: {refused[0].refused}"
        )
    if not (difference := difference_from_transformers(pretrained)) < TOLERANCE:
        raise FrostlineError(
            f"The hidden states of {model} are not those of transformers' AutoModel (they differ by {difference:.1e}): report "
            "this with the model's name, and use another model."
        )
    print(
        f"Equal: every difference is below {TOLERANCE:g} of the largest value (float32). The packed batches have "
        "no padding."
    )
