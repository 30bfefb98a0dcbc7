"""Workers on a cluster with SLURM: a job array of ``frostline work``, as a script for sbatch."""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from frostline import FrostlineError
from frostline.data.files import replace_file

FILE = "slurm.sh"
TASKS = 4  # the default number of tasks of the array
BEFORE_LIMIT = 60  # seconds before the time limit at which a task gives its runs back
TERMINATED = 143  # the exit code of a worker that was stopped by SIGTERM

SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=frostline
#SBATCH --array=1-{tasks}
#SBATCH --output={log}
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@{before_limit}
{own}
# Each task trains runs that no other process trains, until none is left.
cd {folder} || exit
export OMP_NUM_THREADS="${{OMP_NUM_THREADS:-${{SLURM_CPUS_ON_NODE:-1}}}}"
stop() {{ stopped=yes; [ -z "$worker" ] || kill -TERM $worker 2>/dev/null; }}
# Cancelled or preempted: the worker gives its runs back and ends. SLURM queues a preempted task again.
trap stop TERM
# Shortly before the time limit: the same, and the task itself asks to be queued again.
trap 'again=yes; stop' USR1
{worker}
worker=$!
[ -z "$stopped" ] || stop  # the signal came before the worker
while kill -0 $worker 2>/dev/null; do wait $worker; done
wait $worker
code=$?
if [ "$again" = yes ] && [ $code = {terminated} ]; then scontrol requeue "$SLURM_JOB_ID"; fi
{failed}exit $code
"""
WORKER = "{python} -m frostline work {out}{trust} &"
SEARCHER = """\
# The first task decides what is trained next. The others train with it until the search is over.
if [ "$SLURM_ARRAY_TASK_ID" = 1 ]; then
    {python} -m frostline {words} &
else
    {python} -m frostline work {out} --wait{trust} &
fi"""
FAILED = """\
# Without the first task, the others would wait forever. If it was stopped, SLURM or a user decides.
if [ "$SLURM_ARRAY_TASK_ID" = 1 ] && [ $code != 0 ] && [ $code != {terminated} ]; then scancel "$SLURM_ARRAY_JOB_ID"; fi
"""


def script(
    out: Path, *, tasks: int = TASKS, options: str = "", search: Sequence[str] = (), trust_remote_code: bool = False
) -> str:
    """The script of a job array whose tasks train the runs of the sweep or search in ``out``.

    Args:
        out: The folder of the sweep, which every node must be able to open.
        tasks: The number of tasks of the array, each with one worker.
        options: Options of sbatch for each task, as on a command line. They take precedence over those of the script.
        search: The words of the ``frostline find`` that one task calls; empty for a sweep.
        trust_remote_code: Whether the tasks run code that comes with the model.

    Raises:
        FrostlineError: The number of tasks or the options are impossible.
    """
    if tasks < 1:
        raise FrostlineError(f"--tasks cannot be {tasks}: give 1 or more.")
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise FrostlineError(
            f"--sbatch cannot be {options!r} ({error}): give options of sbatch, quoted as in a shell."
        ) from error
    if any("\n" in word for word in words) or (words and not words[0].startswith("-")):
        raise FrostlineError(
            f'--sbatch cannot be {options!r}: give options of sbatch, such as "--partition=gpu --gres=gpu:1".'
        )
    out, folder = out.absolute(), shlex.quote(str(Path.cwd()))
    trust = " --trust-remote-code" if trust_remote_code else ""
    program = {"python": shlex.quote(sys.executable), "out": shlex.quote(str(out)), "trust": trust}
    return SCRIPT.format(
        tasks=tasks,
        log=shlex.quote(str(out).replace("%", "%%") + "/slurm-%A_%a.log"),
        before_limit=BEFORE_LIMIT,
        own=f"#SBATCH {shlex.join(words)}\n" if words else "",
        folder=folder,
        worker=(SEARCHER if search else WORKER).format(words=shlex.join(search), **program),
        terminated=TERMINATED,
        failed=FAILED.format(terminated=TERMINATED) if search else "",
    )


def submit(out: Path, text: str) -> str:
    """Write the script into the folder of the sweep and submit it. Returns the number of the job.

    Raises:
        FrostlineError: There is no sbatch here, or it refuses the script.
    """
    path = out / FILE
    replace_file(path, text.encode(), inside=out)
    try:
        done = subprocess.run(["sbatch", "--parsable", str(path.absolute())], capture_output=True, text=True)
    except FileNotFoundError:
        raise FrostlineError(
            f"There is no sbatch here: submit {path} on a machine of the SLURM cluster, or leave out --executor slurm."
        ) from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1].removeprefix(
            "sbatch: error: "
        )
        raise FrostlineError(f"sbatch refuses {path} ({said}): correct --sbatch, or submit the script yourself.")
    return done.stdout.strip().partition(";")[0]  # a name of the cluster may follow
