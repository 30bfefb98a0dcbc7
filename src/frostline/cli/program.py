"""The program, its help and its exit codes. A mistake of the user is one sentence on stderr."""

import atexit
import errno
import gc
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from threading import current_thread, main_thread
from typing import Annotated, Any, NoReturn, TextIO

import typer
from typer.core import TyperCommand

from frostline import FrostlineError
from frostline.data.files import CANNOT_WRITE
from frostline.data.wording import HarmlessStream, first_line, harmless, shell_spoken
from frostline.sweeps.execution.stopping import STOP
from frostline.sweeps.slurm import TERMINATED

COMMANDS = (
    *("demo", "find", "sweep", "work", "status", "merge", "report", "track"),
    *("predict", "evaluate", "push", "bundle", "probe", "check", "audit", "analyze", "study", "cache"),
)
PANELS = ("Arguments", "Options", "Data", "Model", "Grid", "Search", "Probe")  # these come first, in this order
TRAINING = (
    *("model", "train", "validation", "test", "tune", "out", "budget", "text-column", "label-column", "metric"),
    *("seeds", "plan"),
)
FIRST = {  # the flags that --help shows of a command with many, in the order in which a person needs them
    **dict.fromkeys(("find", "sweep"), TRAINING),
    "predict": ("out", "overwrite", "text-column", "text-pair-column", "copy-columns", "safe-csv", "threshold"),
}
HELP_ALL = "--help-all"
METAVARS = {"list": "LIST", "path": "PATH", "int": "NUMBER", "float": "NUMBER"}  # by the name that typer gives a type


def panels_of(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """The flags of a command and their help texts, by panel. The most important panels come first."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None:
            argument = param.param_type_name == "argument"
            panel = "Arguments" if argument else getattr(param, "rich_help_panel", None) or "Options"
            # as the help shows a flag: --out PATH, FILE, --[no-]tune-pooler
            flag = record[0]
            name, _, kind = flag.partition(" <")
            yes, slash, no = flag.partition(" / --no-")
            if argument:
                flag = name.upper()
            elif kind:
                flag = f"{name} {next((word for start, word in METAVARS.items() if kind.startswith(start)), 'VALUE')}"
            elif slash and yes == f"--{no}":
                flag = f"--[no-]{no}"
            panels.setdefault(panel, []).append((flag, record[1]))
    return {name: panels[name] for name in sorted(panels, key=lambda name: (*PANELS, name).index(name))}


class PanelCommand(TyperCommand):
    """A command whose help shows its options in panels, as plain text that no terminal truncates.

    If it has many, ``--help`` shows only the first ones, and ``--help-all`` shows all.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the flags. Of an unknown one, the error has only the most similar name."""
        if self.name in FIRST and HELP_ALL in args:
            ctx.meta[HELP_ALL], args = True, ["--help"]
        try:
            self._refuse_lost_values(ctx, {*args}, *self.make_parser(ctx).parse_args(list(args)))
            return super().parse_args(ctx, args)
        except Exception as error:
            similar = getattr(error, "possibilities", None)  # of Typer's error, the most similar name first
            if similar:
                error.possibilities = similar[:1]  # type: ignore[attr-defined]
            raise

    def _refuse_lost_values(
        self, ctx: Any, words: Set[str], values: Mapping[str, Any], _: object, given: Sequence[Any]
    ) -> None:
        """Refuse a flag with one value that is there twice, or that has another flag for its value, as of an empty variable.

        So are ``--x`` and ``--no-x`` together.

        Raises:
            FrostlineError: There is one. The parser would take the last value, or the other flag.
        """
        known = {flag for one in self.get_params(ctx) for flag in (*one.opts, *one.secondary_opts)}
        for one in () if values.get("help") else given:
            if one.secondary_opts and words & {*one.opts} and words & {*one.secondary_opts}:
                raise FrostlineError(
                    f"{one.opts[0]} and {one.secondary_opts[0]} are both there: leave one of them out."
                )
            if one.param_type_name == "argument" or one.is_flag or one.multiple:
                continue
            if values[one.name] in known:
                raise FrostlineError(f"{one.opts[0]} has no value: {values[one.name]} follows it. Give one.")
            if given.count(one) > 1:
                raise FrostlineError(
                    f"{one.opts[0]} is there twice: give it once, and several values separated by commas, where it takes them."
                )

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each panel, or one for the first flags."""
        panels = panels_of(self, ctx)
        if self.name in FIRST and HELP_ALL not in ctx.meta:
            arguments = {name: records for name, records in panels.items() if name == "Arguments"}
            by_name = {record[0].removeprefix("--").split()[0]: record for some in panels.values() for record in some}
            rest = (HELP_ALL, "Show all flags, in groups.")
            shown = [by_name[name] for name in (*FIRST[self.name], "help") if name in by_name]
            panels = {**arguments, "Options": [*shown, rest]}
        for name, records in panels.items():
            with formatter.section(name):
                formatter.write_dl(records)


# Exit codes: some runs ended in an error; an error that is not expected; Ctrl-C; nobody reads the output any more. TERMINATED:
# SIGTERM. Python's own code for an error is 1, too, as is Typer's for output that nobody reads. A cluster must not take these for
# runs that have ended.
FAILED_RUNS, UNEXPECTED, INTERRUPTED, UNREAD = 1, 70, 130, 141
# With Python's default threshold of 700 new objects, garbage is collected 1,200 times while torch is imported.
GARBAGE_THRESHOLD = 20_000

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 110},
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


class TrainingStopped(Exception):
    """A command that trains runs was stopped, and the program exits with ``code``."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@contextmanager
def runs_saved() -> Iterator[None]:
    """For commands that train runs: Ctrl-C and SIGTERM say that finished runs are saved. A plan has none to save.

    After such a signal, no other error counts: Ray makes another exit code of SIGTERM, and cleaning up may fail.
    """
    try:
        yield
    except BaseException as error:
        leaving = STOP.leaving_at_once or error
        terminated = isinstance(leaving, SystemExit) and leaving.code == TERMINATED
        if not terminated and not isinstance(leaving, KeyboardInterrupt):
            raise
        raise TrainingStopped(TERMINATED if terminated else INTERRUPTED) from None


def main() -> None:
    """Run the program. On a mistake of the user, it prints one sentence on stderr and exits with code 2.

    On an error that is not expected, it prints the traceback and exits with code ``UNEXPECTED``. Whatever is printed may come
    from a file of others, so no text can control the terminal.
    """
    gc.set_threshold(GARBAGE_THRESHOLD)
    atexit.register(skip_final_garbage_collection)
    for stream in (sys.__stdout__, sys.__stderr__):
        atexit.register(is_unread, stream)  # else Python reports what it cannot write, and changes the exit code
    streams = redirect_stdout(HarmlessStream(sys.stdout)), redirect_stderr(HarmlessStream(sys.stderr, bars=True))
    with shell_spoken(), streams[0], streams[1]:
        try:
            with signals_heeded():
                app(prog_name="frostline")
        except SystemExit as leaving:
            if leaving.code in (INTERRUPTED, TERMINATED):
                leave("stopped. The same command starts again from the beginning.", leaving.code)
            if isinstance(
                leaving.__context__, typer.Abort
            ):  # Typer's, for an EOFError, such as of a file that is cut off
                fail()
            if isinstance(leaving.__context__, BrokenPipeError) or is_unread(sys.__stdout__):
                sys.exit(UNREAD)
            raise
        except TrainingStopped as stopped:
            leave("stopped. Finished runs are saved; the same command continues from there.", stopped.code)
        except FrostlineError as error:
            leave(str(error), 2)
        except Exception as error:
            cause = _of_the_machine(error) or fail()
            leave(f"{cause} and run the same command again; finished runs are saved.", 2)


def _of_the_machine(error: Exception) -> str | None:
    """The beginning of a sentence on an error of the disk or of the memory, and on what to do; None for other errors."""
    if isinstance(error, OSError) and error.errno in (*CANNOT_WRITE, errno.ENAMETOOLONG):
        return f"{error.filename or 'A file'} cannot be written or read ({error.strerror}): correct that"
    if "torch" not in sys.modules:
        return None
    from frostline.model.device import memory_ran_out

    if memory_ran_out(error):
        return f"Memory ran out ({first_line(error)}): end other programs that use it, or use a device with more,"
    return None


@contextmanager
def signals_heeded() -> Iterator[None]:
    """End cleanly at Ctrl-C and at SIGTERM, for example from a cluster: other processes get the runs at once.

    A run that has trained for half a minute finishes its current step and leaves a checkpoint. A second Ctrl-C ends it at once,
    and so does a step that takes too long.
    """

    def end(number: int, frame: object) -> None:
        leaving = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(TERMINATED)
        stopping = STOP.made
        if STOP.make(leaving):
            if number == signal.SIGINT:
                _say("\nfrostline: stopping after this step. Press Ctrl-C again to stop at once.\n")
            return
        if stopping and number == signal.SIGTERM:  # of the system, and of the process that started this one
            return
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # another signal would interrupt this clean end
        STOP.leave(leaving)

    if current_thread() is not main_thread():
        yield
        return
    handlers = {signal.SIGINT: end, signal.SIGTERM: end}
    if hasattr(signal, "SIGALRM"):
        handlers[signal.SIGALRM] = lambda number, frame: STOP.give_up()
    before = {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        STOP.leaving_at_once = None
        for number, handler in before.items():
            signal.signal(number, handler)


def skip_final_garbage_collection() -> None:
    """Freeze all objects at exit, so that Python skips its final garbage collection, which takes a second.

    If Triton is loaded, the collection runs, because Triton's bindings (nanobind) warn about every object left at exit.
    """
    if "triton" not in sys.modules:
        gc.freeze()


def is_unread(stream: TextIO | None) -> bool:
    """Whether nobody reads a stream any more, as in ``frostline status | head -1``. What it still holds is then dropped."""
    if stream is None:
        return False
    try:
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return True
    except OSError:  # Python reports it at exit
        return False
    return False


def fail() -> NoReturn:
    """Print the traceback of the current error and exit."""
    _say(traceback.format_exc())
    sys.exit(UNEXPECTED)


def leave(sentence: str, code: int) -> NoReturn:
    """Print one sentence on stderr and exit with ``code``."""
    _say(f"frostline: {harmless(sentence, keep='')}\n")
    sys.exit(code)


def _say(text: str) -> None:
    """Print on stderr, which nobody may read any more."""
    with suppress(OSError):
        print(text, end="", file=sys.stderr)
