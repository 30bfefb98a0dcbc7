"""`frostline bundle`, and `frostline predict` with a bundle."""

import csv
from pathlib import Path

import pandas as pd
import pytest

from small_models import write_task
from tiny import Frostline, sentences, write_csv


@pytest.fixture(scope="module")
def tasks(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models ``films`` and ``topics``."""
    folder = tmp_path_factory.mktemp("tasks")
    write_task(folder / "films", tiny_bert, 1, labels=("bad", "good"), seed=1)
    write_task(folder / "topics", tiny_bert, 2, labels=("a", "b", "c"), seed=2)
    return folder


def test_a_prediction_of_all_tasks_has_the_columns_of_each(frostline: Frostline, tasks: Path, tmp_path: Path) -> None:
    write_csv(tmp_path / "new.csv", [{"text": row["text"]} for row in sentences(70)])
    made = frostline("bundle", tasks / "films", tasks / "topics", "--out", "both")
    assert (made.code, made.err) == (0, "")
    assert "films          1 of 3" in made.out and "all logits are bitwise identical" in made.out
    assert "layers that run                        6        5    83%" in made.out and made.out.endswith("\nboth\n")
    done = frostline("predict", "both", "new.csv")
    assert (done.code, done.out) == (0, "new.predictions.csv: 70 texts, 2 tasks\n")
    with Path("new.predictions.csv").open(newline="") as file:
        together = list(csv.DictReader(file))
    for task in ("films", "topics"):
        assert frostline("predict", tasks / task, "new.csv", "--out", f"{task}.csv").code == 0
        with Path(f"{task}.csv").open(newline="") as file:
            alone = list(csv.DictReader(file))
        prefixed = [
            {name if name in ("row", "text") else f"{task}.{name}": x for name, x in row.items()} for row in alone
        ]
        assert [{name: row[name] for name in prefixed[0]} for row in together] == prefixed
    assert frostline("predict", "both", "new.csv", "--out", "new.parquet").code == 0
    assert list(pd.read_parquet("new.parquet").columns) == list(together[0])


def test_mistakes_end_in_one_sentence(frostline: Frostline, tasks: Path, tmp_path: Path) -> None:
    write_csv(tmp_path / "new.csv", [{"text": "good", "films.label": "x"}])
    words = ("bundle", tasks / "films", tasks / "topics", "--out", "o")
    assert frostline(*words).code == 0
    assert frostline(*words)[::2] == (2, "frostline: o exists: give another --out, or --overwrite.\n")
    taken = frostline("predict", "o", "new.csv", "--copy-columns", "films.label")
    assert taken.code == 2 and "'films.label' is the name of a column of the predictions" in taken.err
    assert "leave --trust-remote-code out" in frostline("predict", "o", "new.csv", "--trust-remote-code").err
    scored = frostline("evaluate", "o", "new.csv")
    assert scored.code == 2 and "o is a bundle: run `frostline evaluate` with the model of each task" in scored.err
    assert "It holds a bundle" in (checked := frostline("check", "o")).err and checked.code == 2
    alone = frostline("predict", "o/tasks/films", "new.csv")
    assert alone.code == 2 and "is a part of the bundle in" in alone.err
    Path("o/tasks/films/model.safetensors").unlink()
    damaged = frostline("predict", "o", "new.csv")
    assert damaged.code == 2 and "The bundle in o is damaged" in damaged.err
