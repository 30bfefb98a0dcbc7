"""Stacked runs, and the lookups in their embedding tables, compared with the same runs one by one. No run changes another."""

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from frostline.fast.switch import memory_reused
from frostline.frozen.forward_pass import StateSelection
from frostline.model.anatomy import probe_batch
from frostline.model.device import Machine
from frostline.model.packed_layout import Layout
from frostline.model.stacking import stacked
from frostline.model.ways import Way
from frostline.training.experiment import Experiment
from frostline.training.result import Result
from frostline.training.run import Run
from frostline.training.train import profile_step, run, run_stacked
from small_models import small_batch, small_model
from training.runs import largest_difference, outcome
from training.runs import small_context as context_of
from training.runs import spec_of as run_of

L = 3
RUNS = [(0, 1e-3), (1, 3e-3), (2, 3e-4)]  # seed (which also sets the rows, their order and the head), learning rate


def spec_of(tune: int | str, seed: int = 0, learning_rate: float = 1e-3, **more: object) -> Run:
    own = {"seed": seed, "learning_rate": learning_rate, "train_size": 24, "warmup_steps": 0, "metric": "accuracy"}
    spec: Run = run_of(tune, **{"per_device_eval_batch_size": 16, **own, **more})
    return spec


def scores(result: Result) -> list[object]:
    """The discrete results of a run, which do not differ by rounding."""
    accuracies = [s for s in result.record.scores if s.metric == "accuracy"]
    return [
        *accuracies,
        *(
            getattr(result.record, name)
            for name in ("best_epoch", "outcome", "reason", "train_last", "digest", "audit")
        ),
    ]


@pytest.fixture(autouse=True, scope="module")
def freed_memory_is_reused() -> Iterator[None]:
    with memory_reused():
        yield


def assert_as_alone(experiment: Experiment, tune: int | str) -> list[Result]:
    """Three runs that differ in seed, learning rate and rows, and one that diverges in step 3 or 4 of 6. Returns the runs alone.

    Some gradients are zero but for rounding, such as those of the biases of keys. A small epsilon would turn them into steps.
    """
    more = {"head_learning_rate": "same", "warmup_steps": 2, "adam_epsilon": 1e-3}
    specs = [spec_of(tune, *one, **more) for one in [*RUNS, (3, 1e30)]]
    alone = [run(spec, experiment) for spec in specs]
    *trained, diverged = alone
    assert len({result.logits["validation_last"].tobytes() for result in trained}) == len(RUNS)
    assert diverged.record.outcome == "diverged" and diverged.record.cost.steps in (2, 3)
    for batched in (False, True):
        together = run_stacked(specs, experiment.with_worker(batched=batched))
        for one, expected in zip(together, alone, strict=True):
            assert scores(one) == scores(expected)
            assert one.record.provenance == expected.record.provenance.model_copy(update={"stacked": len(specs)})
            assert expected is diverged or largest_difference(one, expected) < 2e-6, (tune, batched)
    one = run_stacked(specs[:1], experiment.with_worker(batched=True))[0]  # queries, keys and values as one product
    assert scores(one) == scores(alone[0]) and largest_difference(one, alone[0]) < 2e-6, tune
    parameters = [*experiment.pretrained.model.parameters()]
    assert len({p.untyped_storage().data_ptr() for p in parameters}) == len(parameters)
    return alone


def _scores_of(query: Tensor, key: Tensor, causal: int, scale: float) -> Tensor:
    scores = scale * query @ key.mT
    return scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf) if causal else scores


def _attention(query: Tensor, key: Tensor, value: Tensor, *args: Any, scale: float) -> tuple[Any, ...]:
    """Memory-efficient attention of examples one after another, ``[1, N, H, C]`` each, which torch has for GPUs only."""
    _, offsets, _, longest, _, dropout_p, causal, *_ = args
    assert dropout_p == 0 and offsets.dtype == torch.int32 and int(offsets.diff().max()) <= longest
    out = []
    for parts in zip(*(x[0].split(offsets.diff().tolist()) for x in (query, key, value)), strict=True):
        q, k, v = (x.transpose(0, 1) for x in parts)
        out.append((_scores_of(q, k, causal, scale).softmax(-1) @ v).transpose(0, 1))
    nothing = torch.zeros(())
    return torch.cat(out)[None], nothing, nothing.clone(), nothing.clone(), longest, longest


def _attention_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *args: Any, scale: float, shared_storage_dqdkdv: bool
) -> tuple[Tensor, ...]:
    offsets, causal = args[2], args[-2]
    assert shared_storage_dqdkdv
    joint, start = query.new_zeros(*query.shape[:2], 3, *query.shape[2:]), 0
    for parts in zip(*(x[0].split(offsets.diff().tolist()) for x in (gradient, query, key, value)), strict=True):
        g, q, k, v = (x.transpose(0, 1) for x in parts)
        weights = _scores_of(q, k, causal, scale).softmax(-1)
        of_weights = g @ v.mT
        of_scores = scale * weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True))
        found = torch.stack([of_scores @ k, of_scores.mT @ q, weights.mT @ g])
        joint[0, start : (start := start + len(parts[0]))] = found.permute(2, 0, 1, 3)
    return *joint.unbind(2), query.new_zeros(())


@pytest.mark.parametrize(
    ("model_type", "tune"), [("bert", 2), *((name, "full") for name in ("bert", "gpt2", "llama")), ("modernbert", 1)]
)
def test_the_path_for_gpus_gives_the_runs_of_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_type: str, tune: int | str
) -> None:
    """One run and three, with attention by offsets and with the padded grid."""
    experiment = context_of(model_type, tmp_path)
    specs = [spec_of(tune, *one, head_learning_rate="same", adam_epsilon=1e-3) for one in RUNS]
    alone = [run(spec, experiment) for spec in specs]
    used: list[Any] = []
    monkeypatch.setattr(Layout, "indexed", property(lambda layout: not layout.capacity))
    monkeypatch.setattr("frostline.model.packing.MAX_SHORT", 0)
    monkeypatch.setattr("frostline.fast.last_layer.READ_AGAIN", set())
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl(
            "_efficient_attention_forward", lambda *args, **more: used.append(1) or _attention(*args, **more), "CPU"
        )
        library.impl("_efficient_attention_backward", _attention_backward, "CPU")
        for by_offsets in (False, True):
            monkeypatch.setattr("frostline.model.packing.has_kernel", lambda *_, found=by_offsets: found)
            for count in (1, 3):
                together = run_stacked(specs[:count], experiment.with_worker(batched=True))
                for one, expected in zip(together, alone, strict=False):
                    assert scores(one) == scores(expected) and largest_difference(one, expected) < 2e-6
            # not if there are fewer heads of keys, or if only the last layer runs
            assert bool(used) == (by_offsets and model_type not in ("llama", "modernbert"))


@pytest.mark.parametrize("model_type", ["bert", "modernbert", "gpt2", "qwen3"])
def test_stacked_runs_equal_runs_one_by_one(model_type: str, tmp_path: Path) -> None:
    experiment = context_of(model_type, tmp_path)
    assert experiment.packed
    for tune in (0, 2, L, "full") if model_type == "bert" else ("full",):
        assert_as_alone(experiment, tune)


def test_stacked_runs_equal_runs_one_by_one_if_frozen_layers_run_too(tmp_path: Path) -> None:
    """In padded batches. The cached hidden states lie below the cut, or none are cached."""
    experiment = context_of("bert", tmp_path, packed=False)
    lower = copy(experiment.states)
    lower.selection = StateSelection((1,), False)
    for states, cut in ((None, None), (lower, 1)):
        alone = assert_as_alone(experiment.with_worker(states=states), 1)
        assert {result.record.provenance.cut for result in alone} == {cut}


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "llama"])
def test_stacked_heads_are_bitwise_identical_to_heads_one_by_one(model_type: str, tmp_path: Path) -> None:
    """With dropout, and the parameters of each run used run by run.

    Each run draws its dropout masks from its own seed, so its result does not depend on the other runs of the stack.
    """
    experiment = context_of(model_type, tmp_path, dropout=True)
    specs = [spec_of(0, *run_values, head_learning_rate="same") for run_values in [*RUNS, (0, 3e-3)]]
    for precision in ("float32", "bfloat16") if model_type in ("bert", "llama") else ("float32",):
        experiment = replace(experiment, machine=Machine(torch.device("cpu"), precision))
        for one, spec in zip(run_stacked(specs, experiment), specs, strict=True):
            assert outcome(one) == outcome(run(spec, experiment))


@pytest.mark.parametrize(
    ("tune", "dropout", "batched", "as_on_gpus"),
    [
        (0, True, True, False),
        (1, True, False, False),
        ("full", False, True, False),
        ("full", True, False, False),
        ("full", False, True, True),
    ],
)
def test_a_run_that_diverges_does_not_change_the_other_runs_of_its_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: int | str, dropout: bool, batched: bool, as_on_gpus: bool
) -> None:
    """They are bitwise identical to those of a stack in which no run diverges. On GPUs, padding has copies of tokens."""
    if as_on_gpus:
        monkeypatch.setenv("FROSTLINE_WITHOUT", "attention,dropout")
        monkeypatch.setattr(Layout, "indexed", True)
    experiment = context_of("bert", tmp_path, dropout=dropout)
    stable = [spec_of(tune, *one, head_learning_rate="same") for one in RUNS]
    diverging = [stable[0], spec_of(tune, 1, 1e30, head_learning_rate="same"), stable[2]]
    without, with_diverged = (
        run_stacked(specs, experiment.with_worker(batched=batched)) for specs in (stable, diverging)
    )
    assert [result.record.outcome for result in with_diverged][1] == "diverged"
    assert with_diverged[1].record.cost.steps < 6 and with_diverged[1].test_logits is None
    for n in (0, 2):
        assert outcome(with_diverged[n]) == outcome(without[n])
        assert with_diverged[n].record.outcome != "diverged" and with_diverged[n].record.cost.steps == 6


def test_all_runs_of_a_stack_may_diverge(tmp_path: Path) -> None:
    experiment = context_of("bert", tmp_path)
    results = run_stacked([spec_of(1, seed, 1e30) for seed in (0, 1)], experiment)
    assert [result.record.outcome for result in results] == ["diverged"] * 2
    assert all(result.test is None and result.record.audit.trainable_parameters for result in results)


def test_in_a_stack_each_run_has_the_dropout_of_its_seed(tmp_path: Path) -> None:
    """With several runs the grid of a batch is another one, so masks and results are not those of runs one by one."""
    specs, found = [spec_of(1, seed, adam_epsilon=1e-3) for seed in (0, 1, 0)], []
    for dropout in (True, False):
        experiment = context_of("bert", tmp_path / str(dropout), dropout=dropout)
        found.append(run_stacked(specs, experiment.with_worker(batched=True)))
    (first, other, again), (without, *_) = found
    assert largest_difference(first, again) < 2e-6
    assert min(largest_difference(first, one) for one in (other, without)) > 1e-3


def test_stacked_restores_the_model(tmp_path: Path) -> None:
    experiment = context_of("qwen3", tmp_path)
    model = experiment.pretrained.model
    names = Way(tune=2).parameters(experiment.pretrained.anatomy)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    model.requires_grad_(False)
    batch = probe_batch(model)
    logits = model(**batch).logits

    def start(run: int) -> dict[str, nn.Parameter]:
        return {name: p for name, p in model.named_parameters() if name in names}

    for batched in (False, True):
        with pytest.raises(ZeroDivisionError), stacked(model, names, 2, start, batched=batched) as own:
            assert all(list(one) == [name for name in before if name in names] for one in own)
            for parameter in own[1].values():
                with torch.no_grad():
                    parameter.add_(1.0)
            model(**{name: torch.cat([x, x]) for name, x in batch.items()}).logits.sum().backward()
            assert all(p.grad is not None and p.grad.any() for p in own[0].values())
            raise ZeroDivisionError
        for module in model.modules():
            assert "forward" not in vars(module) and "weight" not in vars(module) and not module._forward_pre_hooks
        assert all(torch.equal(p, before[name]) and p.grad is None for name, p in model.named_parameters())
        assert torch.equal(model(**batch).logits, logits)


def test_profile_step_measures_a_training_step_and_restores_the_model(tmp_path: Path) -> None:
    experiment = context_of("bert", tmp_path)
    before = {name: p.detach().clone() for name, p in experiment.pretrained.model.named_parameters()}
    for count in (1, 2):
        seconds, used = profile_step([spec_of(1, seed) for seed in range(count)], experiment)
        assert 0 < seconds < 60 and used > 0
    few = profile_step([spec_of(1, 0).model_copy(update={"per_device_train_batch_size": 1000})], experiment)
    assert 0 < few[0] < 60  # with fewer examples than a batch there are as many steps
    diverging = [spec_of(1, 0).model_copy(update={"learning_rate": 1e30})]
    assert profile_step(diverging, experiment)[0] > 0  # a loss that is not finite is no error here
    experiment.pretrained.start_run(frozenset(), 0)
    after = experiment.pretrained.model.named_parameters()
    assert all(torch.equal(p, before[name]) for name, p in after if name not in experiment.pretrained.new)


NAME = "bert.embeddings.word_embeddings.weight"


class Lookups(nn.Module):
    """A module with one embedding table and a module that it does not use, in place of a model."""

    def __init__(self, entries: int, padding: int | None) -> None:
        super().__init__()
        self.table = nn.Embedding(entries, 3, padding_idx=padding)
        self.unused = nn.Linear(3, 1)

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
        return self.table(input_ids if positions is None else positions)


@given(
    st.integers(2, 4),
    st.integers(1, 3),
    st.integers(1, 5),
    st.sampled_from([None, 0, 2]),
    st.booleans(),
    st.integers(0, 99),
)
def test_values_and_gradients_are_those_of_each_run(
    runs: int, examples: int, length: int, padding: int | None, shared: bool, seed: int
) -> None:
    """Positions may be shared: one row for the examples of all runs."""
    random = torch.Generator().manual_seed(seed)
    model, tables = Lookups(4, padding), torch.randn(runs, 4, 3, generator=random)
    ids = torch.randint(4, (runs * examples, length), generator=random)
    positions = torch.randint(4, (1, length), generator=random) if shared else None
    weights = torch.randn(runs, examples, length, 3, generator=random)

    def start(run: int) -> dict[str, nn.Parameter]:
        model.table.weight.data.copy_(tables[run])
        return dict(model.named_parameters())

    def value_and_gradients(*, batched: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
        with stacked(model, {*dict(model.named_parameters())}, runs, start, batched=batched) as own:  # type: ignore[arg-type]
            for _ in range(2):  # the gradients of parts of a batch add up
                out = model(input_ids=ids, positions=positions)
                (out.view(runs, examples, length, 3) * weights).sum().backward()
        assert all(parameters["unused.weight"].grad is None for parameters in own)
        return out.detach(), [parameters["table.weight"].grad for parameters in own]  # type: ignore[misc]

    (out, gradients), (expected, expected_gradients) = (value_and_gradients(batched=one) for one in (True, False))
    assert torch.equal(out, expected)
    for one, other in zip(gradients, expected_gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("option", [{"max_norm": 1.0}, {"scale_grad_by_freq": True}, {"sparse": True}])
def test_tables_with_options_are_looked_up_run_by_run(option: dict[str, float]) -> None:
    model = small_model("bert")
    old = model.bert.embeddings.word_embeddings
    model.bert.embeddings.word_embeddings = nn.Embedding(*old.weight.shape, **option)
    calls = []
    original = model.bert.embeddings.word_embeddings.forward
    model.bert.embeddings.word_embeddings.forward = lambda x: calls.append(len(x)) or original(x)
    parameter = model.get_parameter(NAME)
    with stacked(model, {NAME}, 2, lambda run: {NAME: parameter}, batched=True):
        model(**small_batch(model, (5, 5, 3, 3)))
    assert calls == [2, 2]
