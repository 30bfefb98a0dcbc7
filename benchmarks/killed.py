"""Is a sweep whose processes were killed with SIGKILL many times bitwise identical to an uninterrupted one?

    python benchmarks/killed.py --kills 30 --processes 2 -- --model FOLDER --train FILE --tune 0,1,2,all --train-size 300

Everything after the two dashes goes to ``frostline sweep``. ``frostline work`` joins it in the other processes. At random moments
one process is killed, or all are, and starts again. After the last kill, they may end. All sweeps start with an empty cache.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from frostline.sweep.results.tables import COST

ALL_KILLED = 0.2  # the share of kills that hit all processes


def start(words: list[str], folder: Path) -> "subprocess.Popen[bytes]":
    """Start a command whose cache is in ``folder``."""
    environment = {**os.environ, "HF_ASSETS_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", "frostline", *words]
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def killed_sweep(words: list[str], folder: Path, processes: int, kills: int, chance: random.Random) -> None:
    """Run a sweep in several processes, and kill them so many times at random moments of at most ten seconds."""
    work = ["work", str(folder / "out"), "--wait"]
    commands = [words, *[work] * (processes - 1)]
    team = [start(one, folder) for one in commands]
    while kills:
        time.sleep(chance.uniform(0.0, 10.0))
        hit = range(processes) if chance.random() < ALL_KILLED else [chance.randrange(processes)]
        for number in hit:
            if kills and team[number].poll() is None:
                kills -= 1
            team[number].kill()
            team[number].wait()
            team[number] = start(commands[number], folder)
    team[0].wait()
    team[0] = start(words, folder)  # it may have ended before another process was killed
    for process in team[1:]:
        process.wait()  # with an error, if it was started before the sweep had a folder
    assert team[0].wait() == 0, "the sweep ended with an error"


def table(folder: Path) -> pd.DataFrame:
    """The results without times and memory, which differ between runs."""
    read = pd.read_csv(folder / "out" / "results.csv", keep_default_na=False, dtype=str)
    return read.drop(columns=[*COST, "concurrent_runs"])


def left(folder: Path) -> list[str]:
    """What killed processes have left in the folder: leases, and damaged results."""
    paths = [*(folder / "out").glob("leases/*"), *(folder / "out").glob("damaged/*")]
    return [str(path.relative_to(folder)) for path in paths]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("sweep", nargs="+", help="flags of frostline sweep, after two dashes")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as uninterrupted, tempfile.TemporaryDirectory() as killed:
        folders = [Path(uninterrupted), Path(killed)]
        first, second = (["sweep", *given.sweep, "--out", str(folder / "out")] for folder in folders)
        assert start(first, folders[0]).wait() == 0
        killed_sweep(second, folders[1], given.processes, given.kills, random.Random(given.seed))
        same = table(folders[0]).equals(table(folders[1]))
        scores = {(folder / "out" / "scores.csv").read_bytes() for folder in folders}
        print(f"{len(table(folders[0]))} runs, {given.processes} processes, {given.kills} kills: ", end="")
        print(f"results.csv {'equal' if same else 'DIFFERENT'}, ", end="")
        print(
            f"scores.csv {'equal' if len(scores) == 1 else 'DIFFERENT'}, left behind: {left(folders[1]) or 'nothing'}"
        )
        sys.exit(not (same and len(scores) == 1))


if __name__ == "__main__":
    main()
