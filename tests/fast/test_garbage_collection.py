"""Objects that the garbage collector ignores."""

import gc
import weakref

import pytest

from frostline.fast.switch import objects_frozen

pytestmark = pytest.mark.usefixtures("every_speed_up")


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
