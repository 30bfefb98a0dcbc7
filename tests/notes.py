"""Progress that collects its notes, for tests."""

from frostline.sweep.progress import Progress


class Notes(Progress):
    """Collects the sentences that a user would read."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)
