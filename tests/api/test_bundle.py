"""``frostline.bundle`` and ``frostline.load_bundle``: the answers of each model alone, from one forward pass."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open

import frostline
from frostline import FrostlineError
from frostline.api.bundle import joined
from frostline.data.files import files_in, write_record
from hostile import flip
from small_models import edit_config, edit_weights, random_texts, write_base, write_task

TASKS: dict[str, tuple[Any, tuple[str, ...]]] = {  # k and labels
    "two": (1, ("no", "yes")),
    "three": (2, ("a", "b", "c")),
    "stars": (0, ()),
    "deep": (4, ("x", "y")),
    "other": (2, ("no", "yes")),
}
DAMAGED = r"damaged .*: make it again with `frostline bundle`|no usable tokenizer|its tokenizer cannot be loaded"


def write_tasks(folder: Path, base: Path, tasks: Any = TASKS) -> list[Path]:
    return [
        write_task(folder / name, base, k, labels=labels, seed=n + 1)
        for n, (name, (k, labels)) in enumerate(tasks.items())
    ]


def assert_identical(bundle: Path, folders: list[Path], texts: list[str]) -> None:
    """The bundle gives the very predictions of each model."""
    together = frostline.load_bundle(bundle)(texts)
    assert list(together) == [folder.name for folder in folders]
    for folder in folders:
        alone, predictions = frostline.predict(folder, texts), together[folder.name]
        assert alone.values.dtype == predictions.values.dtype == np.float32
        np.testing.assert_array_equal(alone.values, predictions.values)
        assert (alone.labels, alone.truncated) == (predictions.labels, predictions.truncated)
        assert list(alone.rows()) == list(predictions.rows())


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The folders of five small BERTs for TASKS. Copy one before changing it."""
    folder = tmp_path_factory.mktemp("tasks")
    return write_tasks(folder, write_base(folder / "base", "bert"))


@pytest.fixture(scope="module")
def bundled(models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> frostline.Bundled:
    """Their bundle."""
    torch.set_num_threads(1)
    return frostline.bundle(models, out=tmp_path_factory.mktemp("bundled") / "full")


@pytest.mark.parametrize("model_type", ["bert", "llama", "deberta-v2"])
def test_all_tasks_are_bitwise_identical_to_each_model_alone(model_type: str, tmp_path: Path) -> None:
    folders = write_tasks(tmp_path, write_base(tmp_path / "base", model_type))
    made = frostline.bundle(folders, out=tmp_path / "full")
    assert list(made.shared_layers.values()) == [3, 2, 3, 0, 2] and made.layers == 4
    assert (made.cost.layers, made.separate.layers) == (3 + 1 + 2 + 1 + 4 + 2, 20)
    assert_identical(made.out, folders, [*random_texts(64), ""])  # a full batch, and one of a single text
    assert_identical(made.out, folders, ["w9"])


def test_only_the_folder_is_needed_and_shared_weights_are_stored_and_loaded_once(
    models: list[Path], tmp_path: Path
) -> None:
    own = [Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in models]
    made = frostline.bundle(own, out=tmp_path / "made")
    texts = random_texts(5)
    expected = {folder.name: frostline.predict(folder, texts).values for folder in own}
    for folder in own:
        shutil.rmtree(folder)
    moved = made.out.rename(tmp_path / "moved")
    loaded = frostline.load_bundle(moved)
    for name, predictions in loaded(texts).items():
        np.testing.assert_array_equal(predictions.values, expected[name])
    stored = sum(x.numel() for file in moved.rglob("*.safetensors") for x in tensors(file).values()) * 4
    models = [one.model for one in loaded._classifiers.values()]
    weights = {p.data_ptr(): p.nbytes for model in models for p in model.parameters()}
    assert sum(weights.values()) == made.cost.memory_bytes == stored < 0.6 * made.separate.memory_bytes
    assert made.cost.disk_bytes == sum(file.stat().st_size for file in moved.rglob("*") if file.is_file())
    assert str(tmp_path) not in "".join(file.read_text() for file in moved.rglob("*.json"))


def test_each_task_has_its_own_temperature_and_threshold(models: list[Path], tmp_path: Path) -> None:
    folders = [Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in models[:2]]
    plain = frostline.predict(folders[0], random_texts(9))
    keys = {"calibration_temperature": 3.0, "decision_threshold": 0.9, "decision_threshold_label": "yes"}
    edit_config(folders[0], **keys)
    made = frostline.bundle(folders, out=tmp_path / "full")
    assert list(made.shared_layers.values()) == [2, 2]
    assert_identical(made.out, folders, random_texts(9))
    found = frostline.load_bundle(made.out)(random_texts(9))["two"]
    assert found.temperature == 3.0 and not np.array_equal(found.values, plain.values)


def tensors(file: Path) -> dict[str, torch.Tensor]:
    with safe_open(file, "pt") as opened:
        return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118


def test_rows_of_all_tasks_and_tables_as_input(bundled: frostline.Bundled) -> None:
    texts = random_texts(3)
    predictions = frostline.load_bundle(bundled.out)(
        pd.DataFrame({"id": [7, 8, 9], "sentence": texts}), text_column="sentence"
    )
    rows = list(joined(predictions))
    assert [list(row)[:5] for row in rows] == [["row", "text", "two.label", "two.p(no)", "two.p(yes)"]] * 3
    assert rows[1]["text"] == texts[1] and rows[1]["stars.prediction"] == round(
        float(predictions["stars"].values[1, 0]), 6
    )


def test_sweeps_and_models_are_accepted_and_tasks_are_named_after_their_folders(
    models: list[Path], tmp_path: Path
) -> None:
    for name, folder in (("films", models[0]), ("my topics", models[1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model").symlink_to(folder)
    folders = [tmp_path / "films", tmp_path / "my topics" / "model"]
    assert list(frostline.bundle(folders, out=tmp_path / "o").shared_layers) == ["films", "my-topics"]
    assert frostline.load_bundle(tmp_path / "o").tasks == ("films", "my-topics")
    with pytest.raises(FrostlineError, match="o exists: give another --out, or --overwrite"):
        frostline.bundle(folders, out=tmp_path / "o")
    frostline.bundle(folders, out=tmp_path / "o", names=("a", "b"), overwrite=True)
    assert frostline.load_bundle(tmp_path / "o").tasks == ("a", "b") and not list(tmp_path.glob(".*"))


def test_unusable_arguments_are_refused(models: list[Path], tmp_path: Path) -> None:
    for file in ("probe/estimator.json", "search/model/estimator.json"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text("{}")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("precious")
    cases: list[tuple[list[Any], dict[str, Any], str]] = [
        (models[:1], {}, "A bundle needs at least two models"),
        ([models[0], models[0]], {}, r"two and .*two would both be called 'two': name all tasks with --names"),
        ([models[0], tmp_path / "nothing"], {}, "There is no folder .*nothing: give that of a model"),
        ([models[0], tmp_path / "full"], {}, r"full contains no model \(no config.json\)"),
        ([models[0], tmp_path / "probe"], {}, "probe is a probe, a TF-IDF model or one of SetFit, which a bundle"),
        ([models[0], tmp_path / "search"], {}, "model is a probe, a TF-IDF model or one of SetFit"),
        (models[:2], {"names": ("a",)}, "--names has 1 name for 2 models"),
        (models[:2], {"names": ("a", "A")}, "would both be called 'A'"),
        (models[:2], {"names": ("a", "../b")}, r"'\.\./b' cannot be the name of a task"),
        (models[:2], {"out": tmp_path / "full", "overwrite": True}, "full exists and is not a bundle"),
    ]
    for folders, settings, message in cases:
        with pytest.raises(FrostlineError, match=message):
            frostline.bundle(folders, **{"out": tmp_path / "o", **settings})
    assert not (tmp_path / "o").exists() and (tmp_path / "full" / "thesis.tex").exists()


def columns_of(folder: Path, text: str, pair: str | None) -> None:
    columns = {"text": text, "text_pair": pair, "label": "label"}
    facts = {"task": "t", "task_type": "text-classification", "labels": ["0", "1"], "columns": columns}
    write_record(folder / "frostline.json", facts, files_in(folder).values(), inside=folder)


def test_pairs_and_single_texts(models: list[Path], tmp_path: Path) -> None:
    a, b = (Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in models[:2])
    columns_of(a, "question", "sentence")
    columns_of(b, "sentence", None)
    with pytest.raises(FrostlineError, match="'two' read pairs of texts, but 'three' single texts"):
        frostline.bundle([a, b], out=tmp_path / "o")
    columns_of(b, "question", "sentence")
    frostline.bundle([a, b], out=tmp_path / "o")
    pairs = pd.DataFrame({"sentence": ["w20 w21", "w30"], "question": ["w40", "w50 w51 w52"]})
    for name, predictions in frostline.load_bundle(tmp_path / "o")(pairs).items():
        np.testing.assert_array_equal(predictions.values, frostline.predict(tmp_path / name, pairs).values)
        assert predictions.texts.pairs == ("w20 w21", "w30")
    with pytest.raises(FrostlineError, match=r"has single texts, but the model in .*two was trained on pairs"):
        frostline.load_bundle(tmp_path / "o")(["w20"])


def test_a_model_whose_logits_change_is_not_written(
    models: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from frostline.frozen.cut import UpperModel

    arranged = UpperModel._arranged
    monkeypatch.setattr(UpperModel, "_arranged", lambda self, hidden: arranged(self, hidden) * (1 + 1e-6))
    with pytest.raises(FrostlineError, match="In the bundle, three has other logits than its model alone"):
        frostline.bundle(models[:2], out=tmp_path / "o")
    assert not list(tmp_path.iterdir())


def test_a_model_whose_layers_need_more_than_hidden_states_is_refused(tmp_path: Path) -> None:
    """LiLT's layers pass on a second stream, for the layout."""
    folders = write_tasks(tmp_path, write_base(tmp_path / "base", "lilt"), {"a": (1, ("x", "y")), "b": (1, ("x", "y"))})
    with pytest.raises(FrostlineError, match="'lilt' cannot be in a bundle, because its layers need more"):
        frostline.bundle(folders, out=tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_a_damaged_bundle_and_other_folders(bundled: frostline.Bundled, models: list[Path], tmp_path: Path) -> None:
    with pytest.raises(FrostlineError, match="two is not a bundle"):
        frostline.load_bundle(models[0])
    with pytest.raises(FrostlineError, match=r"is a bundle of several tasks: use frostline.load_bundle\("):
        frostline.predict(bundled.out, ["w9"])

    def damaged(change: Any) -> None:
        folder = Path(shutil.copytree(bundled.out, tmp_path / "damaged"))
        change(folder)
        with pytest.raises(FrostlineError, match=DAMAGED):
            frostline.load_bundle(folder)
        shutil.rmtree(folder)

    damaged(lambda folder: (folder / "bundle.json").write_text("{"))
    damaged(lambda folder: write_record(folder / "bundle.json", {"format": 1}, [], inside=folder))
    no_cut = {"format": 1, "model_class": "BertForSequenceClassification", "trunk": "two", "tasks": {"two": {}}}
    damaged(lambda folder: write_record(folder / "bundle.json", no_cut, [], inside=folder))
    elsewhere = {**no_cut, "trunk": "../two", "tasks": {"../two": {"shared_layers": 1}}}
    damaged(lambda folder: write_record(folder / "bundle.json", elsewhere, [], inside=folder))
    facts = json.loads((bundled.out / "bundle.json").read_text())
    for other in ("pipeline", "AutoModel", "BertTokenizer", "utils.hub", "__name__"):
        changed = {**facts, "model_class": other}
        damaged(lambda folder, changed=changed: write_record(folder / "bundle.json", changed, [], inside=folder))
    damaged(lambda folder: edit_config(folder / "tasks" / "two", num_hidden_layers=9))
    damaged(lambda folder: (folder / "tasks" / "two" / "config.json").unlink())
    damaged(lambda folder: (folder / "tasks" / "two" / "model.safetensors").write_bytes(b"\0" * 100))
    for name in ("shared/model.safetensors", "shared/tokenizer.json", "tasks/two/model.safetensors"):
        damaged(lambda folder, name=name: flip(folder / name))
    damaged(lambda folder: (folder / "shared" / "model.safetensors").unlink())
    damaged(lambda folder: (folder / "shared" / "tokenizer.json").unlink())
    damaged(lambda folder: edit_weights(folder / "tasks" / "two", lambda weights: weights.pop("classifier.bias")))
