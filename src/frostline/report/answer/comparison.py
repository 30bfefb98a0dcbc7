"""The comparison of one k with full fine-tuning, in words."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from frostline.report.names import baseline, tuning
from frostline.statistics.choices import Choices
from frostline.statistics.evidence import Evidence

Cell = Mapping[str, Any]


@dataclass(frozen=True)
class Comparison:
    """What a k is compared by: its share of full fine-tuning's score or gain over the baseline, or the difference."""

    evidence: Evidence
    choices: Choices

    @property
    def metric(self) -> str:
        """The metric's name as the results have it."""
        return self.evidence.metric

    @property
    def baseline(self) -> str:
        """The name of the baseline that gains are measured from."""
        return baseline(self.evidence.metric)

    @property
    def of_gain(self) -> bool:
        """Whether shares are of the gain over the baseline instead of the score."""
        return self.choices.corrected and self.evidence.chance is not None

    def share(self, cell: Cell) -> Mapping[str, Any] | None:
        """The share of full fine-tuning that the sentence reports."""
        share: Mapping[str, Any] | None = cell["share_corrected" if self.of_gain else "share"]
        return share

    @property
    def threshold(self) -> str:
        """The value that an interval must lie above to reach the target."""
        return f"{-self.choices.margin:g}" if self.choices.by_margin else f"{100 * self.choices.target:g} %"

    def nothing_smaller(self, *, tried: bool) -> str:
        """That no smaller k reaches the target; ``tried``: only among the choices that were tried."""
        nothing = "nothing smaller that was tried" if tried else "nothing smaller"
        if self.choices.by_margin:
            return f"{nothing} comes within {self.choices.margin:g} of it"
        return f"{nothing} reaches {self.threshold} of its {self._whole}"

    def with_full(self, cell: Cell, full: Cell) -> str:
        """The score of a cell beside that of full fine-tuning, and the share or difference with its interval."""
        ours, full_mean = cell["difference"]["means"]  # of the runs that are compared
        one_seed = cell["validation"]["n"] == 1 and full_mean != full["validation"]["mean"]
        scores = f"{self.metric} {number(ours)} against {number(full_mean)} with {tuning(full['trainable'])}"
        if one_seed:
            scores += " on the one seed that both have"
        if self.choices.by_margin:
            difference = cell["difference"]
            interval = confidence_interval(difference, "{:+.3f}".format)
            return f"{scores}, a difference of {difference['estimate']:+.3f}{interval}"
        share = self.share(cell)
        assert share is not None
        return f"{scores}, {percent(share['estimate'])} % of the {self._whole}{confidence_interval(share, percent)}"

    @property
    def _whole(self) -> str:
        return f"gain over the {self.baseline}" if self.of_gain else "score"


def number(value: float) -> str:
    """A score in a sentence."""
    return f"{value:.3f}"


def percent(share: float | None) -> str:
    """A share in percent, without the sign; a question mark if it is undefined."""
    return "?" if share is None else f"{100 * share:.1f}"


def factor(value: float) -> str:
    """How many times cheaper, with two significant digits."""
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"


def confidence_interval(share: Mapping[str, Any], text: Callable[[Any], str]) -> str:
    """The interval in parentheses, empty if it is unknown; an unbounded upper side is a question mark."""
    low, high = share["low"], share["high"]
    if low is None:
        return ""
    return f" (95 % confidence interval {text(low)} to {'?' if high is None else text(high)})"
