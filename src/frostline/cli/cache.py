"""`frostline cache ls`, `rm` and `verify`: the cached hidden states on this machine."""

import sys
from typing import Annotated

import typer

from frostline import FrostlineError
from frostline.cli.printing import print_table, size_of
from frostline.cli.program import app

cache_app = typer.Typer(no_args_is_help=True, help="List, verify or remove the hidden states cached on this machine.")
app.add_typer(cache_app, name="cache")


@cache_app.command("ls")
def cache_ls() -> None:
    """List the cached hidden states and their sizes."""
    from datetime import datetime

    from frostline.frozen.hidden_states import cache_folder, list_entries

    entries = list(list_entries())
    rows = [
        {
            "key": entry.key[:12],
            "model": entry.model,
            "precision": entry.recipe.get("precision", ""),
            "examples": entry.rows,
            "after layers": " ".join(map(str, entry.cuts)),
            "size": size_of(entry.bytes),
            "written": datetime.fromtimestamp(entry.modified).strftime("%Y-%m-%d %H:%M"),
        }
        for entry in entries
    ]
    print(f"{cache_folder()}: {size_of(sum(entry.bytes for entry in entries))}")
    if rows:
        print_table(rows, tuple(rows[0]))


@cache_app.command("rm", short_help="Remove cached hidden states; they are computed again when needed.")
def cache_rm(
    keys: Annotated[list[str] | None, typer.Argument(help="Keys, or the first characters of keys.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all entries.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove cached hidden states. They are computed again when they are needed."""
    from frostline.frozen.hidden_states import list_entries, remove_entries

    if bool(keys) == everything:
        raise FrostlineError("Say what to remove: keys from `frostline cache ls`, or --all.")
    if everything and not yes:
        size = size_of(sum(entry.bytes for entry in list_entries()))
        if not sys.stdin.isatty():
            raise FrostlineError(f"Removing {size} needs confirmation, but there is no terminal to ask: add --yes.")
        typer.confirm(f"Remove {size} of hidden states?", abort=True)
    removed = remove_entries(None if everything else keys)
    print(f"Entries removed: {len(removed)}, {size_of(sum(entry.bytes for entry in removed))}.")


@cache_app.command("verify", short_help="Read cached hidden states and compare their checksums.")
def cache_verify() -> None:
    """Read all cached hidden states and compare their checksums."""
    from frostline.frozen.hidden_states import verify_entries

    bad = 0
    for entry, problem in verify_entries():
        print(f"{entry.key[:12]}  {entry.model}  {problem or 'intact'}")
        bad += bool(problem)
    if bad:
        raise FrostlineError(
            f"Damaged entries: {bad}. Remove them with `frostline cache rm KEY`; they are computed again when needed."
        )
