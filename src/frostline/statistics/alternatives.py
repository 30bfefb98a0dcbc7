"""Models that train no layer, by name: they compete with every k."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from frostline.statistics.evidence import Run

PROBE: Final = "probe"  # a linear probe on frozen features
WORDS: Final = "words"  # a TF-IDF model and word pairs, without a pretrained model
ALTERNATIVES = (PROBE, WORDS)


def alternative_run(name: str) -> "Run":
    """The run that stands for such a model in a table of runs; the evidence knows its predictions by name."""
    return {"recipe": name, "run": name, "seed": name}
