"""A real cluster of Ray with two nodes on this machine. One is killed in mid-sweep. CI does not install Ray (79 MB)."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import frostline
from frostline import Ray
from frostline.sweeps.execution.ray_tasks import QUIET
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.store import Store
from tiny import assert_same_predictions, run_sweep

pytest.importorskip("ray", reason='needs Ray: pip install -e ".[ray]"')
# What Ray itself leaves to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
SEEDS = 4


@pytest.fixture
def expected(settings: dict[str, Any], tmp_path: Path) -> Store:
    """The results of this process."""
    run_sweep({**settings, "seeds": SEEDS, "stack": 1, "workers": 1}, out=tmp_path / "expected")
    return Store(tmp_path / "expected")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster whose head has one core."""
    from ray.cluster_utils import Cluster

    for name, value in {**QUIET, "PYTHONPATH": f"{Path(frostline.__file__).parents[1]}"}.items():
        monkeypatch.setenv(name, value)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield made
    made.shutdown()


def test_a_node_is_killed_and_the_table_is_exact(settings: dict[str, Any], expected: Store, cluster: Any) -> None:
    node, killed = cluster.add_node(num_cpus=1), list[int]()

    class KillsANode(Progress):
        def result(self, facts: Any) -> None:
            if not killed:  # both nodes have tasks until the end
                killed.append(self.runs)
                cluster.remove_node(node, allow_graceful=False)
            super().result(facts)

    shown = KillsANode()
    own = {**settings, "seeds": SEEDS, "stack": 1, "progress": shown}
    answer = frostline.sweep(executor=Ray(address=cluster.address), save_model=False, **own).answer
    assert killed == [2 * SEEDS] and shown.runs_done == 2 * SEEDS and answer.runs.failed == 0
    assert_same_predictions(Store(Path(settings["out"])), expected)


def test_a_search_trains_its_steps_on_both_nodes(search_settings: dict[str, Any], cluster: Any, tmp_path: Path) -> None:
    cluster.add_node(num_cpus=1)
    own = {**search_settings, "stack": 1, "workers": 1, "tune": "0,1", "seeds": 1}
    on_ray = frostline.find(**own, executor=Ray(address=cluster.address)).answer
    here = frostline.find(**{**own, "out": tmp_path / "here"}, processes=2).answer
    assert on_ray.decision == here.decision and on_ray.runs.failed == 0
    assert_same_predictions(Store(own["out"]), Store(tmp_path / "here"))


@pytest.mark.slow
def test_a_cluster_that_was_begun_here_is_ended_at_ctrl_c_and_the_command_goes_on(
    settings: dict[str, Any], expected: Store, tmp_path: Path
) -> None:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in {**settings, "seeds": SEEDS, "stack": 1}.items()]
    command = [sys.executable, "-m", "frostline", "sweep", *words, "--executor", "ray"]
    begun, log = time.monotonic(), tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(command, stderr=file, stdout=file, env={**os.environ, **QUIET})
        while "1/8" not in log.read_text():
            assert process.poll() is None and time.monotonic() - begun < 300, log.read_text()
            time.sleep(0.1)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130, log.read_text()
    psutil.wait_procs(children, timeout=20)
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    store = Store(Path(settings["out"]))
    assert 1 <= len(store.done()) < 2 * SEEDS and not list((store.out / "leases").iterdir())
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **QUIET})
    assert done.returncode == 0, done.stderr
    assert_same_predictions(store, expected)
