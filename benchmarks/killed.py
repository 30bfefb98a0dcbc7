"""Is a sweep whose processes were killed with SIGKILL many times bitwise identical to an uninterrupted one?

    python benchmarks/killed.py --kills 30 --processes 2 -- --model FOLDER --train FILE --tune 0,1,2,full --train-size 300
    python benchmarks/killed.py --kills 200 --stand-in

Everything after the two dashes goes to ``frostline sweep``. ``frostline work`` joins it in the other processes. At random moments
one process is killed, or all are, and starts again. After the last kill, they may end. All sweeps start with an empty cache.

With ``--stand-in``, the model is tiny, a stand-in replaces training, and the processes are forks, which start fast. A sweep and a
process that joins it have two workers each. A parent is killed, or a worker, or all of them. None may be there at the end.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

import frostline
from frostline.sweeps.results.tables import COST

ALL_KILLED = 0.2  # the share of kills that hit all processes
SEEDS, SECONDS = 60, 0.4  # of stand-ins: the seeds of each of four k, and how long one takes on average
LONGEST = 1.5  # seconds between two kills, at most
LIMIT = 300.0  # seconds until a process must have ended after the last kill


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
    # forks have the command line of their parents
    shown = {process.pid: " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])}
    alive = [pid for pid, command in shown.items() if str(folder / "out") in command]
    assert not alive, f"still there: {alive}"


def table(folder: Path) -> pd.DataFrame:
    """The results without times and memory, which differ between runs."""
    read = pd.read_csv(folder / "out" / "results.csv", keep_default_na=False, dtype=str)
    return read.drop(columns=[*COST, "concurrent_runs"])


def left(folder: Path) -> list[str]:
    """What killed processes have left in the folder: leases, and damaged results."""
    paths = [*(folder / "out").glob("leases/*"), *(folder / "out").glob("damaged/*")]
    return [str(path.relative_to(folder)) for path in paths]


def with_stand_in(folder: Path, inputs: Path) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A sweep of a tiny model whose trainings are stand-ins, and a process that joins it, as functions."""
    from random_model import SIZES, write_model, write_rows
    from stand_in import install

    from frostline import work
    from frostline.sweeps.progress import Progress

    if not (inputs / "t.csv").exists():
        write_model(inputs / "m", *SIZES["tiny"])
        write_rows(inputs / "t.csv", 600, (8, 24), SIZES["tiny"][3])
    install(SECONDS)
    data: dict[str, Any] = {"model": inputs / "m", "train": inputs / "t.csv", "train_size": 100, "tune": "0,1,2,all"}
    settings = {**data, "seeds": SEEDS, "stack": 1, "workers": 2, "out": folder / "out", "progress": Progress()}
    return (
        lambda: frostline.sweep(save_model=False, **settings),
        lambda: work(folder / "out", wait=True, workers=2, progress=Progress()),
    )


def fork(do: Callable[[], Any]) -> "BaseProcess":
    """A process that calls ``do``, prints nothing, and fails if that raises an error."""

    def silently() -> None:
        for number in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        do()

    process = get_context("fork").Process(target=silently)
    process.start()
    return process


def killed_forks(sweep: Callable[[], Any], work: Callable[[], Any], kills: int, chance: random.Random) -> Counter[str]:
    """Kill a sweep, a process that joins it, or one of their two workers each, so many times. Returns how often which."""
    commands, seen, hits = (sweep, work), set[int](), Counter[str]()
    team = [fork(one) for one in commands]
    while hits.total() < kills:
        time.sleep(chance.uniform(0.0, LONGEST))
        parents = [psutil.Process(one.pid) for one in team if one.is_alive()]
        workers = [child for parent in parents for child in parent.children()]
        seen |= {process.pid for process in (*parents, *workers)}
        kind = chance.choice(("parent", "worker", "all"))
        pool = {"parent": parents, "worker": workers, "all": [*parents, *workers]}[kind]
        for process in pool if kind == "all" else pool and [chance.choice(pool)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        hits[kind] += bool(pool)
        for number, one in enumerate(team):
            if kind == "all" or not one.is_alive():
                one.join()
                team[number] = fork(commands[number])
    team[0].join()
    for one in (fork(sweep), team[1]):
        one.join(LIMIT)
    assert team[1].exitcode is not None, "a process hangs"
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in seen if psutil.pid_exists(pid)], timeout=10)
    assert not alive, f"still there: {alive}"
    return hits


def compare(folders: Sequence[Path], about: str) -> bool:
    """Print whether the results in two folders are the same, and what the second one has besides."""
    one, other = map(table, folders)
    scores = {(folder / "out" / "scores.csv").read_bytes() for folder in folders}
    same, same_scores = one.equals(other), len(scores) == 1
    differ = "" if same else f" in {', '.join(one.columns[(one != other).any()])}"
    print(f"{len(one)} runs, {about}: results.csv {'equal' if same else f'DIFFERENT{differ}'}, ", end="")
    print(f"scores.csv {'equal' if same_scores else 'DIFFERENT'}, left behind: {left(folders[1]) or 'nothing'}")
    return same and same_scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stand-in", action="store_true", help="a tiny model, and a stand-in for training")
    parser.add_argument("sweep", nargs="*", help="flags of frostline sweep, after two dashes")
    given = parser.parse_args()
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as uninterrupted, tempfile.TemporaryDirectory() as killed:
        folders = [Path(uninterrupted), Path(killed)]
        if given.stand_in:
            os.environ["HF_ASSETS_CACHE"] = str(folders[1] / "cache")
            begun, one = time.monotonic(), fork(with_stand_in(folders[0], folders[0])[0])
            one.join()
            assert one.exitcode == 0
            print(f"undisturbed: {time.monotonic() - begun:.0f} s", flush=True)
            shutil.rmtree(folders[1] / "cache")
            begun, functions = time.monotonic(), with_stand_in(folders[1], folders[0])
            hits = killed_forks(*functions, given.kills, chance)
            about = ", ".join(f"{count} kills of {kind}" for kind, count in sorted(hits.items()))
            print(f"disturbed: {time.monotonic() - begun:.0f} s")
        else:
            first, second = (["sweep", *given.sweep, "--out", str(folder / "out")] for folder in folders)
            assert start(first, folders[0]).wait() == 0
            killed_sweep(second, folders[1], given.processes, given.kills, chance)
            about = f"{given.processes} processes, {given.kills} kills"
        sys.exit(not compare(folders, about))


if __name__ == "__main__":
    main()
