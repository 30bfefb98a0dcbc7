"""The counted work of runs is that of the runs themselves."""

from pathlib import Path

import pytest

from frostline.frozen.forward_pass import StateSelection
from frostline.sweep.work.workload import Workload
from frostline.training.recipes import Way
from frostline.training.train import run
from training.runs import context_of, spec_of, with_states


@pytest.mark.parametrize(("order", "evaluations"), [("at-once", 2), ("gradual", 5), ("head-first", 2)])
def test_evaluations_of_all_phases_are_counted(order: str, evaluations: int, tiny_bert: Path, tmp_path: Path) -> None:
    """Five phases in two epochs: each one ends with an evaluation."""
    context = with_states(context_of(tiny_bert), tmp_path)
    spec = spec_of("w", way=Way(order=order))
    facts = run(spec, context).facts
    measured = {row["epoch"] for row in facts["scores"] if row["split"] == "validation"}
    _, counted = Workload(context, StateSelection((), head=False))._steps(spec, context.tokens.lengths[:32])
    assert counted == len(measured) == evaluations
    # the first phases, and the fit of a head, start from cached states, although the last training tunes everything
    assert facts["provenance"]["cut"] is None
    assert facts["provenance"]["from_cache"] == (order != "at-once")
    assert (facts["cost"]["forward_pass_seconds"] > 0) == (order != "at-once")
