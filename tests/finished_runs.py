"""The runs of a finished sweep."""

import pandas as pd

from frostline.api.sweep import Sweep
from frostline.sweep.results.tables import COST


def table(sweep: Sweep) -> pd.DataFrame:
    return sweep.table().drop(columns=list(COST))
