"""The lookup in the embedding tables of all runs of a stack equals the lookups of the runs one by one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from frostline.model.stacking import stacked
from small_models import small_batch, small_model

NAME = "bert.embeddings.word_embeddings.weight"


class Lookups(nn.Module):
    """A module with one embedding table, in place of a model."""

    def __init__(self, entries: int, padding: int | None) -> None:
        super().__init__()
        self.table = nn.Embedding(entries, 3, padding_idx=padding)

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
        return {"table.weight": model.table.weight}

    def value_and_gradients(*, batched: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
        with stacked(model, {"table.weight"}, runs, start, batched=batched) as own:  # type: ignore[arg-type]
            out = model(input_ids=ids, positions=positions)
            (out.view(runs, examples, length, 3) * weights).sum().backward()
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
