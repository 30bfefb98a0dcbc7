"""The hidden states of a large data set: planned and used disk space, and the memory of the forward pass.

python benchmarks/large_cache.py --model FOLDER --train FILE --tune 2
"""

import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import psutil
import torch
from measuring import settings_of

import frostline
from frostline.frozen.hidden_states import load_or_compute
from frostline.model.device import anonymous_memory, sampled_peak
from frostline.report.plain_text import size_of
from frostline.sweeps.plan import recipe_of
from frostline.sweeps.progress import LineProgress


def main() -> None:
    flags: dict[str, Any] = {**settings_of(sys.argv[1:])}
    with tempfile.TemporaryDirectory(dir=flags.pop("scratch", None)) as scratch:
        sweep = dict(seeds=1, test="none", out=Path(scratch) / "out", **flags)
        process = psutil.Process()
        start = perf_counter()
        with sampled_peak(lambda: anonymous_memory(process)) as peak_before:
            plan = frostline.plan(timed=False, progress=LineProgress(), **sweep)
        loaded = perf_counter() - start
        experiment = plan.experiment
        print(
            f"{len(plan.data.train) + len(plan.data.validation):,} rows read, tokenized and planned in {loaded:.0f} s"
        )
        print(f"plan: {plan.states.rows:,} distinct texts, {plan.states.tokens:,} tokens, {size_of(plan.states.bytes)}")
        before, passed = anonymous_memory(process), 0.0

        def progress(rows: float) -> None:
            nonlocal passed
            passed += rows
            if passed // 10_000 > (passed - rows) // 10_000:
                print(f"{passed:,.0f} rows, {perf_counter() - start:.0f} s", flush=True)

        forward_pass = experiment.forward_pass(plan.cached)
        with sampled_peak(lambda: anonymous_memory(process)) as peak:
            start = perf_counter()
            states = load_or_compute(
                forward_pass,
                experiment.tokens,
                np.arange(len(experiment.tokens)),
                recipe_of(experiment.pretrained, experiment.machine, forward_pass),
                folder=Path(scratch) / "cache",
                progress=progress,
            )
            seconds = perf_counter() - start
            for rows in np.array_split(np.random.default_rng(0).permutation(len(experiment.tokens)), 1000)[:200]:
                states.tokens(plan.cached.cuts[0], rows[:16])
        taken = sum(p.stat().st_size for p in (Path(scratch) / "cache").rglob("*") if p.is_file())
        facts = {
            "rows": plan.states.rows,
            "tokens": plan.states.tokens,
            "planned_bytes": plan.states.bytes,
            "taken_bytes": taken,
            "taken_over_planned": taken / plan.states.bytes,
            "seconds": seconds,
            "threads": torch.get_num_threads(),
            "anonymous_peak_reading": peak_before.bytes,
            "anonymous_before_pass": before,
            "anonymous_peak_pass": peak.bytes,
        }
        print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
