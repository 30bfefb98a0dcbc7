"""Plans: the runs of a grid, the hidden states that they share, and their parameter groups."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import frostline
from frostline.frozen.forward_pass import StateSelection
from frostline.model.device import DeviceMemory
from frostline.sweeps.grid import Identity, Origin, expand
from frostline.sweeps.progress import Progress
from frostline.sweeps.settings import make_settings
from frostline.training.train import run
from frozen.passes import bytes_of
from tiny import plan_of

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
    origin = Origin.here(Path("../results/o"), ("train",))
    assert origin == Origin("../../work", ("train",))  # no name above the folder that both are in
    assert origin.folder_for(Path("../results/o")) == tmp_path / "a" / "work"
    assert origin.folder_for(tmp_path / "b" / "results" / "o") == tmp_path / "b" / "work"


def test_a_run_has_the_resolved_defaults_and_all_examples() -> None:
    run = expand(spec(metric="f1", max_length=None), IDENTITY)[0]
    assert (run.metric, run.precision, run.max_length, run.train_size) == ("accuracy", "float32", 128, 1000)
    assert (run.weights, run.vocabulary, run.data) == ("w", "v", "d")


def test_the_plan_of_a_tiny_sweep(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> None:
    made = plan_of(
        model=tiny_bert, train=tiny_table, tune="0,1,3,all", seeds=2, out=tmp_path / "o", precision="float32"
    )
    assert len(made.runs) == len(made.missing(made.runs)) == 8
    # head 32 * 32 + 32 (pooler) + 2 * 32 + 2; a layer 8544; embeddings (28 + 32 + 2) * 32 + 64
    assert (
        dict(made.trained) == {"head only": 1122, "last 1": 9666, "last 3": 26754, "full": 28802}
        and made.parameters == 28802
    )
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


def test_finished_runs_are_planned_as_done(finished_sweep: Path, tiny_bert: Path, tiny_table: Path) -> None:
    from tiny import QUICK

    made = plan_of(model=tiny_bert, train=tiny_table, tune="0,1,2,all", seeds=2, out=finished_sweep, **QUICK)
    assert len(made.runs) == 8 and [run.recipe for run in made.missing(made.runs)] == ["last 2"] * 2


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


def test_named_parts_are_cut_below_the_lowest_one_and_a_note_reports_their_cost(
    tiny_bert: Path, tiny_table: Path, tmp_path: Path
) -> None:
    settings = {"model": tiny_bert, "train": tiny_table, "out": tmp_path / "o", "seeds": 1}
    made = plan_of(**settings, tune="0,named", tune_modules="layer.1")
    assert made.states.wanted == StateSelection((1,), head=True) and made.trained["named"] == 8544 + 66
    assert [note.split(":")[0] for note in made.notes].count("Named parts") == 2
    assert "2 of 3 layers must run in each step although only 1 of them is trained" in made.notes[-1]
    nothing = plan_of(**settings, tune_modules="embeddings,classifier")
    assert (
        nothing.states.wanted == StateSelection((), head=False) and "all 3 layers run in each step" in nothing.notes[-1]
    )
    assert not any("Named" in note for note in plan_of(**settings, tune="0").notes)


def test_every_parameter_is_in_exactly_one_group(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> None:
    made = plan_of(
        model=tiny_bert, train=tiny_table, out=tmp_path / "o", learning_rate="1e-4,1e-3", weight_decay=0.1, **NAMED
    )
    assert list(made.groups) == ["head only", "full", "named"]
    for tune, groups in made.groups.items():
        assert sum(group.parameters for group in groups) == made.parameters
        assert sum(group.parameters for group in groups if group.trained) == made.trained[tune]
        assert all(bool(group.learning_rates) == (group.weight_decay is not None) == group.trained for group in groups)
    matrices, rest, head, bias, *frozen = made.groups["named"]
    assert matrices.learning_rates == rest.learning_rates == (1e-4, 1e-3) and head.learning_rates == (1e-3,)
    assert (matrices.weight_decay, rest.weight_decay, head.weight_decay, bias.weight_decay) == (0.1, 0, 0.1, 0)
    assert matrices.places == ("layer 1 .. 2",) and (head.places, head.tensors) == (("head",), 1)
    assert matrices.modules == rest.modules == ("bert.encoder.layer.1", "bert.encoder.layer.2.output")
    assert (matrices.parameters, matrices.tensors) == (4 * 32**2 + 3 * 32 * 64, 7)
    assert [group.places for group in frozen] == [("embeddings",), ("layer 0", "layer 2"), ("pooler",)]
    assert frozen[1].modules == ("bert.encoder.layer.0", "bert.encoder.layer.2.{attention, intermediate}")
    assert made.groups["head only"][-1].modules == ("bert.encoder.layer.0 .. 2",)


@pytest.mark.parametrize("tune", ["head only", "full", "named"])
def test_the_planned_groups_are_the_groups_of_the_optimizer(
    tiny_bert: Path, tiny_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: Any
) -> None:
    sweep = dict(model=tiny_bert, train=tiny_table, out=tmp_path / "o", progress=Progress(), **NAMED)
    planned = [group for group in frostline.plan(timed=False, **sweep).groups[tune] if group.trained]
    spec = next(run for run in frostline.plan(timed=False, **sweep).runs if run.recipe == tune)
    given: list[Any] = []

    def spy(forward: Any, learners: Any, *rest: Any, **more: Any) -> Any:
        given.extend(group for learner in learners for group in learner.groups)
        raise StopIteration

    monkeypatch.setattr("frostline.training.train.train", spy)
    with pytest.raises(StopIteration):
        run(spec, plan_of(**sweep).experiment)
    assert [(g.tensors, g.parameters, g.learning_rates, g.weight_decay) for g in planned] == [
        (len(g["params"]), sum(p.numel() for p in g["params"]), (g["lr"],), g["weight_decay"]) for g in given
    ]


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 200), st.integers(1, 4))
def test_what_fits_is_free_or_held_by_this_process(free: int, held: int, needed: int, workers: int) -> None:
    memory = DeviceMemory(200, free, held)
    assert memory.fits(needed, 1) == (needed <= free + held)
    assert memory.fits(needed, workers) <= memory.fits(needed, 1)
    assert memory.fits(held + needed, workers) == (workers * needed <= free)  # each takes as much in addition
