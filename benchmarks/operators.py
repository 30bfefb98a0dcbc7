"""How many operators does a training step start, and how often does the host wait for the device?

    python benchmarks/operators.py [--cpu] [--json FILE]

On a GPU, a small operator takes less time than starting it. Operators are counted here without a GPU. All tensors are on torch's
device ``meta``, which has shapes but no data, so the code for GPUs runs. Views and allocations are left out. Attention and
dropout count as one operator in each direction, as on a GPU. ``--cpu`` counts on a CPU instead, with stacked runs forced into
batched operators.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from random_context import context_of, lengths_like, spec_of, with_states
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from transformers import AutoModelForSequenceClassification, get_scheduler
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from measuring import Facts, write_result

from frostline.api.demo import packaged_model
from frostline.frozen import forward_pass as batches
from frostline.model.device import Machine
from frostline.training import train as loop
from frostline.training.experiment import Experiment
from frostline.training.train import run_stacked
from training.stand_in import META, StandIn, is_view  # type: ignore[import-not-found]

BATCH, STEPS = 16, 6  # the first step, in which the optimizer makes its state, is not counted
SIDES = {"plain transformers": 0, "frostline": 1, "frostline, 8 runs": 8, "frostline, 25 runs": 25}
CPU = torch.device("cpu")
READS = ("_local_scalar_dense", "nonzero", "equal", "is_nonzero")
RESULT = Path(__file__).parent / "results" / "operators.json"


class OnCpu(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts all operators on a CPU, and those in which a GPU would make the host wait. A stand-in has the same attributes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        self.phase = "outside"

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations[self.phase] += not is_view(function)
        self.reads[self.phase] += function._schema.name.removeprefix("aten::") in READS
        return function(*args, **(kwargs or {}))


class _Dropout(torch.autograd.Function):
    """Dropout as one operator in each direction, as a GPU has it."""

    @staticmethod
    def forward(ctx: Any, watched: Any, x: Tensor) -> Tensor:
        ctx.watched = watched
        watched.operations[watched.phase] += 1
        with _disable_current_modes():
            return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        ctx.watched.operations[ctx.watched.phase] += 1
        with _disable_current_modes():
            return None, torch.empty_like(gradients[0])


class _Attention(torch.autograd.Function):
    """Attention as one operator in each direction, as a GPU has it."""

    @staticmethod
    def forward(ctx: Any, watched: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        ctx.watched = watched
        ctx.save_for_backward(query, key, value)
        watched.operations[watched.phase] += 1
        with _disable_current_modes():
            return _by_token(query, value.shape[-1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        ctx.watched.operations[ctx.watched.phase] += 1
        with _disable_current_modes():
            return None, *(_by_token(x, x.shape[-1]) for x in ctx.saved_tensors)


def _by_token(x: Tensor, size: int) -> Tensor:
    """Heads ``[B, H, S, size]`` in the order of memory that a GPU's attention returns, token by token."""
    batch, heads, tokens, _ = x.shape
    return x.new_empty(batch, tokens, heads, size).transpose(1, 2)


@contextmanager
def watching(cpu: bool) -> Iterator[Any]:
    """Count operators on a CPU or on the stand-in, on which torch then runs its combined operators too."""
    with ExitStack() as opened:
        if cpu:
            yield opened.enter_context(OnCpu())
            return
        watched = StandIn()
        for module, name in (
            ("torch.optim.optimizer", "_get_fused_kernels_supported_devices"),
            ("torch.utils._foreach_utils", "_get_foreach_kernels_supported_devices"),
        ):
            known = getattr(import_module(module), name)()
            opened.enter_context(patch.object(sys.modules[module], name, lambda known=known: [*known, "meta"]))
        opened.enter_context(patch.dict(batches.TOKENS, meta=batches.TOKENS["cuda"]))

        def attention(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            out: Tensor = _Attention.apply(watched, query, key, value)  # type: ignore[no-untyped-call]
            return out

        def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
            return _Dropout.apply(watched, x) if training and p else x  # type: ignore[no-untyped-call]

        opened.enter_context(patch("torch.nn.functional.scaled_dot_product_attention", attention))
        opened.enter_context(patch("torch.nn.functional.dropout", dropout))
        yield opened.enter_context(watched)


def count_frostline(experiment: Experiment, tune: int | str, runs: int, *, cpu: bool) -> tuple[float, float]:
    """Operators and reads per training step of a stack."""
    backward, steps = getattr(loop, "backward"), 0  # noqa: B009  (train.py imports it)
    # one learning rate, as the plain loop has
    size = STEPS * BATCH
    specs = [spec_of(tune, size, seed=seed, num_train_epochs=1, head_learning_rate=None) for seed in range(runs)]
    with watching(cpu) as watched:

        def first(*args: Any, **more: Any) -> Any:
            nonlocal steps
            steps += 1
            watched.phase = "step" if steps > 1 else "first step"
            return backward(*args, **more)

        def after(step: int, total: int) -> None:
            watched.phase = "between steps"

        with patch.object(loop, "backward", first):
            run_stacked(specs, experiment.with_worker(batched=True), on_step=after)
    return watched.operations["step"] / (STEPS - 1), watched.reads["step"] / (STEPS - 1)


def count_transformers(experiment: Experiment, tune: int | str, *, cpu: bool) -> tuple[float, float]:
    """Operators and reads of one step of a plain loop: padded batch, loss, clipping, fused AdamW, schedule."""
    model = AutoModelForSequenceClassification.from_pretrained(packaged_model(), num_labels=2)
    trained = spec_of(tune, 1).parameters(experiment.pretrained.anatomy)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in trained)
    batch = experiment.tokens.batch(experiment.splits["train"][:BATCH])
    device = CPU if cpu else META
    model.to(device).train()
    with watching(cpu) as watched:
        parameters = [p for p in model.parameters() if p.requires_grad]
        groups = [{"params": [p for p in parameters if (p.dim() > 1) == matrix]} for matrix in (True, False)]
        optimizer = torch.optim.AdamW(groups, lr=1e-5, fused=True)
        schedule = get_scheduler("linear", optimizer, 1, 10)
        for watched.phase in ("first step", "step"):
            given = {name: x.to(device) for name, x in batch.items()}
            model(**given, labels=torch.zeros(BATCH, dtype=torch.long).to(device)).loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    return watched.operations["step"], watched.reads["step"]


def measured(cpu: bool) -> list[Facts]:
    """The counts of every side at every k."""
    found: list[Facts] = []
    tunes: tuple[int | str, ...] = (2, "all")
    for tune in tunes:
        model = AutoModelForSequenceClassification.from_pretrained(packaged_model(), num_labels=2)
        experiment = context_of(model, lengths_like("short", STEPS * BATCH + 8), Machine(CPU, "float32"), validation=8)
        experiment = with_states(experiment, (4,)) if tune == 2 else experiment
        for side, runs in SIDES.items():
            if runs and not cpu:
                experiment.pretrained.model.to(META)
                experiment = replace(experiment, machine=Machine(META, "float32"))
            if runs:
                operators, reads = count_frostline(experiment, tune, runs, cpu=cpu)
            else:
                operators, reads = count_transformers(experiment, tune, cpu=cpu)
            found.append({"k": str(tune), "side": side, "operators": round(operators), "reads": reads})
            print(found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true", help="count on a CPU, as earlier versions were counted")
    parser.add_argument("--json", type=Path, default=RESULT, metavar="FILE", help="where to write the counts")
    options = parser.parse_args()
    if options.cpu:
        os.environ["FROSTLINE_WITHOUT"] = "attention,dropout,sparse_gradients"  # GPUs do not have these
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    found = measured(options.cpu)
    plain = {one["k"]: one["operators"] for one in found if one["side"] == "plain transformers"}
    where = "on a CPU" if options.cpu else "on the path for GPUs"
    rows = [
        [
            f"{one['side']}, k = {one['k']}",
            f"{one['operators']}",
            f"{one['operators'] / plain[one['k']]:.2f}",
            f"{one['reads']:g}",
        ]
        for one in found
    ]
    header = ["one training step", "operators", "relative to plain", "reads by the host"]
    caption = (
        f"Operators {where}, MiniLM with 6 layers, batches of {BATCH} short texts, in float32 with one learning rate, views left "
        "out. A learning rate of its own for the head, the default, adds two operators for each run."
    )
    write_result(
        options.json,
        "How many operators does a training step start?",
        [{"caption": caption, "header": header, "rows": rows}],
        found,
    )


if __name__ == "__main__":
    main()
