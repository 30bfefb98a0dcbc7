"""Evidence from the predictions of runs on a labelled split: scores with the uncertainty of seeds and of rows.

With cross-validation, a run is scored on the rows of one fold, and some folds are easier than others. A choice whose only run had
an easy fold would look too good. A model that is scored on all rows, such as a probe, tells how easy a fold is. So the score of a
run is moved by the difference between that model's scores on all rows and on the fold, times the slope of a regression of the
one on the other (the regression estimator of double sampling; Cochran 1977, Sampling Techniques, chapter 12). The slope comes
from the same jackknife over rows as the intervals (``inference.py``). A model at chance does not find rows hard that a good one
finds hard: its slope is near zero.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from frostline import FrostlineError
from frostline.data.examples import Examples
from frostline.data.kinds import MULTI_LABEL, REGRESSION, TOKENS
from frostline.statistics.evidence import Scores, by_seed, same_seeds, summary_with_interval
from frostline.statistics.inference import (
    QUANTILE,
    Pair,
    Ratio,
    Summary,
    corrected_quantile,
    is_above,
    mean_interval,
    number_of_analyses,
    pair,
    row_groups,
    score_interval,
    shared_row_covariance,
    squares_of_rows,
    unpaired,
)
from frostline.statistics.metrics import METRICS, chance, check_metric, defined, predict, scored_rows, tally
from frostline.statistics.posterior import Observed
from frostline.statistics.run_result import WORDS, Scored

LogitsOf = Callable[[str], NDArray[Any]]  # name of a run -> [rows, C]; NaN in rows that the run is not scored on


@dataclass(frozen=True)
class Labelled:
    """The targets of a split, ``[rows]``, and the metric that scores predictions for them.

    For tags, targets are ``[rows, W]`` and logits ``[rows, W, C]``; for label sets, both are ``[rows, C]``.

    Attributes:
        targets: The targets.
        task_type: The type of the task.
        labels: The names of the classes, labels or tags.
        metric: The name of the metric.
        alike: A number for each row, ``[rows]``: rows whose texts read alike have the same one. None: all differ.
        together: The same for rows that are held out and left out together: those that read alike, and those of a group.
    """

    targets: NDArray[Any]
    task_type: str
    labels: tuple[str, ...]
    metric: str
    alike: NDArray[np.int64] | None = None
    together: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, examples: Examples, task_type: str, labels: tuple[str, ...], metric: str) -> Self:
        """The targets of these examples, which of their texts read alike, and which rows belong together."""
        return cls(examples.targets, task_type, labels, metric, examples.first_alike(), examples.together())

    @cached_property
    def texts(self) -> NDArray[np.int64]:
        """``alike``, or a number of its own for each row."""
        return np.arange(len(self.targets)) if self.alike is None else self.alike

    @cached_property
    def clusters(self) -> NDArray[np.int64]:
        """``together``, or a number of its own for each text."""
        return self.texts if self.together is None else self.together

    def different_texts(self, rows: NDArray[np.bool_]) -> int:
        """The number of different texts in these rows."""
        return len(np.unique(self.texts[rows]))

    def __post_init__(self) -> None:
        """Refuse targets and a metric that the task does not have. They may come from the folder of somebody else.

        Raises:
            FrostlineError: They do not belong together.
        """
        check_metric(self.metric, self.task_type, len(self.labels), self.labels)
        several = self.task_type in (MULTI_LABEL, TOKENS)
        kinds, most = {MULTI_LABEL: ("biu", 1), REGRESSION: ("iuf", np.inf)}.get(
            self.task_type, ("iu", len(self.labels) - 1)
        )
        fits = self.targets.ndim == 1 + several and self.targets.dtype.kind in kinds
        if self.task_type == MULTI_LABEL:
            fits = fits and self.targets.shape[1] == len(self.labels)
        if not fits or not (np.isfinite(self.targets) & (self.targets <= most)).all():
            raise FrostlineError(
                f"The {len(self.targets):,} examples have targets that a task with {len(self.labels)} labels cannot have: run "
                "the sweep's command again to write them."
            )

    def score(self, logits: NDArray[Any], rows: NDArray[np.int64]) -> float:
        """The metric on these rows of ``[rows, C]``; NaN if there are none."""
        return self.scores(logits, [rows])[0]

    def scores(self, logits: NDArray[Any], several: Sequence[NDArray[np.int64]]) -> list[float]:
        """The metric on each of ``several`` selections of rows."""
        counted = tally(self.targets, predict(logits, self.task_type), self.task_type, self.labels)
        metric = METRICS[self.metric]
        return [metric.score(*(x[rows] for x in counted)) if len(rows) else float("nan") for rows in several]

    @property
    def chance(self) -> float:
        """The score of the best constant prediction."""
        return self.chance_on(np.ones(len(self.targets), bool))

    def chance_on(self, rows: NDArray[np.bool_]) -> float:
        """The score of the best constant prediction for these rows."""
        return chance(self.targets[rows], self.metric, len(self.labels), self.labels)


class RunPredictions:
    """Predictions of runs. Intervals account for the sample of validation rows, too.

    It has the methods of :class:`frostline.statistics.evidence.Scores`. Its ``learned`` also tests the best of ``among`` runs.

    Scores on all rows and without each group of rows are computed once per run. Runs are paired by seed and row if both cells
    have a seed in common. Otherwise all runs of both cells are compared without pairing.
    """

    def __init__(self, split: Labelled, logits: LogitsOf, interim_analyses: int = 1) -> None:
        """Every interval is corrected for ``interim_analyses``, the largest number of analyses before more runs are trained."""
        self.split, self.unchecked_logits = split, logits
        self.quantile = corrected_quantile(interim_analyses)
        self.metric, self.chance, self.rows = split.metric, split.chance, len(split.targets)
        self.groups = row_groups(split.clusters)
        self.scores: dict[str, NDArray[np.float64]] = {}
        self.scored: dict[str, NDArray[np.bool_]] = {}
        self.on_folds: dict[tuple[str, bytes], NDArray[np.float64]] = {}

    def logits(self, run: str) -> NDArray[Any]:
        """The logits of a run on all rows.

        Raises:
            FrostlineError: They are of other rows or labels: they may come from the folder of somebody else.
        """
        found, split = self.unchecked_logits(run), self.split
        shape = (self.rows, *found.shape[1:2] * (split.task_type == TOKENS), max(1, len(split.labels)))
        if found.shape != shape:
            raise FrostlineError(
                f"The run {run} has predictions of the shape {found.shape} instead of {shape}: remove runs/{run}, and the "
                "sweep's command trains it again."
            )
        return found

    def __getitem__(self, run: str) -> NDArray[np.float64]:
        """Scores of a run ``[1 + groups]``: on all rows, then without each group of rows."""
        if run not in self.scores:
            logits = self.logits(run)
            self.scored[run] = scored_rows(logits)
            self.scores[run] = self._scores_on(logits, self.scored[run])
        return self.scores[run]

    def _scores_on(self, logits: NDArray[Any], rows: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Scores ``[1 + groups]`` on these rows, then on them without each group."""
        every = [np.arange(len(rows)), *self.groups]
        return np.array(self.split.scores(logits, [some[rows[some]] for some in every]))

    def pair(self, cell: Sequence[Scored], full: Sequence[Scored]) -> Pair | None:
        if not cell or not full:
            return None
        shared = same_seeds(cell, full)
        if shared:
            both = np.array([[self[ours.run], self[theirs.run]] for ours, theirs in shared])  # [seeds, 2, 1 + groups]
            rows = self._scored_by(ours.run for ours, _ in shared)
            found = pair(both[:, :, 0], both[:, :, 1:].transpose(2, 0, 1), self._max_row_effect(rows), self.quantile)
        else:
            rows = min((self._scored_by(run.run for run in runs) for runs in (cell, full)), key=np.sum)
            ours, theirs = (np.array([self[run.run] for run in some]) for some in (cell, full))  # [n, 1 + groups]
            means = np.stack([ours[:, 1:].mean(0), theirs[:, 1:].mean(0)], 1)
            found = unpaired(ours[:, 0], theirs[:, 0], means, self._max_row_effect(rows), self.quantile)
        return replace(found, covered=float(rows.mean()))

    def learned(self, runs: Sequence[Scored], among: int | None = None) -> bool | None:
        if not runs:
            return None
        both = self.pair(runs, runs)
        analyses = 2 * number_of_analyses(self.quantile)  # one half of the 5 % for the mean, the other for single runs
        if both is not None and is_above(replace(both, quantile=corrected_quantile(analyses)), self._baseline(runs)):
            return True
        quantile = corrected_quantile(analyses * (among or len(runs)))
        lows = ((run, self.alone(run.run, quantile).low) for run in runs)
        return any(low is not None and low > self._baseline([run]) for run, low in lows)

    def summary(self, runs: Sequence[Scored]) -> Summary:
        scores = np.array([self[run.run] for run in runs]).reshape(len(runs), 1 + len(self.groups))
        if len(runs) < 2:
            return summary_with_interval(scores[:, 0], None, self.metric)
        max_row_effect = self._max_row_effect(self._scored_by(run.run for run in runs))
        interval = mean_interval(scores[:, 0], scores[:, 1:].T, max_row_effect, self.quantile)
        return summary_with_interval(scores[:, 0], interval, self.metric)

    def observed(self, cells: Sequence[Sequence[Scored]], depth: Sequence[float | None]) -> Observed:
        comparable = self._comparable(cells)
        scores = [by_seed(runs, [float(comparable[run.run][0]) for run in runs]) for runs in cells]
        some = [runs for runs in cells if runs]
        left_out = [by_seed(runs, [comparable[run.run][1:] for run in runs]) for runs in some]
        max_row_effect = np.array([self._max_row_effect(self._scored_by(run.run for run in runs)) for runs in some])
        folds = any(not self._rows_scored(run.run).all() for runs in some for run in runs)
        of_rows = None
        if all(np.isfinite(scores).all() for runs in left_out for scores in runs.values()):
            known = shared_row_covariance(left_out, max_row_effect, own_rows=folds)
            of_rows = squares_of_rows(left_out) if folds else None
        else:  # without some rows a score is undefined
            known = np.diag(max_row_effect * self._range / 4)
        seen = np.flatnonzero([len(runs) > 0 for runs in cells])
        covariance = np.full((len(cells),) * 2, np.nan)
        covariance[np.ix_(seen, seen)] = known
        measured = [float(np.mean([self[run.run][0] for run in runs])) for runs in some]
        return Observed(scores, covariance, depth, measured=measured, squares_of_rows=of_rows)

    def _comparable(self, cells: Sequence[Sequence[Scored]]) -> dict[str, NDArray[np.float64]]:
        """Scores of the runs as in ``self[run]``: of those on a fold, what they should be on all rows.

        A TF-IDF model does not help: what is hard for it is hardly harder for a pretrained model.
        """
        names = [run.run for runs in cells for run in runs]
        on_all_rows = [name for name in names if self._rows_scored(name).all()]
        helpful = [name for name in on_all_rows if name != WORDS]
        return {
            name: self[name] - (0.0 if name in on_all_rows else self._effect_of_fold(name, helpful)) for name in names
        }

    def _effect_of_fold(self, run: str, on_all_rows: Sequence[str]) -> NDArray[np.float64]:
        """How much easier its fold is for a run than all rows are, ``[1 + groups]``: by the model whose scores are most alike."""
        scores, rows = self[run], self._rows_scored(run)
        of_run, most, effect = scores[1:] - scores[1:].mean(), 0.0, np.zeros(len(scores))
        for name in on_all_rows:
            on_fold = self._on_fold(name, rows)
            of_fold = on_fold[1:] - on_fold[1:].mean()
            squares, product = float(of_fold @ of_fold), float(of_fold @ of_run)
            if product > 0 and product**2 > most * squares:  # false where a score is undefined
                most, effect = product**2 / squares, product / squares * (on_fold - self[name])
        return effect

    def _on_fold(self, run: str, rows: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Scores ``[1 + groups]`` of a run that is scored on all rows, on those of a fold."""
        key = run, rows.tobytes()
        if key not in self.on_folds:
            self.on_folds[key] = self._scores_on(self.logits(run), rows)
        return self.on_folds[key]

    def alone(self, run: str, quantile: float = QUANTILE) -> Ratio:
        """The score of one run, and its interval for the sample of rows. None: undefined, or unbounded on that side."""
        score, *left_out = self[run]
        low, high = score_interval(score, np.array(left_out), self._max_row_effect(self._rows_scored(run)), quantile)
        if not np.isfinite(score):
            return Ratio(None, None, None)
        low, high = METRICS[self.metric].clipped(float(score), low, high)
        return Ratio(float(score), defined(low), defined(high))

    def rows_of(self, runs: Iterable[str]) -> int:
        return int(self._scored_by(runs).sum())

    def texts_of(self, runs: Iterable[str]) -> int:
        return self.split.different_texts(self._scored_by(runs))

    def _scored_by(self, runs: Iterable[str]) -> NDArray[np.bool_]:
        """Whether at least one of the runs is scored on each row, ``[rows]``."""
        return np.asarray(np.any([np.zeros(self.rows, np.bool_), *(self._rows_scored(run) for run in runs)], axis=0))

    def _rows_scored(self, run: str) -> NDArray[np.bool_]:
        """Whether the run is scored on each row, ``[rows]``."""
        if run not in self.scored:
            self[run]  # a run whose rows are asked for is scored, too, and its file is read once
        return self.scored[run]

    def _baseline(self, runs: Sequence[Scored]) -> float:
        """The score of the best constant prediction on the rows that these runs are scored on."""
        return self.split.chance_on(self._scored_by(run.run for run in runs))

    @property
    def _range(self) -> float:
        """The width of the metric's scale."""
        return 1 - METRICS[self.metric].lowest

    def _max_row_effect(self, rows: NDArray[np.bool_]) -> float:
        """How far one text, in one row or several, can move a score on these rows."""
        return self._range / max(self.split.different_texts(rows), 1)


Evidence = Scores | RunPredictions  # validation scores of runs and their uncertainty


def expand_to_all_rows(logits: NDArray[Any], scored: NDArray[np.bool_]) -> NDArray[Any]:
    """Logits of all rows ``[rows, C]``, from those of the scored rows ``[scored rows, C]``. The other rows are NaN."""
    if logits.shape[:1] != (scored.sum(),):
        raise FrostlineError(
            f"There are predictions of the shape {logits.shape} for {scored.sum():,} examples of a fold: start again in "
            "another folder."
        )
    every = np.full((len(scored), *logits.shape[1:]), np.nan, logits.dtype)
    every[scored] = logits
    return every
