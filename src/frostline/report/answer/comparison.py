"""The comparison of one k with full fine-tuning as text."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from frostline.report import formatting, names
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Cell
from frostline.statistics.evidence import Evidence


@dataclass(frozen=True)
class Comparison:
    """The quantity that k is compared by: its share of full fine-tuning's score or gain, or the difference of their scores."""

    evidence: Evidence
    settings: AnalysisSettings

    @property
    def metric(self) -> str:
        """The printed name of the metric."""
        return names.metric(self.evidence.metric)

    @property
    def baseline(self) -> str:
        """The name of the baseline that gains are measured from."""
        return names.baseline(self.evidence.metric)

    @property
    def of_gain(self) -> bool:
        """Whether shares are of the gain over the baseline instead of the score."""
        return self.settings.corrected and self.evidence.chance is not None

    def share(self, cell: Cell) -> Mapping[str, Any] | None:
        """The share of full fine-tuning that the sentence reports; None if it is undefined."""
        share: Mapping[str, Any] | None = cell["share_corrected" if self.of_gain else "share"]
        return share

    @property
    def threshold(self) -> str:
        """The value that the whole interval must lie above."""
        return f"−{self.settings.margin:g}" if self.settings.by_margin else f"{100 * self.settings.target:g} %"

    def reached(self, full: str) -> str:
        """What reaching the target means, after ``to``; ``full`` is the name of the reference."""
        if self.settings.by_margin:
            return f"come within {self.settings.margin:g} of {full}"
        possessive = f"{full}'" if full.endswith("s") else f"{full}'s"
        return f"reach {self.threshold} of {possessive} {self._whole}"

    def with_full(self, cell: Cell, full: Cell) -> str:
        """The scores of a cell and of full fine-tuning, and the share or difference with its interval."""
        ours, full_mean = cell["difference"]["means"]  # of the runs that are compared
        one_seed = cell["validation"]["n"] == 1 and full_mean != full["validation"]["mean"]
        scores = f"{self.metric} {formatting.score(ours)} against {formatting.score(full_mean)}"
        scores += f" with {names.tuning(full['recipe'])}"
        if one_seed:
            scores += " on the one seed that both have"
        if self.settings.by_margin:
            difference = cell["difference"]
            interval = _interval(difference, formatting.difference)
            return f"{scores}, a difference of {formatting.difference(difference['estimate'])}{interval}"
        share = self.share(cell)
        assert share is not None
        interval = _interval(share, formatting.percent_number)
        return f"{scores}, {formatting.percent_number(share['estimate'])} % of the {self._whole}{interval}"

    @property
    def _whole(self) -> str:
        return f"gain over the {self.baseline}" if self.of_gain else "score"


def _interval(estimate: Mapping[str, Any], show: Callable[[float], str]) -> str:
    """The confidence interval of an estimate in parentheses; empty if it is unknown."""
    low, high = estimate["low"], estimate["high"]
    if low is None:
        return ""
    return f" (95 % confidence interval {show(low)} to {formatting.NO_BOUND if high is None else show(high)})"
