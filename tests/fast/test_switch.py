"""The switch of the speed-ups, the scores of a sweep with and without them, and what they replace for a while."""

import gc
import re
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import frostline
from frostline import FrostlineError
from frostline.fast.switch import SPEED_UPS, enabled, forwards_replaced, objects_frozen
from frostline.sweeps.results.folder import Folder
from tiny import run_sweep, tiny_bert_folder

pytestmark = pytest.mark.usefixtures("every_speed_up")


EVERY = {*SPEED_UPS}


@pytest.mark.parametrize(
    ("name", "value", "off"),
    [
        ("FROSTLINE_PLAIN", "", set()),
        ("FROSTLINE_PLAIN", "0", set()),
        ("FROSTLINE_PLAIN", "1", EVERY),
        ("FROSTLINE_WITHOUT", "dropout, packing,", {"dropout", "packing"}),
    ],
)
def test_all_are_on_unless_the_environment_turns_them_off(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, off: set[str]
) -> None:
    monkeypatch.setenv(name, value)
    assert {one for one in SPEED_UPS if not enabled(one)} == off


def test_an_unknown_name_is_an_error_with_the_nearest_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_WITHOUT", "packing,dropuot")
    with pytest.raises(FrostlineError, match=r"FROSTLINE_WITHOUT=dropuot .*did you mean 'dropout'"):
        enabled("attention")


def test_every_speed_up_uses_the_switch() -> None:
    sources = "".join(path.read_text() for path in Path(frostline.__file__).parent.rglob("*.py"))
    assert {*re.findall(r'enabled\("(\w+)"\)', sources)} == set(SPEED_UPS)


@pytest.fixture(scope="module")
def scores(tiny_table: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that runs one sweep without dropout and returns its validation scores."""
    torch.set_num_threads(1)

    def scores_of_sweep() -> dict[tuple[str, str], float]:
        out = tmp_path_factory.mktemp("switch") / "out"
        settings = {"tune": "0,1,all", "seeds": 1, "num_train_epochs": 1, "train_size": 48, "test": "none"}
        model = tiny_bert_folder(out.parent / "model", dropout=0.0)
        run_sweep({"model": model, "train": tiny_table, "out": out, "precision": "float32", **settings})
        return {
            (str(run.spec.recipe), score.metric): score.value
            for run in Folder(out).store.results().values()
            for score in run.scores
            if score.split == "validation"
        }

    return scores_of_sweep


def test_a_sweep_without_any_speed_up_has_the_same_scores(scores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = scores()
    monkeypatch.setenv("FROSTLINE_PLAIN", "1")
    plain = scores()
    assert fast.keys() == plain.keys() and len(fast) > 3
    assert plain == pytest.approx(fast, abs=1e-4, nan_ok=True)
    assert plain != fast  # the last digits differ, so the plain path did run


@pytest.mark.slow
def test_a_sweep_without_one_speed_up_has_the_same_scores(scores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = scores()
    for name in SPEED_UPS:
        monkeypatch.setenv("FROSTLINE_WITHOUT", name)
        assert scores() == pytest.approx(fast, abs=1e-4, nan_ok=True), name


def test_nested_contexts_collect_garbage_and_freeze_new_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    class Link:
        pass

    with objects_frozen():
        before, cycle = gc.get_freeze_count(), Link()
        later, cycle.itself, reference = [[] for _ in range(1_000)], cycle, weakref.ref(cycle)
        del cycle
        with objects_frozen():
            assert before > 10_000 and gc.get_freeze_count() >= before + len(later)
            assert reference() is None
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == 0
    monkeypatch.setenv("FROSTLINE_WITHOUT", "garbage_collection")
    with objects_frozen():
        assert gc.get_freeze_count() == 0


def test_modules_run_the_given_function_and_afterwards_their_former_one():
    module, x = nn.Linear(2, 2), torch.ones(1, 2)
    before = module(x)
    with forwards_replaced({module: lambda x: x + 1}):
        with pytest.raises(ZeroDivisionError), forwards_replaced({module: lambda x: x + 2}):
            assert torch.equal(module(x), x + 2)
            raise ZeroDivisionError
        assert torch.equal(module(x), x + 1)
    assert torch.equal(module(x), before)
    assert "forward" not in vars(module)
