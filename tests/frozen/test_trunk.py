"""Shared layers are found from the weights: for any set of cuts, and to the last bit."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as of_property
from hypothesis import strategies as st

from frostline import FrostlineError
from frostline.frozen.trunk import Contents, Sharing, branches, find_sharing
from frostline.model.anatomy import Anatomy, find_layers
from frostline.model.classifier import Classifier, load_classifier
from small_models import small_batch, small_model, write_base, write_task

LAYERS = 4
depths = st.lists(
    st.integers(0, LAYERS), min_size=2, max_size=5
)  # by task: how many of the lowest layers are as pretrained


def fine_tuned(depth: int, seed: int) -> Any:
    """A small BERT whose layers from ``depth`` on, and whose head, are not as pretrained."""
    model = small_model("bert", layers=LAYERS)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(seed)
        for name, weight in model.named_parameters():
            layer = name.removeprefix("bert.encoder.layer.").split(".")[0]
            if not name.startswith("bert.embeddings") and (not layer.isdigit() or int(layer) >= depth):
                weight += 0.1 * torch.randn_like(weight)
    return model


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load_classifier(write_base(tmp_path_factory.mktemp("base"), "bert")).tokenizer


def sharing_of(models: Sequence[Any], tokenizer: Any) -> tuple[Sharing, Anatomy]:
    anatomy = find_layers(models[0])
    contents = {f"t{n}": Contents.of(Classifier(model, tokenizer, 64), anatomy) for n, model in enumerate(models)}
    return find_sharing(contents), anatomy


@of_property(max_examples=12)
@given(depths=depths, seed=st.integers(0, 1000))
def test_for_any_cuts_each_layer_runs_once_and_the_logits_are_bitwise_identical(
    depths: list[int], seed: int, tokenizer: Any
) -> None:
    models = [fine_tuned(depth, seed + 1 + n) for n, depth in enumerate(depths)]
    sharing, anatomy = sharing_of(models, tokenizer)
    assert list(sharing.cuts) == [min(depth, max(depths[:n] + depths[n + 1 :])) for n, depth in enumerate(depths)]
    batch, ran = small_batch(models[0], seed=seed), 0

    def count(*_: Any) -> None:
        nonlocal ran
        ran += 1

    with torch.no_grad():
        alone = [model(**batch).logits for model in models]
        hooks = [layer.intermediate.register_forward_hook(count) for model in models for layer in anatomy.layers(model)]
        with branches(models, anatomy, sharing) as run:
            together = run(batch)
        for hook in hooks:
            hook.remove()
        assert all(torch.equal(model(**batch).logits, logits) for model, logits in zip(models, alone, strict=True))
    assert ran == sharing.layers_run == max(sharing.cuts) + sum(LAYERS - cut for cut in sharing.cuts)
    for a, b in zip(together, alone, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("layer", range(LAYERS))
def test_one_bit_ends_what_is_shared(layer: int, tokenizer: Any) -> None:
    models = [fine_tuned(LAYERS, seed) for seed in (1, 2)]
    weights = [model.get_parameter(f"bert.encoder.layer.{layer}.output.dense.bias") for model in models]
    with torch.no_grad():
        weights[0][0], weights[1][0] = 0.0, -0.0  # equal numbers with different bits
    assert sharing_of(models, tokenizer)[0].cuts == (layer, layer)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small BERT, and a model fine-tuned from it."""
    folder = tmp_path_factory.mktemp("one")
    base = write_base(folder / "base", "bert")
    return base, write_task(folder / "one", base, 1, seed=1)


def found(*folders: Path) -> Sharing:
    contents = {}
    for folder in folders:
        classifier = load_classifier(folder)
        contents[folder.name] = Contents.of(classifier, find_layers(classifier.model))
    return find_sharing(contents)


def test_models_without_the_same_embeddings_are_named(one: tuple[Path, Path], tmp_path: Path) -> None:
    base, first = one
    full, other = (write_task(tmp_path / name, base, "full", seed=n) for n, name in enumerate(("full", "other"), 2))
    second = write_task(tmp_path / "two", base, 2, seed=4)
    assert found(first, second).cuts == (2, 2)
    with pytest.raises(FrostlineError, match="'full' cannot be in a bundle with one, because their embeddings differ"):
        found(full, first, second)
    with pytest.raises(FrostlineError, match="'other' cannot be in a bundle with full"):
        found(full, other)


def edit_json(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_models_that_compute_or_read_texts_differently_are_refused(one: tuple[Path, Path], tmp_path: Path) -> None:
    base, first = one
    short, words, same, norm = (tmp_path / name for name in ("short", "words", "same", "norm"))
    write_task(same, base, 1, seed=2, hidden_dropout_prob=0.3, classifier_dropout=0.2)
    truncation = {"max_length": 9, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    edit_json(same / "tokenizer.json", truncation=truncation)  # that of an earlier call, which changes no token
    assert found(first, same).cuts == (3, 3)
    for folder in (short, words):
        write_task(folder, base, 1, seed=2)
    edit_json(short / "tokenizer_config.json", model_max_length=12)
    model = json.loads((words / "tokenizer.json").read_text())["model"]
    edit_json(words / "tokenizer.json", model=model | {"vocab": model["vocab"] | {"w11": 12, "w12": 11}})
    for other, different in (
        (write_base(tmp_path / "roberta", "roberta"), "'class'"),
        (write_base(tmp_path / "deeper", "bert", layers=5), "'num_hidden_layers'"),
        (write_task(norm, base, 1, seed=2, layer_norm_eps=1e-3), "'layer_norm_eps'"),
        (short, "'max_length'"),
        (words, "'tokenizer'"),
    ):
        with pytest.raises(
            FrostlineError, match=f"{other.name} and one differ in .*{different}.*: leave one of them out"
        ):
            found(first, other)
