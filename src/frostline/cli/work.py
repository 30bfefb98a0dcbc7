"""`frostline work`: train runs of a sweep together with other processes."""

import re
import sys
from typing import Annotated, Any

import typer

from frostline import FrostlineError
from frostline.cli.flags import FolderArgument, TrustRemoteCode, retry_kinds, retry_option
from frostline.cli.printing import print_run_counts
from frostline.cli.program import FAILED_RUNS, PanelCommand, app, runs_saved
from frostline.sweep.results.leases import SILENT_AFTER

Wait = Annotated[
    bool, typer.Option("--wait", help="Stay until all runs have ended, and take over those of dead processes.")
]
Retry = Annotated[str | None, retry_option("none")]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Runs trained at the same time here. [default: as in the sweep]", show_default=False),
]
SilentAfter = Annotated[
    float,
    typer.Option(
        min=10,
        max=86_400,
        help="Seconds without a sign of life after which this process takes over the runs of another one.",
    ),
]


@app.command(cls=PanelCommand, short_help="Train runs of a sweep together with other processes.")
def work(
    folder: FolderArgument,
    *,
    wait: Wait = False,
    retry: Retry = None,
    workers: Workers = None,
    silent_after: SilentAfter = SILENT_AFTER,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Train runs of the sweep or search in a folder that no other process trains.

    Start it as often as you like, on any machine that can open the folder, the model and the data. It ends when there is no run
    left that it could take. Relative paths of the sweep start from here or, if there is no such file, from where the sweep was
    started.

    Example: frostline work reviews --wait
    """
    from frostline.api.work import work as train

    kinds = retry_kinds(retry) if retry else ()
    with runs_saved():
        options: dict[str, Any] = {
            "workers": workers,
            "silent_after": silent_after,
            "trust_remote_code": trust_remote_code,
        }
        try:
            counts = train(folder, wait=wait, retry=kinds, **options)
        except FrostlineError as error:
            # the flags that it names are those of the command that made the sweep, whose settings they are
            own = ("--wait", "--retry", "--workers", "--silent-after")
            named = dict.fromkeys(re.findall(r"(?<![\w-])--[a-z][a-z-]+", str(error)))
            flags = ", ".join(flag for flag in named if flag not in own)
            owner = f" The command that made {folder} takes {flags}." if flags else ""
            raise FrostlineError(f"{error}{owner}") from error
    print_run_counts(folder, counts)
    if not counts["pending"]:
        print(f"`frostline report {folder}` writes the report. The sweep's command also saves the model.")
    if counts["failed"]:
        sys.exit(FAILED_RUNS)
