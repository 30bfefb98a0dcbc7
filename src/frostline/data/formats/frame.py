"""pandas data frames."""

from typing import Any

import numpy as np

from frostline import FrostlineError
from frostline.data.table import Table, refuse_repeated_columns


def from_pandas(frame: Any, name: str) -> Table:
    """A ``DataFrame``. Its index is ignored, and missing values become None."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise FrostlineError(f"{name}: a {type(frame).__name__} is not a table; give a DataFrame with named columns.")
    names = [str(one) for one in frame.columns]
    refuse_repeated_columns(name, names)
    columns = {}
    for position, one in enumerate(names):
        values = frame.iloc[:, position]
        columns[one] = [None if missing else cell for missing, cell in zip(values.isna(), values.tolist(), strict=True)]
    return Table(name=name, columns=columns, rows=np.arange(1, len(frame) + 1))
