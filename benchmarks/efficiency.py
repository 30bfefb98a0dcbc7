"""How close a sweep comes to the speed of the machine: its time divided by a lower bound, for each phase.

    python benchmarks/efficiency.py --json FILE --model FOLDER --train FILE --validation FILE --tune 0,1,2,full --seeds 1

A calibration of a few seconds measures three speeds of this machine: matrix products in the shapes that occur, memory, disk.
The bound of a phase is the time of its operations at the highest matrix speed. For training, the time of the bytes that the
optimizer reads and writes is added. Some machines cannot sustain their highest speed. A second bound therefore uses the speed
of all training processes together, measured before and after the sweep in the shape of a training step. Phases without a bound
(start-up, tokenizing, the exactness check, saving, the report) are listed with their seconds. The settings are those of
`frostline sweep` without --out. Do not use the machine for anything else meanwhile.

A bound does not include lookups, norms, activations, dropout, softmax and the interpreter, so 1.0 cannot be reached.
"""

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import frostline

START, CACHE = perf_counter(), tempfile.TemporaryDirectory()
os.environ["HF_ASSETS_CACHE"] = CACHE.name  # read at import; an empty cache, so there is a forward pass

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

from frostline.frozen.forward_pass import tokens_per_batch  # noqa: E402
from frostline.frozen.hidden_states import cache_folder, missing_rows  # noqa: E402
from frostline.sweeps.execution.execute import runs_from_cache  # noqa: E402
from frostline.sweeps.execution.forecast import disk_speed  # noqa: E402
from frostline.sweeps.execution.workers import run_in_each_worker, workers_for  # noqa: E402
from frostline.sweeps.operations import CostModel, batch_totals  # noqa: E402
from frostline.sweeps.plan import Plan, rows_needed  # noqa: E402
from frostline.sweeps.progress import Progress  # noqa: E402

IMPORTS = perf_counter() - START
OPTIMIZER_BYTES = (
    36  # per parameter and step, for any batch: weight, its copy for the products, gradient, moments of AdamW
)
NAMES = {
    "loading the model": "start-up",
    "tokenizing the examples": "tokenizing",
    "checking that the model can be cut": "check",
    "timing a few steps": "forecast",
    "hidden states": "pass",
    "saving the model": "saving",
    "writing the report": "report",
}


class Clock(Progress):
    """Measures the seconds of each phase, from its beginning to the beginning of the next."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = {"start-up": IMPORTS}
        self.phase, self.since = "start-up", perf_counter()

    def begin(self, what: str) -> None:
        """Begin a phase. A name that ``NAMES`` lacks is a run."""
        if (
            self.phase != "saving" or NAMES.get(what) == "report"
        ):  # saving may train again; that is not a run of the grid
            self.lap(NAMES.get(what, "runs"))
        super().begin(what)

    def lap(self, phase: str) -> None:
        """End the current phase and begin another one."""
        now = perf_counter()
        self.seconds[self.phase] = self.seconds.get(self.phase, 0.0) + now - self.since
        self.phase, self.since = phase, now


Choice = Callable[[Sequence[float]], float]  # selects one of several times of the same work


def seconds_of(work: Callable[[], Any], choice: Choice = min, seconds: float = 0.3) -> float:
    """The best time of some repetitions, because a bound needs the highest speed; or another ``choice``."""
    work()
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        begun = perf_counter()
        work()
        times.append(perf_counter() - begun)
    return choice(times)


def matrix_rate(plan: Plan, tokens: int, choice: Choice = min) -> float:
    """Operations per second of the matrix products of a layer with this many tokens, in the precision of the sweep.

    It is the higher speed of two ways: with weights in the sweep's precision, or under autocast.
    """
    machine, model = plan.experiment.machine, plan.experiment.pretrained.model
    layer = plan.experiment.pretrained.anatomy.layers(model)[0]
    shapes = [p.shape for p in layer.parameters() if p.dim() == 2]
    layers = [nn.Linear(columns, rows, bias=False, device=machine.device) for rows, columns in shapes]
    given = [torch.randn(tokens, columns, device=machine.device, dtype=machine.dtype) for _, columns in shapes]
    plain = [nn.Parameter(one.weight.to(machine.dtype)) for one in layers]

    def seconds(products: Sequence[Callable[[torch.Tensor], torch.Tensor]]) -> float:
        def multiply() -> None:
            for x, product in zip(given, products, strict=True):
                product(x)
            if machine.device.type == "cuda":
                torch.cuda.synchronize()

        return seconds_of(multiply, choice)

    with torch.no_grad():
        best = seconds([partial(nn.functional.linear, weight=weight) for weight in plain])
        with machine.autocast():
            best = min(best, seconds(layers))
    return sum(2 * tokens * rows * columns for rows, columns in shapes) / best


def usual_rate(plan: Plan, runs: Sequence[Any], tokens: int) -> float:
    """The same speed for all training processes together; the median instead of the best time."""
    rates = run_in_each_worker(workers_for(plan, runs), partial(matrix_rate, plan, tokens, statistics.median))
    return sum(rates)


def memory_rate(plan: Plan) -> float:
    """Bytes read and written per second in a copy that is larger than any processor cache."""
    source = torch.ones(1 << 26, device=plan.experiment.machine.device)
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)
        if source.device.type == "cuda":
            torch.cuda.synchronize()

    return 2 * source.numel() * source.element_size() / seconds_of(copy)


def measure(settings: dict[str, Any]) -> dict[str, Any]:
    """Run the sweep with an empty cache; returns every phase with its seconds and its bound."""
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock()
        sweep = dict(progress=clock, **settings, out=Path(folder) / "o")
        begun = perf_counter()
        plan = frostline.plan(timed=False, **sweep)
        clock.begin("checking that the model can be cut")
        plan.check_cuts()  # from here on, the work that needs only the head's token is known
        clock.lap("calibration")
        workload = CostModel(plan.experiment, plan.cached)
        runs = plan.requested
        steps = _tokens(workload, runs)
        rates = _rates(workload, plan, runs, steps)
        usual = [usual_rate(plan, runs, steps)]
        spent = perf_counter() - clock.since
        clock.lap("start-up")
        frostline.sweep(**sweep)
        clock.lap("end")
        wall = perf_counter() - begun - spent + IMPORTS
        usual.append(usual_rate(plan, runs, steps))
        results = plan.store.results()
        from_cache = runs_from_cache(plan, runs)
        needed = rows_needed(plan.experiment, from_cache or runs)
        rows = missing_rows(plan.experiment.tokens, needed, workload.cached) if from_cache else needed[:0]
        clock.seconds.pop("calibration")
        phases = list(_phases(clock, workload, plan, runs, results, rows, rates))
    bound = sum(phase["bound"] or 0.0 for phase in phases)
    operations, best = sum(phase.get("operations", 0.0) for phase in phases), _best(rates)
    at_usual = bound + operations * (1 / statistics.mean(usual) - 1 / best)
    found = {"settings": settings, "rates": rates, "usual": usual, "wall": wall, "bound": bound, "phases": phases}
    return {**found, "bound_at_usual": at_usual}


def _tokens(workload: CostModel, runs: Sequence[Any]) -> int:
    """The typical number of tokens of a training step."""
    return max(1, round(statistics.median(workload.batches(run).steps.mean.tokens for run in runs)))


def _best(rates: dict[str, float]) -> float:
    return max(rates["training"], rates["evaluation"], rates["pass"])


def _rates(workload: CostModel, plan: Plan, runs: Sequence[Any], steps: int) -> dict[str, float]:
    scored = max(1, round(statistics.median(workload.batches(run).scored.mean.tokens for run in runs)))
    cache_folder().mkdir(parents=True, exist_ok=True)
    return {
        "training": matrix_rate(plan, steps),
        "evaluation": matrix_rate(plan, scored),
        "pass": matrix_rate(plan, tokens_per_batch(plan.experiment.machine.device, workload.anatomy)),
        "memory": memory_rate(plan),
        "disk": disk_speed(cache_folder()),
    }


def _phases(
    clock: Clock,
    workload: CostModel,
    plan: Plan,
    runs: Sequence[Any],
    results: dict[str, Any],
    rows: np.ndarray,
    rates: dict[str, float],
) -> Iterator[dict[str, Any]]:
    best = _best(rates)
    lengths, matrices = plan.experiment.tokens.lengths, workload.matrices
    for name in ("start-up", "tokenizing", "check", "forecast"):
        yield _phase(name, clock.seconds.get(name, 0.0), None)
    if len(rows):
        stop = workload.anatomy.count if workload.cached.head else max(workload.cached.cuts)
        real = matrices.forward(batch_totals(lengths[rows], 1), stop=stop)
        # Every token counts once: no padding, and no repeated examples that fill up batches.
        yield {
            **_phase("pass", clock.seconds["pass"], real / best),
            "operations": real,
            "share_real": real / workload.forward_pass_operations(rows),
            "rate": real / clock.seconds["pass"],
            "of_matrix_rate": real / clock.seconds["pass"] / rates["pass"],
        }
    training = evaluation = 0.0
    for tune in dict.fromkeys(run.recipe for run in runs):
        same = [run for run in runs if run.recipe == tune and run.digest in results]
        names = same[0].parameters(workload.anatomy)
        works = [(run, workload.batches(run)) for run in same]
        steps = sum(matrices.training(names, work.steps, workload.cut(run)) for run, work in works)
        moved = sum(work.steps.count for _, work in works) * OPTIMIZER_BYTES * matrices.updated_parameters(names)
        took = sum(results[run.digest].cost.train_seconds for run in same)
        training += took
        yield {
            **_phase(f"training, {same[0].recipe}", took, steps / best + moved / rates["memory"]),
            **{"operations": steps, "rate": steps / took, "of_matrix_rate": steps / took / rates["training"]},
        }
    for tune in dict.fromkeys(run.recipe for run in runs):
        same = [run for run in runs if run.recipe == tune and run.digest in results]
        took = sum(  # including test and the overhead of a run
            cost.run_seconds - cost.train_seconds for cost in (results[run.digest].cost for run in same)
        )
        work = sum(matrices.forward(workload.batches(run).scored, workload.cut(run) or 0) for run in same)
        evaluation += took
        yield {
            **_phase(f"evaluation, {same[0].recipe}", took, work / best),
            **{"operations": work, "rate": work / took, "of_matrix_rate": work / took / rates["evaluation"]},
        }
    yield _phase("between runs", clock.seconds.get("runs", 0.0) - training - evaluation, None)
    for name in ("saving", "report"):
        yield _phase(name, clock.seconds.get(name, 0.0), None)


def _phase(name: str, seconds: float, bound: float | None) -> dict[str, Any]:
    return {"phase": name, "seconds": seconds, "bound": bound, "over": None if not bound else seconds / bound}


def show(found: dict[str, Any]) -> None:
    rates, wall = found["rates"], found["wall"]
    for name in ("training", "evaluation", "pass"):
        print(f"matrix products in the shapes of {name}: {rates[name] / 1e9:.0f} GFLOP/s")
    print(f"memory {rates['memory'] / 1e9:.1f} GB/s, disk {rates['disk'] / 1e9:.2f} GB/s\n")
    print(f"{'phase':<22}{'seconds':>9}{'share':>8}{'bound':>9}{'measured / bound':>18}{'of matrix rate':>16}")
    for phase in found["phases"]:
        bound, over, rate = phase["bound"], phase["over"], phase.get("of_matrix_rate")
        print(
            f"{phase['phase']:<22}{phase['seconds']:>9.2f}{100 * phase['seconds'] / wall:>7.1f}%"
            f"{'' if bound is None else format(bound, '.2f'):>9}{'' if over is None else format(over, '.2f'):>18}"
            f"{'' if rate is None else format(100 * rate, '.0f') + ' %':>16}"
        )
    print(f"{'all':<22}{wall:>9.2f}{'':>8}{found['bound']:>9.2f}{wall / found['bound']:>18.2f}")
    usual = " and ".join(f"{rate / 1e9:.0f}" for rate in found["usual"])
    print(
        f"\nMatrix products of all processes at the same time, before and after: {usual} GFLOP/s. "
        f"With their mean, the bound is {found['bound_at_usual']:.2f} s, measured / bound {wall / found['bound_at_usual']:.2f}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the measurements")
    known, rest = parser.parse_known_args()
    names = [flag.removeprefix("--").replace("-", "_") for flag in rest[::2]]
    found = measure(dict(zip(names, rest[1::2], strict=True)))
    show(found)
    if known.json:
        known.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
