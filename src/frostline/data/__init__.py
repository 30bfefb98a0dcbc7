"""Data: any table or hub set read, its task decided, subsets and held-out rows drawn, and checked."""

from frostline.data.checks import DataReport, SplitReport, conflicting, overlap, report_on
from frostline.data.columns import Columns, choose_columns
from frostline.data.examples import Examples, Texts
from frostline.data.glue import GlueTask, glue_task
from frostline.data.load import Data, load_data, read_unlabelled
from frostline.data.sources import read_splits
from frostline.data.splits import fold_numbers, hold_out, subset_indices
from frostline.data.tables import Table, read_table
from frostline.data.tasks import CLASSIFICATION, REGRESSION, Task, decide_task, targets_of
from frostline.data.weights import class_weights

__all__ = [
    "CLASSIFICATION",
    "REGRESSION",
    "Columns",
    "Data",
    "DataReport",
    "Examples",
    "GlueTask",
    "SplitReport",
    "Table",
    "Task",
    "Texts",
    "choose_columns",
    "class_weights",
    "conflicting",
    "decide_task",
    "fold_numbers",
    "glue_task",
    "hold_out",
    "load_data",
    "overlap",
    "read_splits",
    "read_table",
    "read_unlabelled",
    "report_on",
    "subset_indices",
    "targets_of",
]
