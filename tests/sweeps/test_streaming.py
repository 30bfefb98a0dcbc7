"""A sweep with streamed layers: the same results as with the whole model in memory, and what cannot be streamed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants

import frostline
from frostline import FrostlineError
from frostline.model.device import DeviceMemory
from frostline.model.model_files import weight_files
from frostline.model.weights import weight_bytes
from frostline.statistics.recipe import Recipe
from frostline.sweeps import streaming
from frostline.sweeps.prepare import prepare
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.store import Store
from frostline.sweeps.settings import MoreRuns
from frozen.passes import bytes_of
from small_models import same_weights, sharded
from tiny import SMALL, plan_of, run_sweep, settings_of


def settings(model: Path, table: Path, out: Path, **other: Any) -> dict[str, Any]:
    return {"model": model, "train": table, "tune": "0,2", "seeds": 1, "out": out, **SMALL, "test": None, **other}


def results_of(sweep: dict[str, Any], *, streamed: bool) -> dict[str, Any]:
    """The results of all runs without their costs, their predictions, and the cached hidden states, bit by bit."""
    plan, store = plan_of(**sweep), Store(sweep["out"])
    assert (plan.experiment.pretrained.stream is not None) == streamed
    digests = {run.digest for run in plan.runs}
    assert digests == store.done()
    shards = list(sweep["out"].with_suffix(".cache").rglob("*.safetensors"))
    assert shards
    return {
        "facts": {digest: store.result(digest).model_dump(exclude={"cost"}) for digest in digests},
        "predictions": {
            digest: {name: values.tobytes() for name, values in store.predictions(digest).items()} for digest in digests
        },
        "cache": sorted((shard.parent.name, sorted(bytes_of(shard).items())) for shard in shards),
    }


@pytest.fixture
def both(tiny_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """Trains grids of a sweep in one folder with loaded layers and in another with streamed ones; the results are the same."""

    def train(model: Path, *grids: dict[str, Any], run: Any = run_sweep, **own: Any) -> list[dict[str, Any]]:
        made = []
        for name, stream in (("loaded", False), ("streamed", True)):
            monkeypatch.setattr(constants, "HF_ASSETS_CACHE", str(tmp_path / f"{name}.cache"))
            given = settings(model, tiny_table, tmp_path / name, stream=stream, **own)
            for grid in grids or ({},):
                run(last := {**given, **grid})
            made.append(last)
        assert results_of(made[0], streamed=False) == results_of(made[1], streamed=True)
        return made

    return train


@pytest.mark.parametrize(
    ("model_type", "dtype", "precision"),
    [
        ("bert", torch.float32, "float32"),
        ("llama", torch.bfloat16, "bfloat16"),
        pytest.param("gpt2", torch.bfloat16, "float32", marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_streamed_equals_loaded(both: Any, model_type: str, dtype: torch.dtype, precision: str, tmp_path: Path) -> None:
    both(sharded(tmp_path / "model", model_type, dtype=dtype), precision=precision)


@pytest.mark.slow
def test_ways_and_several_workers(both: Any, tmp_path: Path) -> None:
    """Also with phases of a run, and in a sweep that grows."""
    ways = {"near": {"tune": 2, "towards_pretrained": 0.01}, "mixed": {"tune": 2, "mixout": 0.5}}
    grids = {"tune": "1"}, {"tune": "0,1,lora-2,gradual-2,lp-ft-1,near,mixed"}
    both(sharded(tmp_path / "model", "bert"), *grids, workers=2, way=ways)


@pytest.mark.slow
def test_a_whole_sweep_with_its_saved_model(both: Any, tmp_path: Path) -> None:
    def run(given: dict[str, Any]) -> None:
        frostline.sweep(progress=Progress(), **given)

    model = sharded(tmp_path / "model", "llama", dtype=torch.bfloat16)
    same_weights(*(one["out"] / "model" for one in both(model, run=run)))


def test_each_seed_trains_other_layers(both: Any, tmp_path: Path) -> None:
    """The last seed needs fewer layers in memory than the first one."""
    loaded, _ = both(sharded(tmp_path / "model", "bert"), seeds=(0, 3), tune="0,random-1")
    plan = plan_of(**loaded)
    anatomy = plan.experiment.pretrained.anatomy
    assert [run.depth(anatomy) for run in plan.runs if run.recipe == "random-1"] == [3, 1]


REFUSED = {
    "tune full cannot be streamed, because it needs all layers in every step: tune fewer layers, or load": {
        "tune": "1,all"
    },
    "tune last 3 cannot be streamed, because it needs all layers": {"tune": "3"},
    "because its hidden states do not fit on the disk (--cache-limit)": {"cache_limit": 0.0},
    "with --frozen-dropout no hidden states are cached": {"frozen_dropout": True},
    "spectrum-25 compares the weights of all layers, so they cannot be streamed": {"tune": "1,spectrum-25"},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_streamed_is_refused(message: str, tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> None:
    own = settings(tiny_bert, tiny_table, tmp_path / "o", **{"stream": True, **REFUSED[message]})
    with pytest.raises(FrostlineError) as caught:
        frostline.plan(progress=Progress(), **own)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value) and not (tmp_path / "o").exists()


def test_a_forecast_compares_no_run_with_plain_transformers(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> None:
    own = settings(tiny_bert, tiny_table, tmp_path / "o", stream=True, tune="0,words,probe")
    found = frostline.plan(progress=Progress(), **own).forecast
    assert found is not None and [cell.trainer_seconds for cell in found.cells] == [None] * 3


def free(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """As if this many bytes of memory were free."""
    monkeypatch.setattr(streaming, "device_memory", lambda device: DeviceMemory(count, count, 0))


def notes_of(own: dict[str, Any]) -> str:
    return "\n".join(frostline.plan(timed=False, progress=Progress(), **own).notes)


@pytest.fixture(scope="module")
def deep_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT with 16 layers: full fine-tuning takes many times the memory of one layer."""
    return sharded(tmp_path_factory.mktemp("deep") / "model", "bert", layers=16)


def test_layers_are_streamed_by_themselves_if_the_weights_do_not_fit(
    deep_model: Path, tiny_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = settings(deep_model, tiny_table, tmp_path / "o")
    needed = weight_bytes(weight_files(deep_model))
    free(monkeypatch, needed)
    assert "Streams" not in notes_of(own)
    free(monkeypatch, needed - 1)
    assert f"Streams (all weights take {needed / 1e6:.1f} MB" in notes_of(own)
    assert "Streams" not in notes_of({**own, "stream": False})
    assert f"14 of 16 layers are read from {deep_model} one at a time" in notes_of({**own, "stream": True})
    with pytest.raises(FrostlineError, match=r"tune last 9 needs at least .* for its layers and their optimizer, but"):
        notes_of({**own, "tune": "0,9"})


def test_a_search_compares_what_fits(
    deep_model: Path, tiny_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, weight_bytes(weight_files(deep_model)) - 1)
    spec = settings_of(**settings(deep_model, tiny_table, tmp_path / "o", tune=0))
    whole = lambda model, _: MoreRuns(tune=(*range(model.anatomy.count + 1), "full"))  # noqa: E731
    plan = prepare(spec, {}, Progress(), grid_of=whole, probes=True)
    last = plan.spec.tune[-1].k or 0
    assert plan.spec.tune == tuple(map(Recipe, range(last + 1))) and 1 < last < 15
    stream = plan.experiment.pretrained.stream
    assert stream is not None
    assert stream.absent == set(stream.in_layers(plan.experiment.pretrained.anatomy, range(16 - last)))
    limited = prepare(spec, {}, Progress(), grid_of=lambda *_: MoreRuns(tune=(0, 1, 2)), probes=True)
    assert limited.spec.tune == ("head only", "last 1", "last 2")
