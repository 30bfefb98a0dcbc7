"""The runs of a finished sweep."""

import pandas as pd

from frostline.api.sweep import Sweep
from frostline.sweep.results.tables import COST


def table(sweep: Sweep) -> pd.DataFrame:
    """The results of a sweep without times and memory, which differ between two runs of the same sweep."""
    return sweep.table().drop(columns=list(COST))
