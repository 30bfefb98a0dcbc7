"""pandas data frames."""

from typing import Any

import numpy as np

from frostline import FrostlineError
from frostline.data.table import Table, refuse_repeated_columns

IF_MISSING = " (pandas reads 'None' and 'NA' as missing, unless read_csv gets keep_default_na=False)"


def from_pandas(frame: Any, name: str) -> Table:
    """A ``DataFrame``. Missing values become None, and an index with a name is a column, as in the file that pandas writes."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise FrostlineError(f"{name}: a {type(frame).__name__} is not a table; give a DataFrame with named columns.")
    named = [level for level in frame.index.names if level is not None and level not in frame.columns]
    if named:
        frame = frame.reset_index(level=named)
    names = [str(one).strip() for one in frame.columns]
    refuse_repeated_columns(name, names)
    columns = {}
    for position, one in enumerate(names):
        values = frame.iloc[:, position]
        columns[one] = [None if missing else cell for missing, cell in zip(values.isna(), values.tolist(), strict=True)]
    return Table(name=name, columns=columns, rows=np.arange(1, len(frame) + 1), if_missing=IF_MISSING)
