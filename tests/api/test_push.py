"""`frostline push`, with a stand-in of the hub."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
from huggingface_hub import snapshot_download

from frostline import FrostlineError, predict, probe, push
from hub_stand_in import Hub, hub_running
from tiny import contents

TEXTS = ["a good film", "the plot was dull"]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that this process talks to."""
    with hub_running() as hub:
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.environment["HF_ENDPOINT"])
        path = "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(
            huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.environment["HF_ENDPOINT"] + path
        )
        monkeypatch.setenv("HF_TOKEN", hub.environment["HF_TOKEN"])
        yield hub


@pytest.fixture
def local_probe(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> Path:
    """A probe of a model that is in a folder."""
    probe(model=tiny_bert, train=tiny_table, out=tmp_path / "probes")
    return tmp_path / "probes" / "probe"


def test_what_is_downloaded_is_what_was_saved(finished_sweep: Path, hub: Hub, tmp_path: Path) -> None:
    address = push(finished_sweep, "me/films", private=True)
    assert address == f"{hub.environment['HF_ENDPOINT']}/me/films" and hub.private == {"me/films": True}
    assert hub.files["me/films"] == contents(finished_sweep / "model")
    assert push(finished_sweep / "model", "me/films") == address  # again: the same files
    downloaded = snapshot_download(
        "me/films", local_dir=tmp_path / "downloaded", endpoint=hub.environment["HF_ENDPOINT"]
    )
    expected = predict(finished_sweep / "model", TEXTS)
    assert (predict(downloaded, TEXTS).values == expected.values).all()
    of_this_machine = str(tmp_path.parent.parent).encode()  # the model and the tables are there
    assert [name for name, content in hub.files["me/films"].items() if of_this_machine in content] == []


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("changed", "is not what frostline saved"),
        ("no model", "contains no model"),
        ("a model of others", "is not what frostline saved"),
        ("probe", "which nobody else has"),
        ("another model is there", "me/films has estimator.json, which is not in"),
        ("not logged in", "log in with `hf auth login`"),
        ("no name of a repository", "log in with `hf auth login`"),
    ],
)
def test_what_nobody_could_use_is_refused_and_nothing_is_uploaded(
    case: str,
    message: str,
    finished_sweep: Path,
    hub: Hub,
    tmp_path: Path,
    request: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, name = shutil.copytree(finished_sweep / "model", tmp_path / "model"), "me/films"
    if case == "changed":
        (folder / "config.json").write_text("{}")
    elif case == "no model":
        (folder := tmp_path / "empty").mkdir()
    elif case == "a model of others":
        (folder / "frostline.json").unlink()
    elif case == "probe":
        folder = request.getfixturevalue("local_probe")
    elif case == "another model is there":
        hub.files[name] = {"estimator.json": b"{}"}
    elif case == "not logged in":
        monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    else:
        name = "no such/name"
    before = {name: dict(files) for name, files in hub.files.items()}
    with pytest.raises(FrostlineError, match=message):
        push(folder, name)
    assert hub.files == before
