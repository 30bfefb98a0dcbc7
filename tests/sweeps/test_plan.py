"""Plans: the runs of a grid, the hidden states that they share, and their parameter groups."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import frostline
from frostline.frozen.forward_pass import StateSelection
from frostline.model.anatomy import Anatomy, find_layers
from frostline.model.device import DeviceMemory
from frostline.model.terms import HEAD, POOLER
from frostline.model.ways import Way
from frostline.sweeps.execution.execute import prepare_hidden_states
from frostline.sweeps.grid import Identity, Origin, expand
from frostline.sweeps.parameter_groups import groups_of, notes_on_modules, notes_on_seeds
from frostline.sweeps.progress import Progress
from frostline.sweeps.settings import make_settings
from frostline.training.forward import training_batches
from frostline.training.train import training_session
from frozen.passes import bytes_of
from small_models import small_model
from tiny import plan_of, sentences
from training.runs import context_of, named_spec, spec_of

IDENTITY = Identity("w", "v", "d", 6, "accuracy", "float32", 128, 1000, 0, "t", "text-classification", ("a", "b"))


def spec(**values: Any) -> Any:
    return make_settings({"model": "m", "train": "t.csv", "tune": "0,2,all", "out": "o", **values})


def test_every_run_of_the_grid_appears_once_and_all_k_of_a_seed_are_together() -> None:
    runs = expand(spec(tune="all,2,0", seeds="1,0", learning_rate="3e-4,1e-4", train_size="50,20"), IDENTITY)
    cells = [(run.train_size, run.seed, run.learning_rate, run.recipe) for run in runs]
    assert cells == [
        cell
        for n in (20, 50)
        for seed in (0, 1)
        for cell in [
            (n, seed, 1e-3, "head only"),
            *((n, seed, rate, k) for rate in (1e-4, 3e-4) for k in ("last 2", "full")),
        ]
    ]
    assert len({run.digest for run in runs}) == 20
    assert {run.head_learning_rate for run in runs} == {None, 1e-3}


def test_the_origin_of_a_sweep_moves_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "work").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "work")
    origin = Origin.of(Path.cwd(), Path("../results/o"), ("train",))
    assert origin == Origin("../../work", ("train",))  # no name above the folder that both are in
    assert origin.folder_for(Path("../results/o")) == tmp_path / "a" / "work"
    assert origin.folder_for(tmp_path / "b" / "results" / "o") == tmp_path / "b" / "work"


def test_the_plan_of_a_tiny_sweep(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> None:
    made = plan_of(
        model=tiny_bert, train=tiny_table, tune="0,1,3,all", seeds=2, out=tmp_path / "o", precision="float32"
    )
    assert len(made.runs) == len(made.missing(made.runs)) == 8
    # head 32 * 32 + 32 (pooler) + 2 * 32 + 2; a layer 8544; embeddings (28 + 32 + 2) * 32 + 64
    assert dict(made.trained) == {"head only": 1122, "last 1": 9666, "last 3": 26754, "full": 28802}
    assert made.parameters == 28802
    assert made.states.wanted == made.cached == StateSelection((2,), head=True)
    assert made.states.rows == 160 and made.states.bytes == 32 * 4 * (made.states.tokens + 160) + 24 * 160
    assert made.truncated == dict.fromkeys(made.truncated, 0)
    assert not (tmp_path / "o").exists()


@pytest.mark.usefixtures("empty_cache")
def test_the_planned_size_of_the_cache_is_exact(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> None:
    settings = {"model": tiny_bert, "train": tiny_table, "tune": "0,2", "seeds": 1, "num_train_epochs": 0.1}
    sweep = dict(progress=Progress(), out=tmp_path / "o", precision="float32", **settings)
    planned = frostline.plan(timed=False, **sweep).states.bytes
    frostline.sweep(**sweep)
    (shard,) = (tmp_path / "cache").rglob("*.safetensors")
    assert sum(map(len, bytes_of(shard).values())) == planned + 8  # offsets have one more than rows


def test_a_cache_limit_prefers_the_cuts_closest_to_the_head(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> None:
    settings = {"model": tiny_bert, "train": tiny_table, "tune": "0,1,2", "seeds": 1, "out": tmp_path / "o"}
    whole = plan_of(**settings)
    assert whole.cached == StateSelection((1, 2), head=True)
    one = plan_of(**settings, cache_limit=(whole.states.bytes - 1) / 1e9)
    assert one.cached == StateSelection((2,), head=True) and one.states.wanted == whole.states.wanted
    nothing = plan_of(**settings, cache_limit=0)
    assert nothing.cached == StateSelection((), head=False) and nothing.states.bytes < whole.states.bytes / 10


def test_only_used_rows_are_in_the_forward_pass(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> None:
    settings = {"model": tiny_bert, "train": tiny_table, "tune": 1, "train_size": 20, "out": tmp_path / "o"}
    assert plan_of(**settings, seeds=1).states.rows == 32 + 20
    assert 32 + 20 < plan_of(**settings, seeds=3).states.rows <= 32 + 60
    assert plan_of(**settings, seeds=3, subset="fixed").states.rows == 32 + 20


NAMED = {"tune": "0,named,all", "tune_modules": "layer.1,layer.2.output", "seeds": 1}


def test_only_runs_of_named_parts_have_module_names() -> None:
    runs = expand(spec(tune="named,all,2", tune_modules="pooler"), IDENTITY)
    assert [(run.recipe, run.way.modules) for run in runs[:3]] == [
        ("last 2", None),
        ("full", None),
        ("named", ("pooler",)),
    ]
    plain = expand(spec(tune="all,2"), IDENTITY)
    assert {run.digest for run in runs if run.recipe != "named"} == {run.digest for run in plain}
    others = expand(spec(tune="named,all,2", tune_modules="classifier"), IDENTITY)
    assert {run.recipe for run in others if run.digest in {same.digest for same in runs}} == {"last 2", "full"}


@pytest.mark.parametrize("tune", ["head only", "full", "named"])
def test_planned_groups_are_the_optimizers(tiny_bert: Path, tiny_table: Path, tmp_path: Path, tune: Any) -> None:
    plan = plan_of(model=tiny_bert, train=tiny_table, out=tmp_path / "o", **NAMED)
    planned = [group for group in plan.groups[tune] if group.trained]
    spec = next(run for run in plan.runs if run.recipe == tune)
    prepare_hidden_states(plan, [spec], Progress())
    with training_session([spec], plan.experiment) as ([learner], _):
        groups = [
            (len(g["params"]), sum(p.numel() for p in g["params"]), (g["lr"],), g["weight_decay"])
            for g in learner.groups
        ]
    assert [(g.tensors, g.parameters, g.learning_rates, g.weight_decay) for g in planned] == groups


def test_planned_batches_are_those_that_a_run_draws(tiny_bert: Path) -> None:
    experiment, spec = context_of(tiny_bert), spec_of(2, num_train_epochs=2.0)
    with training_session([spec], experiment) as ([learner], _):
        rows, order = learner.rows, learner.order
        drawn = [rows[torch.randperm(len(rows), generator=order).numpy()] for _ in range(2)]
    size = spec.per_device_train_batch_size
    expected = [epoch[n : n + size] for epoch in drawn for n in range(0, len(epoch), size)]
    for batch, other in zip(training_batches(experiment, spec), expected, strict=True):
        np.testing.assert_array_equal(batch, other)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 200), st.integers(1, 4))
def test_what_fits_is_free_or_held_by_this_process(free: int, held: int, needed: int, workers: int) -> None:
    memory = DeviceMemory(200, free, held)
    assert memory.fits(needed, 1) == (needed <= free + held)
    assert memory.fits(needed, workers) <= memory.fits(needed, 1)
    assert memory.fits(held + needed, workers) == (workers * needed <= free)  # each takes as much in addition


def test_a_way_that_trains_other_layers_with_each_seed_is_noted() -> None:
    anatomy = Anatomy("l", 3, {f"l.{n}.weight": f"layer {n}" for n in range(3)}, (), 1)
    random, fixed = Way(tune=1, layers="random"), Way(tune=1, layers="first")
    seeds = range(4)
    runs = [spec_of(name, way=way, seed=seed) for seed in seeds for name, way in (("random-1", random), ("f", fixed))]
    (note,) = notes_on_seeds(runs, anatomy)
    layers = [re.search(rf"(layer \d) \(seed {seed}\)", note) for seed in seeds]
    trained = [run.parameters(anatomy) for run in runs if run.recipe == "random-1"]
    for found, names in zip(layers, trained, strict=True):
        assert found is not None and {anatomy.places[name] for name in names} >= {found[1]}
    assert len({found[1] for found in layers if found}) > 1 and note.startswith("random-1 trains other layers")


@pytest.mark.parametrize(
    ("tune", "weights", "noted"),
    [("0,1", "balanced", 0), ("words,1", "balanced", 1), ("lp-ft-1,1", "balanced", 1), ("words,1", "none", 0)],
)
def test_ways_without_class_weights_are_noted(
    tiny_bert: Path, tmp_path: Path, tune: str, weights: str, noted: int
) -> None:
    train = pd.DataFrame(sentences(40))
    made = plan_of(
        model=str(tiny_bert), train=train, tune=tune, out=str(tmp_path / "o"), class_weights=weights, test="none"
    )
    assert sum("TF-IDF models, SetFit and the first head of LP-FT weight all" in note for note in made.notes) == noted


@pytest.mark.parametrize(("workers", "gpu"), [(2, False), (2, True), (1, True), ("auto", True)])
def test_workers_that_cannot_be_forked_are_noted(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, workers: int | str, gpu: bool
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: gpu)
    made = plan_of(**settings | {"workers": workers, "device": "cpu"})
    assert any("--workers has no effect here" in note for note in made.notes) == (workers == 2 and gpu)


def test_every_parameter_of_the_model_counts_once_and_low_rank_factors_beside_them() -> None:
    model = small_model("bert")
    whole = sum(p.numel() for p in model.parameters())
    for way, more in ((Way(tune=2), 0), (Way(tune=2, low_rank=3), 1)):
        groups = groups_of([spec_of("w", way=way)], model, find_layers(model))
        factors = sum(group.parameters for group in groups if group.trained and "layer" in group.places[0])
        assert sum(group.parameters for group in groups) == whole + more * factors and factors


@pytest.mark.parametrize(
    ("modules", "new", "note"),
    [
        ("layer.2 layer.3 pooler classifier", {HEAD}, None),
        ("layer.3 pooler classifier", {HEAD, POOLER}, None),
        ("pooler", {HEAD}, "also trained, because they are newly initialized: classifier."),
        ("layer.3 classifier", {HEAD, POOLER}, "newly initialized, but not trained unless named: bert.pooler."),
        ("layer.1 classifier", {HEAD}, "are not the last layers: 3 of 4 layers must run in each step although only 1"),
        ("layer.2.attention layer.3 classifier", {HEAD}, "they are only a part of the last 2 layers, which must run"),
        ("layer.3 word_embeddings classifier", {HEAD}, "all 4 layers run in each step."),
    ],
)
def test_notes_on_named_modules(modules: str, new: set[str], note: str | None) -> None:
    anatomy = find_layers(small_model("bert"))
    notes = list(notes_on_modules(named_spec(*modules.split()), anatomy, anatomy.within(new)))
    assert [words for words in notes if not (words.startswith("Named parts: ") and words.endswith("."))] == []
    assert len(notes) == (note is not None) and all(note is not None and note in words for words in notes)
