"""Who trains the runs of a sweep or search: this process, the tasks of a SLURM job array, or tasks of Ray."""

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from frostline import FrostlineError
from frostline.cli.answer_output import print_answer, run_and_print
from frostline.cli.flags import as_words
from frostline.cli.program import runs_saved
from frostline.sweep.slurm import FILE, TASKS, script
from frostline.sweep.toml import TRUST

if TYPE_CHECKING:  # it imports torch, which --help does not need
    from frostline.api.sweep import Sweep
    from frostline.sweep.execution.ray_tasks import Ray

CLUSTER = "Cluster"
SLURM, RAY = ("--tasks", "--sbatch", "--print"), ("--address", "--cpus", "--gpus")

Name = Annotated[
    Literal["local", "slurm", "ray"],
    typer.Option(
        "--executor",
        metavar="NAME",
        help="Who trains the runs: local (this process), slurm (the tasks of a job array, which end a search; after a sweep, run "
        "the command without this flag), or ray (tasks of Ray).",
        rich_help_panel=CLUSTER,
    ),
]
Tasks = Annotated[int, typer.Option(min=1, help="SLURM: tasks of the job array.", rich_help_panel=CLUSTER)]
Sbatch = Annotated[
    str,
    typer.Option(
        metavar="OPTIONS",
        help='SLURM: options of sbatch for each task, such as "--partition=gpu --gres=gpu:1 --time=2:00:00".',
        rich_help_panel=CLUSTER,
    ),
]
Print = Annotated[
    bool,
    typer.Option("--print", help="SLURM: only print the script for sbatch; write nothing.", rich_help_panel=CLUSTER),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Ray: the address of a cluster, such as auto. [default: RAY_ADDRESS, or a cluster on this machine for this command]",
        show_default=False,
        rich_help_panel=CLUSTER,
    ),
]
Cpus = Annotated[int, typer.Option(min=1, help="Ray: CPU cores of each task.", rich_help_panel=CLUSTER)]
Gpus = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Ray: GPUs of each task, or a share such as 0.5. [default: 1 if the cluster has GPUs]",
        show_default=False,
        rich_help_panel=CLUSTER,
    ),
]


@dataclass(frozen=True, kw_only=True)
class Executor:
    """Who trains the runs, as the flags of a command say. Each attribute is a flag.

    Raises:
        FrostlineError: A flag is for another executor.
    """

    name: Name = "local"
    tasks: Tasks = TASKS
    sbatch: Sbatch = ""
    print_only: Print = False
    address: Address = None
    cpus: Cpus = 1
    gpus: Gpus = None

    def __post_init__(self) -> None:
        if self.name != "slurm" and (self.print_only or self.sbatch or self.tasks != TASKS):
            raise FrostlineError(_misplaced(SLURM, "slurm"))
        if self.name != "ray" and (self.address is not None or self.cpus != 1 or self.gpus is not None):
            raise FrostlineError(_misplaced(RAY, "ray"))

    def run(self, sweep: "Sweep", retry: Collection[str] = ("failed",)) -> None:
        """Train the runs of a sweep and print its answer, or submit them and print what to do next."""
        if self.name == "local":
            run_and_print(sweep, retry=retry)
        elif self.name == "ray":
            run_and_print(sweep, retry=retry, ray=self.ray)
        elif self.print_only:
            trust = sweep.spec.trust_remote_code
            print(script(sweep.out, tasks=self.tasks, options=self.sbatch, trust_remote_code=trust), end="")
        else:
            job = sweep.submit(tasks=self.tasks, options=self.sbatch, retry=retry)
            print(
                f"Job {job} trains the runs: {self.tasks} tasks of {sweep.out / FILE}. `frostline status {sweep.out} --watch` "
                "shows them.\nWhen they have ended, the same command without --executor writes the answer, the report and the "
                "model."
            )

    @runs_saved()
    def search(self, processes: int | None, **settings: Any) -> None:
        """Search with these settings and print the answer, or submit the search and print what to do next."""
        from frostline.api import find

        out = Path(settings["out"]).expanduser()
        if self.name != "slurm":
            ray = self.ray if self.name == "ray" else None
            print_answer(find.find(processes=processes, ray=ray, **settings), out)
            return
        exhaustive = settings["exhaustive"] or None  # it has no flag for the opposite
        words = ["find", *as_words({**settings, "exhaustive": exhaustive, "processes": processes or self.tasks})]
        trust = settings.get(TRUST) is True
        text = script(out, tasks=self.tasks, options=self.sbatch, search=words, trust_remote_code=trust)
        if self.print_only:
            print(text, end="")
            return
        job = find.submit(text, **settings)
        print(
            f"Job {job} searches with {self.tasks} tasks of {out / FILE}. `frostline status {out} --watch` shows its runs.\n"
            f"When they have ended, the answer is in {out / f'slurm-{job}_1.log'} and in {out / 'report.html'}."
        )

    @property
    def ray(self) -> "Ray":
        """The cluster of Ray, and what each task asks for."""
        from frostline.sweep.execution.ray_tasks import Ray

        return Ray(address=self.address, cpus=self.cpus, gpus=self.gpus)


def with_executor(command: Callable[..., None]) -> Any:
    """Give a command the flags of an executor, after its own flags. The command is called with the executor as ``who``."""
    own = [parameter for parameter in inspect.signature(command).parameters.values() if parameter.name != "who"]
    flags = inspect.signature(Executor).parameters

    def run(settings: dict[str, Any], **given: Any) -> None:
        who = Executor(**{name: given.pop(name) for name in flags})
        command(settings, who=who, **given)

    run.__signature__ = inspect.Signature([*own, *flags.values()])  # type: ignore[attr-defined]
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    return run


def _misplaced(flags: Collection[str], executor: str) -> str:
    *first, last = flags
    return f"{', '.join(first)} and {last} are for --executor {executor}: add it, or leave them out."
