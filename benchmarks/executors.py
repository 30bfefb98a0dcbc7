"""What does each way to hand out runs add to a run, and how many runs do several workers end in a minute?

    python benchmarks/executors.py

A stand-in that sleeps replaces training, so that workers do not compete for the cores. All else is real. What is added to a run
is the time between two results of one worker, without the sleep. The row with Ray needs the package ray.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

from measuring import Facts, write_result
from random_model import SIZES, write_model, write_rows
from stand_in import install

import frostline
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import register
from frostline.sweeps.results.store import Store

RESULT = Path(__file__).parent / "results" / "executors.json"
QUESTION = "What does each executor add to a run, and how many runs do 1, 2, 4 and 8 workers end in a minute?"
LONG, SHORT = 5.0, 2.0  # seconds of a stand-in: for what is added to a run, and for the runs in a minute
WAVES = 6  # runs that each worker trains
FIGURES = ("first", "added", "processor")
NAMES = {"local": "workers of one process", "work": "`frostline work` processes", "ray": "tasks of Ray"}


def settings(folder: Path, workers: int, waves: int) -> dict[str, Any]:
    """A sweep of ``waves`` runs for each worker."""
    own = {"model": folder / "m", "train": folder / "t.csv", "out": folder / "o", "tune": "1", "seeds": workers * waves}
    return {**own, "stack": 1, "train_size": 100, "test": "none", "num_train_epochs": 1, "progress": Progress()}


def used() -> float:
    """Processor seconds of this process and of its children that have ended."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(one.ru_utime + one.ru_stime for one in map(resource.getrusage, whose))


def child(executor: str, workers: int, seconds: float, folder: Path) -> None:
    """Train all runs of the sweep in the folder, or those that other processes leave. Prints the processor seconds."""
    install(seconds, equal=True)
    before = 0.0

    def train_when_all_are_ready(*arguments: Any, **more: Any) -> None:
        nonlocal before
        (folder / f"ready-{os.getpid()}").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
        before = used()
        train(*arguments, **more)

    module: Any = import_module("frostline.api.work" if executor == "work" else "frostline.api.sweep")
    train = module.execute
    with patch.object(module, "execute", train_when_all_are_ready):
        if executor == "work":
            module.work(folder / "o", workers=1, progress=Progress())
        else:
            ray = on_this_machine(workers, seconds) if executor == "ray" else None
            with patch.object(module, "finish"):
                frostline.sweep(save_model=False, executor=ray, **settings(folder, workers, WAVES), workers=workers)
    print(json.dumps({"processor": used() - before}))


def on_this_machine(workers: int, seconds: float) -> Any:
    """A cluster of Ray on this machine whose tasks sleep. Each task has one run."""
    import ray

    import frostline.sweeps.execution.ray_tasks as tasks_module
    from frostline import Ray

    def let_tasks_sleep() -> None:
        from stand_in import install

        install(seconds, equal=True)

    setattr(tasks_module, "SHARE", 10_000)  # noqa: B010  mypy refuses an assignment
    hook = {"worker_process_setup_hook": let_tasks_sleep}
    ray.init(address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False, runtime_env=hook)
    return Ray(gpus=0)


def measure(executor: str, workers: int, seconds: float) -> Facts:
    """Train with this many workers. Times are those at which results were written."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder / "m", *SIZES["tiny"])
        write_rows(folder / "t.csv", 200, (8, 24), SIZES["tiny"][3])
        register(frostline.plan(timed=False, **settings(folder, workers, WAVES)))
        words = [executor, str(workers), str(seconds), name]
        count = workers if executor == "work" else 1
        here = {
            **os.environ,
            "HF_ASSETS_CACHE": f"{name}/cache",
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
        }
        here["PYTHONPATH"] = os.pathsep.join(
            [str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        )
        command = [sys.executable, __file__, "--child", *words]
        team = [subprocess.Popen(command, env=here, stdout=subprocess.PIPE, text=True) for _ in range(count)]
        while len(list(folder.glob("ready-*"))) < count:
            assert all(process.poll() is None for process in team), "a process ended in an error"
            time.sleep(0.01)
        begun = time.time()
        (folder / "go").touch()
        printed = [process.communicate()[0] for process in team]
        assert not any(process.returncode for process in team), "a process ended in an error"
        paths = [path / "result.json" for path in (Store(folder / "o").runs).iterdir()]
        ended = sorted(path.stat().st_mtime for path in paths)
    assert len(ended) == workers * WAVES
    processor = [json.loads(text.splitlines()[-1])["processor"] for text in printed]
    found = {
        "executor": executor,
        "workers": workers,
        "seconds": seconds,
        "first": ended[workers - 1] - begun - seconds,  # until each worker has begun
        "added": (ended[-1] - ended[workers - 1]) / (WAVES - 1) - seconds,
        "processor": None if executor == "ray" else sum(processor) / len(ended),  # those of Ray are not its children
        "per_minute": 60 * (len(ended) - workers) / (ended[-1] - ended[workers - 1]),
    }
    print(found, flush=True)
    return found


def shown(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", default=RESULT, help="where to write the results")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        executor, workers, seconds, folder = given.child
        child(executor, int(workers), float(seconds), Path(folder))
        return
    long = [("local", 1), ("local", 2), ("work", 2), *[("ray", 2)] * bool(find_spec("ray"))]
    added = [measure(executor, workers, LONG) for executor, workers in long]
    several = [measure(executor, workers, SHORT) for executor in ("local", "work") for workers in (1, 2, 4, 8)]
    first = ("executor", "until the first run, s", "added to a run, s", "processor time of a run, s")
    one = [[f"{each['workers']} {NAMES[each['executor']]}", *(shown(each[name]) for name in FIGURES)] for each in added]
    one[0][0] = "this process"
    second = ("executor", *map(str, (1, 2, 4, 8)))
    two = [
        [NAMES[name], *(f"{each['per_minute']:.1f}" for each in several if each["executor"] == name)]
        for name in ("local", "work")
    ]
    captions = (
        f"Runs that sleep for {LONG:g} s, {WAVES} for each worker. One task of Ray is one run.",
        f"Runs in a minute with so many workers, if a run sleeps for {SHORT:g} s: at most {60 / SHORT:g} for each worker.",
    )
    tables = [
        {"caption": caption, "header": header, "rows": rows}
        for caption, header, rows in zip(captions, (first, second), (one, two), strict=True)
    ]
    write_result(given.json, QUESTION, tables, [*added, *several])


if __name__ == "__main__":
    main()
