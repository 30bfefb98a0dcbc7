"""Models that train no layer, by name: they compete with every k."""

from dataclasses import dataclass
from typing import Final

PROBE: Final = "probe"  # a linear probe on frozen features
WORDS: Final = "words"  # a TF-IDF model and word pairs, without a pretrained model
ALTERNATIVES = (PROBE, WORDS)


@dataclass(frozen=True)
class Alternative:
    """The only fit of such a model, for the evidence, which knows its predictions by name."""

    run: str
    validation_best: None = None

    @property
    def seed(self) -> str:
        """It shares no seed with a run."""
        return self.run
