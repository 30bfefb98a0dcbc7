"""Progress that collects its notes, or disturbs a sweep, for tests."""

from pathlib import Path

from frostline.sweep.progress import Progress
from frostline.sweep.results.store import DAMAGED, Store, set_aside
from frostline.training.result import Failure, RunRecord


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

    def result(self, ended: RunRecord | Failure) -> None:
        super().result(ended)
        if not self.aside:
            self.aside.append(ended.digest)
            set_aside(Store(self.out).runs / ended.digest, self.out / DAMAGED)
