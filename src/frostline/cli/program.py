"""The program itself: what it says of a mistake, and the codes it exits with."""

import atexit
import errno
import gc
import sys
from typing import Annotated

import typer

from frostline import FrostlineError

FAILED_RUNS, INTERRUPTED = 1, 130  # exit codes: some runs ended in an error; Ctrl-C
MANY = 20_000  # new objects before somebody looks for garbage among them: by default torch's import is searched 1,200 times

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def program(
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    """How many of the last layers of a pretrained transformer should I fine-tune on my data, what does it cost, and how
    sure is that?"""
    if version:
        from importlib.metadata import version as version_of

        print(f"frostline {version_of('frostline')}")
        raise typer.Exit


def main() -> None:
    """The program. A mistake of the user's is one sentence on stderr and exit code 2."""
    gc.set_threshold(MANY)
    atexit.register(leave_the_garbage)
    try:
        app(prog_name="frostline")
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:
            leave("stopped. What is finished is kept; the same command goes on from there.", INTERRUPTED)
        raise
    except FrostlineError as error:
        leave(str(error), 2)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        leave(
            f"{error.filename or 'A file'} cannot be written or read ({error.strerror}): put that right and run the "
            "same command again; finished runs are kept.",
            2,
        )


def leave_the_garbage() -> None:
    """What is called at the end: the system takes everything back by itself; looking for garbage first takes a second.

    Where torch has brought Triton, whose bindings (nanobind) print a page about every object left at the end, it is
    looked for.
    """
    if "triton" not in sys.modules:
        gc.freeze()


def leave(sentence: str, code: int) -> None:
    print(f"frostline: {sentence}", file=sys.stderr)
    sys.exit(code)
