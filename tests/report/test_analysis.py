"""The whole analysis: its content, independence of the order of rows, and the published numbers of a paper."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic_core import to_jsonable_python

from frostline import FrostlineError
from frostline.report.answer.analysis import analyze, shares_of_head_only
from frostline.report.answer.run_groups import load_groups
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.cells import runs_at_best_learning_rate
from frostline.statistics.recipe import Recipe
from frostline.statistics.results_table import read_results
from frostline.statistics.run_result import RunResult
from frostline.studies.comparison import compare, gaps_of, means_of_same_models
from frostline.studies.protocol import load_protocol
from synthetic_results import RISING, noisy, synthetic_group
from tiny import write_csv

ELSA = Path(__file__).parents[3] / "shared" / "elsa"


def plain(analysis: Any) -> str:
    return json.dumps(to_jsonable_python(analysis), allow_nan=False)


def test_the_analysis_has_plain_values() -> None:
    groups = [synthetic_group(noisy(RISING), task=task, sizes=(50, 500)) for task in "ab"]
    found = analyze(groups, AnalysisSettings())
    plain(found)
    assert [(group.task, len(group.sizes)) for group in found.groups] == [("a", 2), ("b", 2)]
    assert found.groups[0].sizes[0].train_size == 500  # the largest size is first
    assert found.groups[0].sentence.startswith(("Tune", "With"))
    assert found.comparisons == 2 * 2 * 4
    assert shares_of_head_only(found.groups) == pytest.approx([0.6 / 0.9] * 2, abs=0.02)
    assert len(found.groups[0].rates) == 2 * 5


def test_one_learning_rate_is_multiplied_by_the_factor_of_a_way() -> None:
    def runs_of(name: str, best: float, rates: tuple[float, ...]) -> list[RunResult]:
        return [
            RunResult(
                **{"recipe": Recipe(name), "seed": seed, "run": f"{name}/{seed}/{rate}", "outcome": "ok"},
                learning_rate=rate,
                validation_best=0.9 if rate == best else 0.8,
            )
            for rate in rates
            for seed in (0, 1)
        ]

    every = [
        runs_of("full", 1e-4, (1e-5, 1e-4)),
        runs_of("lora-2", 1e-4, (1e-4, 1e-3)),
        runs_of("llrd", 1e-5, (1e-5, 1e-4)),
        runs_of("mine", 1e-5, (1e-5, 1e-4, 1e-3)),
        [replace(run, learning_rate=None) for run in runs_of("probe", 0.0, (0.0,))],
    ]
    cells = {runs[0].recipe: runs for runs in every}
    for one, expected in ((False, [1e-4, 1e-4, 1e-5, 1e-5, None]), (True, [1e-4, 1e-3, 1e-4, 1e-4, None])):
        found = runs_at_best_learning_rate(cells, 0.5, AnalysisSettings(one_learning_rate=one), {})
        assert [runs[0].learning_rate for runs in found.values()] == expected


def test_failures_are_counted_by_learning_rate_and_excluded_by_choice() -> None:
    def quality(k: int | str, seed: int, size: int | None) -> float | None:
        return None if (k, seed) == (2, 0) else 0.5 if (k, seed) == (2, 1) else noisy(RISING, 0.001)(k, seed, size)

    found = analyze([synthetic_group(quality)], AnalysisSettings()).groups[0]
    row = next(row for row in found.rates if row.recipe == "last 2")
    assert (row.failures.diverged, row.failures.at_chance, row.failures.failed, row.failures.runs) == (1, 1, 2, 5)
    assert row.mean == pytest.approx(0.85, abs=0.005) and row.mean_with_failures == pytest.approx(0.7625, abs=0.005)
    kept = analyze([synthetic_group(quality)], AnalysisSettings(failed_below=0.9)).groups[0].sizes[0].cells[2]
    assert kept.validation.n == 3 and kept.failures.failed == 2


def test_two_sources_with_the_same_model_and_task_are_refused(tmp_path: Path) -> None:
    rows = [{"k": "0", "seed": "0", "value": "0.5"}]
    for name in ("a", "b"):
        write_csv(tmp_path / f"{name}.csv", rows)
    assert [group.task for group in load_groups([tmp_path / "a.csv", tmp_path / "b.csv"])] == ["a", "b"]
    with pytest.raises(FrostlineError, match="is in two of the sources"):
        load_groups([tmp_path / "a.csv", tmp_path / "a.csv"])
    with pytest.raises(FrostlineError, match="contains no sweep"):
        load_groups([tmp_path])


needs_elsa = pytest.mark.skipif(not ELSA.is_dir(), reason="needs ../shared/elsa, which does not exist")


@needs_elsa
def test_the_numbers_of_lee_et_al() -> None:
    """Their results by seed and their options give their operating points, and their tables within half a point."""
    protocol = load_protocol("lee2019")
    rows = compare(protocol, analyze(read_results(ELSA / "frozen_layers_per_seed.csv"), protocol.as_published))
    points = {
        row.published.model: (row.published.value, row.measured)
        for row in rows
        if row.published.statistic == "operating_point"
    }
    assert points == {"bert-base": (3, 3), "bert-large": (6, 6), "roberta-base": (5, 5), "roberta-large": (7, 7)}
    means = means_of_same_models(rows)
    large = [row for row in means if abs(row.gap) > 0.003]
    assert len(means) == 75 and gaps_of(means) < (0.1, 0.6) and len(large) <= 5


@needs_elsa
def test_the_line_search_of_lee_et_al() -> None:
    protocol = load_protocol("lee2019")
    read = read_results(ELSA / "full_finetuning_lr_search.csv", constants={"tuned_layers": "full"})
    found = analyze(read, protocol.as_published)
    rows = compare(protocol, found)
    assert len(rows) == 32 and {row.published.statistic for row in rows} == {"mean_at_best_rate"}
    assert np.median([abs(row.gap) for row in rows]) < 0.002
    rates = next(group for group in found.groups if (group.model, group.task) == ("roberta-large", "QQP")).rates
    assert [row.failures.at_chance for row in rates] == [0, 5, 5, 5, 5]
