"""Attention as GPUs compute packed batches, on a CPU."""

from pathlib import Path

import pytest

from frostline.model.packed_layout import Layout
from frostline.training.train import run, run_stacked
from model.test_stacking import RUNS, context_of, furthest, outcome, spec_of


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "qwen2", "modernbert"])
@pytest.mark.parametrize("tune", [1, "full"])
def test_the_attention_of_gpus_gives_the_same_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_type: str, tune: int | str
) -> None:
    """On a CPU: one lookup spreads queries, keys and values over the padded grid. qwen2 has fewer key heads."""
    context = context_of(model_type, tmp_path)
    specs = [spec_of(tune, *run_values) for run_values in RUNS]
    alone = [run(spec, context) for spec in specs]
    monkeypatch.setenv("FROSTLINE_WITHOUT", "attention,dropout")
    monkeypatch.setattr(Layout, "indexed", True)
    for one, other, expected in zip(
        run_stacked(specs, context, batched=True), [run(spec, context) for spec in specs], alone, strict=True
    ):
        assert furthest(one, expected) < 2e-4 and furthest(other, expected) < 2e-4


def test_a_run_that_diverges_does_not_change_the_other_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding has copies of tokens. None of them are those of another run."""
    monkeypatch.setenv("FROSTLINE_WITHOUT", "attention,dropout")
    monkeypatch.setattr(Layout, "indexed", True)
    context, found = context_of("bert", tmp_path), []
    for rate in (1e-3, 1e30):
        specs = [spec_of("full", seed, rate if seed == 0 else 1e-3, head_learning_rate="same") for seed in range(3)]
        found.append(run_stacked(specs, context, batched=True))
    assert found[1][0].record.outcome == "diverged"
    for n in (1, 2):
        assert outcome(found[1][n]) == outcome(found[0][n])
