"""The verbs of the cache: ls, rm, verify."""

import sys
from typing import Annotated

import typer

from frostline import FrostlineError
from frostline.cli.printing import print_table, size_of
from frostline.cli.program import app

cache_app = typer.Typer(no_args_is_help=True, help="Hidden states that are kept on this machine.")
app.add_typer(cache_app, name="cache")


@cache_app.command("ls")
def cache_ls() -> None:
    """List what is kept, with its size."""
    from datetime import datetime

    from frostline.frozen.cache import kept_states
    from frostline.frozen.hidden_states import cache_folder

    entries = list(kept_states())
    rows = [
        {
            "key": kept.key[:12],
            "model": kept.model,
            "precision": kept.recipe.get("precision", ""),
            "texts": kept.rows,
            "after layers": " ".join(map(str, kept.cuts)),
            "size": size_of(kept.bytes),
            "written": datetime.fromtimestamp(kept.modified).strftime("%Y-%m-%d %H:%M"),
        }
        for kept in entries
    ]
    print(f"{cache_folder()}: {size_of(sum(kept.bytes for kept in entries))}")
    if rows:
        print_table(rows, tuple(rows[0]))


@cache_app.command("rm", short_help="Remove it; it is computed again when needed.")
def cache_rm(
    keys: Annotated[list[str] | None, typer.Argument(help="keys, or how they begin")] = None,
    everything: Annotated[bool, typer.Option("--all", help="remove all")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Remove what is kept; it is computed again when it is needed."""
    from frostline.frozen.cache import kept_states, remove

    if bool(keys) == everything:
        raise FrostlineError("Say what to remove: keys from `frostline cache ls`, or --all.")
    if everything and not yes:
        size = size_of(sum(kept.bytes for kept in kept_states()))
        if not sys.stdin.isatty():
            raise FrostlineError(f"Removing all {size} asks first, and nobody is there to answer: add --yes.")
        typer.confirm(f"Remove {size} of hidden states?", abort=True)
    gone = remove(None if everything else keys)
    print(f"Removed {len(gone)}, {size_of(sum(kept.bytes for kept in gone))}.")


@cache_app.command("verify", short_help="Read it again and compare checksums.")
def cache_verify() -> None:
    """Read everything that is kept again and compare it with its checksums."""
    from frostline.frozen.cache import verify

    bad = 0
    for kept, problem in verify():
        print(f"{kept.key[:12]}  {kept.model}  {problem or 'as it was written'}")
        bad += bool(problem)
    if bad:
        raise FrostlineError(f"{bad} damaged: remove them with `frostline cache rm KEY`; they are computed again.")
