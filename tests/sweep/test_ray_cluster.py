"""The connection to a cluster of Ray, and what is asked of it."""

import os
import signal
import sys

import pytest

from frostline import FrostlineError, Ray
from frostline.sweep.execution.ray_tasks import connected, fitting
from ray_here import RayHere


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cpus": 0}, "--cpus cannot be 0: give 1 or more"),
        ({"gpus": -1}, "--gpus cannot be -1: give a share below 1, or a whole number"),
        ({"gpus": 1.5}, r"--gpus cannot be 1\.5: give a share"),
    ],
)
def test_impossible_numbers_are_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(FrostlineError, match=message):
        Ray(**values)  # type: ignore[arg-type]


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # type: ignore[arg-type]
    with (
        pytest.raises(FrostlineError, match=r'needs the package ray: pip install "frostline\[ray\]"'),
        connected(Ray()),
    ):
        pass


def test_the_capacity_counts_whole_tasks_of_each_node() -> None:
    nodes = [{"CPU": 7, "memory": 30}, {"CPU": 1}, {"CPU": 4, "GPU": 2, "memory": 100}]
    assert fitting(nodes, {"CPU": 2, "GPU": 0, "memory": 0}) == 3 + 0 + 2
    assert fitting(nodes, {"CPU": 2, "GPU": 0, "memory": 20}) == 1 + 0 + 2
    assert fitting(nodes, {"CPU": 1, "GPU": 0.5, "memory": 0}) == 4


class Begun(RayHere):
    """A stand-in that is not connected at first, and replaces the handler of SIGTERM as Ray does."""

    def __init__(self, refuses: Exception | None = None) -> None:
        super().__init__()
        self.said: list[object] = []
        self.refuses = refuses

    def is_initialized(self) -> bool:
        return False

    def init(self, **options: object) -> None:
        self.said.append(options["address"])
        self.temporary = os.environ.get("TMPDIR"), options.get("_temp_dir")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.refuses:
            raise self.refuses

    def shutdown(self) -> None:
        self.said.append("ended")


def test_the_address_is_that_of_the_flag_or_of_the_environment_or_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for given, environment, expected in (
        ("auto", "10.0.0.1:6379", "auto"),
        (None, "10.0.0.1:6379", "10.0.0.1:6379"),
        (None, "", "local"),
    ):
        monkeypatch.setitem(os.environ, "RAY_ADDRESS", environment)
        monkeypatch.setitem(sys.modules, "ray", here := Begun())  # type: ignore[arg-type]
        monkeypatch.setenv("TMPDIR", "/usual")
        with connected(Ray(address=given)) as (_, is_own):
            assert here.said == [expected] and signal.getsignal(signal.SIGTERM) == before
            assert is_own == (expected == "local") and os.environ["TMPDIR"] == "/usual"
            files, folder = here.temporary  # the files of tasks that are killed go with the folder
            assert files == (folder if is_own else "/usual")
        assert here.said == [expected, "ended"]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("auto", r"There is no cluster of Ray at auto \(Could not find it\.\): correct --address"),
        ("local", r"Ray cannot start a cluster on this machine \(Could not find it\.\): correct that"),
    ],
)
def test_a_cluster_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, address: str, said: str) -> None:
    monkeypatch.setitem(sys.modules, "ray", Begun(ConnectionError("Could not find it.\nMore.")))  # type: ignore[arg-type]
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(FrostlineError, match=said), connected(Ray(address=address)):
        pass
    assert signal.getsignal(signal.SIGTERM) == before
