"""Is a sweep exact whose job array of SLURM lost one task to scancel and had one requeued?

    python benchmarks/slurm_array.py -- --model FOLDER --train FILE --tune 0,1,2,full --train-size 300

It needs a SLURM that runs, with room for two tasks. Everything after the two dashes goes to ``frostline sweep``. The first task
is cancelled and the second one requeued while each trains a run. The requeued task then trains the rest.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from killed import compare

from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.leases import Leases

LIMIT = 900.0  # seconds to wait for anything


def frostline(*words: object) -> str:
    """Run a command and return what it prints."""
    command = [sys.executable, "-m", "frostline", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def seconds_until(condition: Callable[[], bool]) -> float:
    """Wait, and return for how long."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < LIMIT, "nothing happens"
        time.sleep(0.05)
    return time.monotonic() - start


def disturbed_sweep(sweep: list[str], out: Path) -> dict[str, object]:
    """Train a sweep in two tasks. Cancel one, requeue the other, and wait for the end."""
    job = frostline("sweep", *sweep, "--out", out, "--executor", "slurm", "--tasks", 2).split()[1]
    leases, store = Leases(out), Folder(out).store

    def holders() -> int:
        return len({lease.holder for lease in leases.current()})

    begun = seconds_until(lambda: holders() == 2 and len(store.ended()) > 1)
    subprocess.run(["scancel", f"{job}_1"], check=True)
    cancelled, done = seconds_until(lambda: holders() < 2), len(store.ended())
    seconds_until(lambda: holders() == 1 and len(store.ended()) > done)
    subprocess.run(["scontrol", "requeue", f"{job}_2"], check=True)
    requeued, done_before = seconds_until(lambda: holders() == 0), len(store.ended())
    back = seconds_until(lambda: holders() == 1)
    whole = seconds_until(lambda: not subprocess.check_output(["squeue", "--noheader", "--jobs", job]).strip())
    if Folder(out).counts()["pending"]:
        print(*(path.read_text() for path in sorted(out.glob("slurm-*.log"))), sep="\n")
    return {
        "seconds until both tasks trained": round(begun, 1),
        "until the cancelled task had given its runs back": round(cancelled, 2),
        "until the requeued task had": round(requeued, 2),
        "runs with a result then": done_before,
        "until SLURM started it again and it trained": round(back, 1),
        "until the end": round(whole, 1),
        **Folder(out).counts(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", nargs="+", help="flags of frostline sweep, after two dashes")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as undisturbed, tempfile.TemporaryDirectory() as disturbed:
        folders = [Path(undisturbed), Path(disturbed)]
        frostline("sweep", *given.sweep, "--out", folders[0] / "out")
        for name, value in disturbed_sweep(given.sweep, folders[1] / "out").items():
            print(f"{name}: {value}")
        frostline("sweep", *given.sweep, "--out", folders[1] / "out")
        sys.exit(not compare(folders, "a task cancelled and one requeued"))


if __name__ == "__main__":
    main()
