"""The switch of the speed-ups, and the scores of a sweep with and without them.

- Objects that the garbage collector ignores.
- Temporary and nested replacement of forwards.
"""

import gc
import re
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import frostline
from frostline import FrostlineError, Sweep
from frostline.fast.switch import SPEED_UPS, enabled, forwards_replaced, objects_frozen
from frostline.sweep.progress import Progress
from frostline.sweep.results.folder import Folder

pytestmark = pytest.mark.usefixtures("every_speed_up")


def test_all_are_on_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FROSTLINE_PLAIN", raising=False)
    assert all(map(enabled, SPEED_UPS))


def test_one_flag_turns_all_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_PLAIN", "1")
    assert not any(map(enabled, SPEED_UPS))
    monkeypatch.setenv("FROSTLINE_PLAIN", "0")
    assert all(map(enabled, SPEED_UPS))


def test_some_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_WITHOUT", "dropout, packing,")
    assert {name for name in SPEED_UPS if not enabled(name)} == {"dropout", "packing"}


def test_an_unknown_name_is_an_error_with_the_nearest_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_WITHOUT", "packing,dropuot")
    with pytest.raises(FrostlineError, match=r"FROSTLINE_WITHOUT=dropuot .*did you mean 'dropout'"):
        enabled("attention")


def test_every_speed_up_uses_the_switch() -> None:
    sources = "".join(path.read_text() for path in Path(frostline.__file__).parent.rglob("*.py"))
    assert {*re.findall(r'enabled\("(\w+)"\)', sources)} == set(SPEED_UPS)


@pytest.fixture(scope="module")
def scores(tiny_bert: Path, tiny_table: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that runs one sweep without dropout and returns its validation scores."""
    torch.set_num_threads(1)

    def scores_of_sweep() -> dict[tuple[str, str], float]:
        out = tmp_path_factory.mktemp("switch") / "out"
        settings = {"tune": "0,1,all", "seeds": 1, "num_train_epochs": 1, "train_size": 48, "test": "none"}
        model = without_dropout(tiny_bert, out.parent / "model")
        Sweep(model=model, train=tiny_table, out=out, progress=Progress(), precision="float32", **settings).run()
        return {
            (str(run.spec.recipe), score.metric): score.value
            for run in Folder(out).store.results().values()
            for score in run.scores
            if score.split == "validation"
        }

    return scores_of_sweep


def without_dropout(model: Path, folder: Path) -> Path:
    """A copy of a model folder with all dropout probabilities set to zero."""
    folder.mkdir()
    for path in model.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    config = folder / "config.json"
    config.write_text(re.sub(r'(_dropout(?:_prob)?": )[0-9.]+', r"\g<1>0.0", config.read_text()))
    return folder


def test_a_sweep_without_any_speed_up_has_the_same_scores(scores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = scores()
    monkeypatch.setenv("FROSTLINE_PLAIN", "1")
    plain = scores()
    assert fast.keys() == plain.keys() and len(fast) > 3
    assert plain == pytest.approx(fast, abs=1e-4, nan_ok=True)
    assert plain != fast  # the last digits differ, so the plain path did run


@pytest.mark.slow
@pytest.mark.parametrize("name", SPEED_UPS)
def test_a_sweep_without_one_speed_up_has_the_same_scores(
    name: str, scores: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = scores()
    monkeypatch.setenv("FROSTLINE_WITHOUT", name)
    assert scores() == pytest.approx(fast, abs=1e-4, nan_ok=True)


def test_objects_are_frozen_while_the_context_is_open_and_nested_contexts_add_new_objects() -> None:
    with objects_frozen():
        before = gc.get_freeze_count()
        later = [[] for _ in range(1_000)]
        with objects_frozen():
            assert before > 10_000 and gc.get_freeze_count() >= before + len(later)
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == 0


def test_garbage_is_collected_before_objects_are_frozen() -> None:
    class Link:
        pass

    with objects_frozen():
        cycle = Link()
        cycle.itself = cycle
        reference = weakref.ref(cycle)
        del cycle
        with objects_frozen():
            assert reference() is None


def test_switched_off_nothing_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROSTLINE_WITHOUT", "garbage_collection")
    with objects_frozen():
        assert gc.get_freeze_count() == 0


def test_modules_run_the_given_function_and_afterwards_their_former_one():
    module, x = nn.Linear(2, 2), torch.ones(1, 2)
    before = module(x)
    with forwards_replaced({module: lambda x: x + 1}):
        with forwards_replaced({module: lambda x: x + 2}):
            assert torch.equal(module(x), x + 2)
        assert torch.equal(module(x), x + 1)
    assert torch.equal(module(x), before)
    assert "forward" not in vars(module)


def test_forwards_are_restored_after_an_error():
    module = nn.Linear(2, 2)
    with pytest.raises(ZeroDivisionError), forwards_replaced({module: lambda x: x}):
        1 / 0  # noqa: B018
    assert "forward" not in vars(module)
