"""`frostline push`, with a stand-in of the hub."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

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
    ("change", "message"),
    [
        (lambda folder: (folder / "config.json").write_text("{}"), "is not what frostline saved"),
        (lambda folder: (folder / "frostline.json").unlink(), "is not what frostline saved"),
        (lambda folder: (folder / "config.json").unlink(), "contains no model"),
    ],
)
def test_what_nobody_could_use_is_refused(
    finished_sweep: Path, hub: Hub, tmp_path: Path, change: Callable[[Path], object], message: str
) -> None:
    change(folder := Path(shutil.copytree(finished_sweep / "model", tmp_path / "model")))
    with pytest.raises(FrostlineError, match=message):
        push(folder, "me/films")
    assert not hub.files


def test_a_probe_of_a_folder_and_a_place_that_takes_no_model_are_refused(
    finished_sweep: Path, local_probe: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(folder: Path, name: str, message: str) -> None:
        with pytest.raises(FrostlineError, match=message):
            push(folder, name)

    refused(local_probe, "me/films", "which nobody else has")
    refused(finished_sweep, "no such/name", "log in with `hf auth login`")
    assert not hub.files
    hub.files["me/films"] = {"estimator.json": b"{}"}
    refused(finished_sweep, "me/films", "me/films has estimator.json, which is not in")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    refused(finished_sweep, "me/new", "log in with `hf auth login`")
    assert hub.files == {"me/films": {"estimator.json": b"{}"}}
