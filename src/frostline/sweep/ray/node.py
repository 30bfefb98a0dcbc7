"""What a task does on a node: it trains runs in a folder of its own, and returns the files that it would have published."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from frostline import FrostlineError
from frostline.data.load import Data
from frostline.sweep.execution.best_weights import BestWeights, Rank
from frostline.sweep.execution.cuts import check_cuts
from frostline.sweep.execution.execute import execute
from frostline.sweep.plan import read_settings
from frostline.sweep.prepare import Prepared, prepare
from frostline.sweep.progress import Progress
from frostline.sweep.results.store import Store
from frostline.sweep.toml import TRUST


@dataclass(frozen=True)
class Work:
    """What a node needs to train runs of a sweep, besides the model. Two are equal if they have one key."""

    key: str
    written: dict[str, object] = field(compare=False)  # the contents of sweep.toml
    data: Data = field(compare=False)
    threads: int = field(compare=False)
    with_gpu: bool = field(compare=False)
    trust_remote_code: bool = field(compare=False)  # as the user of the driver says
    probes: bool = field(compare=False)  # whether a search reads the states after every layer, as in `prepare`


@dataclass
class Trained:
    """What a task returns.

    Attributes:
        results: The files of each result by name, by the digest of its run.
        failures: Why a run ended in an error, by its digest.
        weights: The score and the trained parameters of each run that is the best one of its k so far, by its digest.
        notes: Sentences that the user should read.
    """

    results: dict[str, dict[str, bytes]]
    failures: dict[str, dict[str, object]]
    weights: dict[str, tuple[float, bytes]]
    notes: list[str]


class Notes(Progress):
    """Collects what the user should read, without the lines of the results."""

    def __init__(self) -> None:
        super().__init__()
        self.sentences: list[str] = []

    def note(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def result(self, facts: object, recipe: str) -> None:
        """The driver shows it when it publishes it."""


def train(work: Work, digests: Sequence[str], best: Mapping[str, Rank] | None, beat: Path) -> Trained:
    """Train these runs of a sweep.

    Args:
        work: The sweep.
        digests: The runs.
        best: The ranks of the best runs so far, by k. Trained parameters are returned of better ones only; None returns none.
        beat: The beat of the driver. If this node sees it, the folder of the sweep is shared, and keeps the checkpoints.

    Raises:
        FrostlineError: The node cannot train them; the message names the node.
    """
    torch.set_num_threads(work.threads)
    try:
        shared = beat.parent.parent if beat.exists() else None
        return _train(replace(_prepared(work), checkpoints_in=shared), digests, best)
    except FrostlineError as error:
        raise FrostlineError(f"On the node {platform.node()}: {error}") from error


def _train(prepared: Prepared, digests: Sequence[str], best: Mapping[str, Rank] | None) -> Trained:
    known, notes = {run.digest: run for run in prepared.plan.runs}, Notes()
    if unknown := set(digests) - known.keys():
        raise FrostlineError(
            f"{len(unknown)} of the runs are others here, as with another version of frostline: install the same on all nodes."
        )
    with TemporaryDirectory(prefix="frostline-") as folder:
        store, weights = Store(Path(folder)), BestWeights.in_folder(Path(folder))
        runs = [known[digest] for digest in digests]
        execute(replace(prepared, store=store), runs, notes, weights=weights if best is not None else None)
        results = {digest: store.files(digest) for digest in store.done()}
        return Trained(results, store.failures(), weights.better_than(best or {}), notes.sentences)


@lru_cache(maxsize=1)
def _prepared(work: Work) -> Prepared:
    """The sweep with its model. A process of Ray does several tasks, one after the other."""
    with TemporaryDirectory(prefix="frostline-") as folder:
        out = Path(folder)
        Store(out).write_spec(work.written)
        own = {"out": folder, "workers": 1, TRUST: work.trust_remote_code}
        own |= {} if work.with_gpu else {"device": "cpu"}
        spec = read_settings(work.written, out).model_copy(update=own)
        prepared = prepare(spec, {}, Progress(), data=work.data, probes=work.probes)
        check_cuts(prepared)  # once, and not for every task
        return prepared
