"""Commands about models and their cached hidden states: `frostline check`, `probe`, `bundle`, `push`, `cache`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from frostline import FrostlineError
from frostline.cli.flags import with_settings
from frostline.cli.program import PanelCommand, app
from frostline.data.kinds import CLASSIFICATION, REGRESSION, TaskType
from frostline.data.wording import comma_separated, did_you_mean
from frostline.report.plain_text import print_table, size_of
from frostline.sweeps.settings import OF_MODEL_AND_DATA


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
    from frostline.model.model_files import model_folder

    model_folder(model, revision, ["config.json"])  # refuses what is no model before torch is imported
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
        "recipe",
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


@app.command(cls=PanelCommand, short_help="Train linear probes on frozen features after every layer.")
@with_settings(file=False, only=OF_MODEL_AND_DATA)
def probe(
    settings: dict[str, Any],
    *,
    kind: Annotated[str, typer.Option(help="Kind of probe: ridge or logistic.", rich_help_panel="Probe")] = "ridge",
    out: Annotated[
        Path, typer.Option(help="Folder for report, table, figure and best probe.", rich_help_panel="Output")
    ] = Path("frostline-probe"),
) -> None:
    """Train a linear classifier on frozen features after every layer.

    Features are the first token, the mean of all tokens, and the last token; for tags, the first token of each word. One
    forward pass over the examples serves all probes. The best probe is saved for `frostline predict`.

    Example: frostline probe --model ORG/NAME --train reviews.csv
    """
    from frostline.api.probe import probe as probe_model
    from frostline.report import formatting, names
    from frostline.sweeps.progress import suitable_progress

    progress = suitable_progress()
    try:
        report = probe_model(kind=kind, out=out, progress=progress, **settings).report
    finally:
        progress.close()
    for note in report.notes:
        print(note)
    # validation scores: a row for each layer, a column for each feature vector
    rows, vectors = dict[str, dict[str, Any]](), dict.fromkeys(probe.vector for probe in report.probes)
    for own in report.probes:
        after = formatting.layers(own.layers)
        best = (report.best.layers, report.best.vector) == (own.layers, own.vector)
        score = "-" if own.validation is None else f"{own.validation:.3f}"
        row = rows.setdefault(after, {"after layer": after, **dict.fromkeys(vectors, "")})
        row[own.vector] = score + " *" * best
    metric, count = names.metric(report.metric), report.validation_rows
    print(f"\n{report.columns['label']}: {metric} on {count:,} validation examples")
    print_table(rows.values(), ("after layer", *vectors))
    print("* best probe, selected by its leave-one-out or held-out score on the training examples")
    print(f"\n{report.sentence}\n", out / "report.html", out / "probe", sep="\n")


@app.command(cls=PanelCommand, short_help="Keep several models that share their frozen layers as one.")
def bundle(
    models: Annotated[list[Path], typer.Argument(help="Folders of fine-tuned models: OUT or OUT/model of sweeps.")],
    *,
    out: Annotated[Path, typer.Option(help="Folder of the bundle.")],
    names: Annotated[
        str | None, typer.Option(help="Names of the tasks, in order. [default: names of the folders]")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing bundle.")] = False,
) -> None:
    """Keep several fine-tuned models that share their frozen layers in one folder.

    The models must be fine-tuned from one pretrained model. Layers are shared if their weights are bitwise identical.
    `frostline predict` then labels texts for all tasks, and the shared layers run once. The predictions are bitwise
    identical to those of each model alone.

    Example: frostline bundle sentiment/model topic/model --out both
    """
    from frostline.api.bundle_inputs import models_of_tasks

    tasks = None if names is None else comma_separated(names)
    # a mistake is answered before torch is imported
    models_of_tasks(models, tasks, out.expanduser(), overwrite=overwrite)
    from frostline.api.bundle import bundle as write_bundle

    bundled = write_bundle(models, out=out, names=tasks, overwrite=overwrite)
    rows = [{"task": name, "shared layers": f"{n} of {bundled.layers}"} for name, n in bundled.shared_layers.items()]
    print_table(rows, ("task", "shared layers"))
    print(
        "The embeddings are shared, too. On random texts, all logits are bitwise identical to those of each model alone.\n"
    )
    one, many = bundled.cost, bundled.separate
    costs = (
        ("disk", size_of(many.disk_bytes), size_of(one.disk_bytes), one.disk_bytes / many.disk_bytes),
        (
            "memory of the weights",
            size_of(many.memory_bytes),
            size_of(one.memory_bytes),
            one.memory_bytes / many.memory_bytes,
        ),
        ("layers that run", str(many.layers), str(one.layers), one.layers / many.layers),
        ("time for 16 short texts", f"{many.seconds:.3f} s", f"{one.seconds:.3f} s", one.seconds / many.seconds),
    )
    header = ("", "separate models", "bundle", "share")
    print_table([dict(zip(header, (*row, f"{share:.0%}"), strict=True)) for *row, share in costs], header)
    print(out)


@app.command(cls=PanelCommand, short_help="Upload a saved model to the Hugging Face hub.")
def push(
    folder: Annotated[Path, typer.Argument(help="Folder of a sweep or search, of a model or of a probe.")],
    name: Annotated[str, typer.Argument(help="Repository, such as me/reviews. It is made if it does not exist.")],
    *,
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
) -> None:
    """Upload a saved model with its card to the Hugging Face hub. `hf auth login` logs in.

    The folder is what frostline saved, else it is refused. So is a probe of a model that is not on
    the hub, unless it was written with --embed.

    Example: frostline push found me/reviews
    """
    from frostline.api.push import push as upload

    print(upload(folder, name, private=private))


@app.command(cls=PanelCommand, short_help="Compare two checkpoints: which layers moved, to the bit.")
def audit(
    before: Annotated[str, typer.Argument(help="Folder with safetensors files, or name on the hub.")],
    after: Annotated[str, typer.Argument(help="The same after training.")],
    *,
    frozen: Annotated[
        str | None, typer.Option(metavar="LIST", help="Modules that must not have moved, such as embeddings,layer.0.")
    ] = None,
) -> None:
    """Compare the weights of two checkpoints part by part, to the bit.

    Exit code 1 says that something under --frozen moved, or is missing in one of them. In Python, `frostline.audit` watches a
    training.

    Example: frostline audit google-bert/bert-base-uncased my-model --frozen embeddings
    """
    from safetensors import safe_open

    from frostline.model.model_files import checkpoint_files

    wanted, paths = comma_separated(frozen) if frozen else [], list[list[str]]()
    for file in (*checkpoint_files(before), *checkpoint_files(after)):
        with safe_open(file, "np") as opened:
            paths += [name.split(".") for name in opened.keys()]  # noqa: SIM118 -- it is no dictionary
    for module in wanted:
        length = module.count(".") + 1
        known = {".".join(path[n : n + length]) for path in paths for n in range(len(path) - length + 1)}
        if module not in known:
            raise FrostlineError(
                f"--frozen names {module}, but no module is called so{did_you_mean(module, known)}: correct it, or leave it out."
            )
    from frostline.api.training_audit import audit_folders, named

    parts = audit_folders(before, after)
    header = ("part", "weights", "moved", "largest change", "other shape", "not in both")
    values = (
        (one.part, len(one.names), len(one.moved), one.largest, len(one.reshaped), len(one.alone)) for one in parts
    )
    print_table([dict(zip(header, row, strict=True)) for row in values], header)
    groups = {
        "Moved": [one.part for one in parts if one.moved],
        "Of another shape": [one.part for one in parts if one.reshaped],
        "Not in both": [one.part for one in parts if one.alone],
        "The same numbers in another type": [one.part for one in parts if one.retyped],
        "Equal to the bit": [one.part for one in parts if one.equal],
    }
    verdict = [f"{what}: {named(some)}." for what, some in groups.items() if some]
    print(*verdict if groups["Moved"] else ("Nothing moved.", *verdict))
    changed = [name for one in parts for name in (*one.moved, *one.reshaped, *one.alone)]
    wrong = [name for name in changed if any(f".{module}." in f".{name}." for module in wanted)]
    if wrong:
        print(f"Should be frozen, but moved, of another shape or not in both: {named(wrong)}.")
        raise typer.Exit(1)


cache_app = typer.Typer(no_args_is_help=True, help="List or remove the hidden states cached on this machine.")
app.add_typer(cache_app, name="cache")


@cache_app.command("ls", cls=PanelCommand)
def cache_ls() -> None:
    """List the cached hidden states and their sizes."""
    from datetime import datetime

    from frostline.frozen.cache import cache_folder, list_entries

    entries = list_entries()
    rows = [
        {
            "key": entry.folder.name[:12],
            "model": entry.model,
            "precision": entry.recipe.precision if entry.recipe else "",
            "examples": entry.rows,
            "after layers": " ".join(entry.after),
            "size": size_of(entry.bytes),
            "written": datetime.fromtimestamp(entry.modified).strftime("%Y-%m-%d %H:%M"),
        }
        for entry in entries
    ]
    print(f"{cache_folder()}: {size_of(sum(entry.bytes for entry in entries))}")
    if rows:
        print_table(rows, tuple(rows[0]))


@cache_app.command(
    "rm", cls=PanelCommand, short_help="Remove cached hidden states; they are computed again when needed."
)
def cache_rm(
    keys: Annotated[list[str] | None, typer.Argument(help="Keys, or the first characters of keys.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all entries.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove cached hidden states. They are computed again when they are needed."""
    if bool(keys) == everything or not all(keys or ()):  # every key starts with an empty one
        raise FrostlineError("Say what to remove: keys from `frostline cache ls`, or --all.")
    from frostline.frozen.cache import list_entries, remove_entries

    if everything and not yes:
        size = size_of(sum(entry.bytes for entry in list_entries()))
        if not sys.stdin.isatty():
            raise FrostlineError(f"Removing {size} needs confirmation, but there is no terminal to ask: add --yes.")
        typer.confirm(f"Remove {size} of hidden states?", abort=True)
    removed = remove_entries(None if everything else keys)
    print(f"Entries removed: {len(removed)}, {size_of(sum(entry.bytes for entry in removed))}.")
