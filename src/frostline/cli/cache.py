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
    """List the cached hidden states with their size."""
    from datetime import datetime

    from frostline.frozen.cache.entries import list_entries
    from frostline.frozen.cache.recipe import cache_folder

    entries = list(list_entries())
    rows = [
        {
            "key": kept.key[:12],
            "model": kept.model,
            "precision": kept.recipe.get("precision", ""),
            "examples": kept.rows,
            "after layers": " ".join(map(str, kept.cuts)),
            "size": size_of(kept.bytes),
            "written": datetime.fromtimestamp(kept.modified).strftime("%Y-%m-%d %H:%M"),
        }
        for kept in entries
    ]
    print(f"{cache_folder()}: {size_of(sum(kept.bytes for kept in entries))}")
    if rows:
        print_table(rows, tuple(rows[0]))


@cache_app.command("rm", short_help="Remove cached hidden states; they are computed again when needed.")
def cache_rm(
    keys: Annotated[list[str] | None, typer.Argument(help="Keys, or the first characters of keys.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove cached hidden states. They are computed again when they are needed."""
    from frostline.frozen.cache.entries import list_entries, remove_entries

    if bool(keys) == everything:
        raise FrostlineError("Name what to remove: keys from `frostline cache ls`, or --all.")
    if everything and not yes:
        size = size_of(sum(kept.bytes for kept in list_entries()))
        if not sys.stdin.isatty():
            raise FrostlineError(f"Removing all {size} needs confirmation, and there is no terminal to ask: add --yes.")
        typer.confirm(f"Remove {size} of hidden states?", abort=True)
    gone = remove_entries(None if everything else keys)
    print(f"Removed {len(gone)}, {size_of(sum(kept.bytes for kept in gone))}.")


@cache_app.command("verify", short_help="Read cached hidden states and compare their checksums.")
def cache_verify() -> None:
    """Read all cached hidden states and compare their checksums."""
    from frostline.frozen.cache.entries import verify_entries

    bad = 0
    for kept, problem in verify_entries():
        print(f"{kept.key[:12]}  {kept.model}  {problem or 'intact'}")
        bad += bool(problem)
    if bad:
        raise FrostlineError(f"{bad} damaged: remove them with `frostline cache rm KEY`; they are computed again.")
