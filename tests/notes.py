"""Progress that collects its notes, or disturbs a sweep, for tests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frostline.sweep.progress import Progress
from frostline.sweep.results.set_aside import DAMAGED, set_aside
from frostline.sweep.results.store import Store


class Notes(Progress):
    """Collects the sentences that a user would read."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


class SetsAside(Progress):
    """Sets the first result aside as soon as it is shown, as another process does that has found it damaged."""

    def __init__(self, out: Path) -> None:
        super().__init__()
        self.out, self.aside = out, list[str]()

    def result(self, facts: Mapping[str, Any], recipe: str) -> None:
        super().result(facts, recipe)
        if not self.aside:
            self.aside.append(facts["digest"])
            set_aside(Store(self.out).runs / facts["digest"], self.out / DAMAGED)
