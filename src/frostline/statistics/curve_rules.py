"""Rules that choose k from the shape of a curve alone: one standard error, and the knee."""

from collections.abc import Sequence

import numpy as np

from frostline.statistics.cells import CellSummary

KNEE = 0.1  # smallest distance of a knee from the chord, as a share of the curve's height


def one_standard_error(cells: Sequence[CellSummary]) -> str | None:
    """The smallest k whose mean is within one standard error of the best mean (Breiman et al. 1984)."""
    known = [cell for cell in cells if cell["comparable"] is not None]
    best = max(known, key=lambda cell: cell["comparable"], default=None)
    if best is None or best["validation"]["std"] is None:
        return None
    floor = best["comparable"] - best["validation"]["std"] / best["validation"]["n"] ** 0.5
    return next(str(cell["trainable"]) for cell in known if cell["comparable"] >= floor)


def knee(cells: Sequence[CellSummary]) -> str | None:
    """The k that lies furthest above the chord from the first to the last mean (Satopaa et al. 2011).

    Full fine-tuning, which trains the embeddings too, is excluded. None for fewer than three k, for a curve that does not rise,
    and for one that bends by less than ``KNEE``.
    """
    known = [c for c in cells if c["comparable"] is not None and not c["tune_embeddings"]]
    if len(known) < 3:
        return None
    x = np.array([cell["tuned_layers"] for cell in known], float)
    y = np.array([cell["comparable"] for cell in known])
    if y[-1] <= y[0]:
        return None
    above = (y - y[0]) / (y[-1] - y[0]) - (x - x[0]) / (x[-1] - x[0])
    return str(known[int(above.argmax())]["trainable"]) if above.max() >= KNEE else None
