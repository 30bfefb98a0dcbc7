"""``frostline.work``: train runs of a sweep that is planned or under way in a folder, together with other processes."""

from collections.abc import Collection
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

from frostline import FrostlineError
from frostline.data.load import Data
from frostline.fast.switch import objects_frozen
from frostline.sweeps.execution.execute import execute
from frostline.sweeps.execution.queue import POLL
from frostline.sweeps.execution.workers import OtherGpus
from frostline.sweeps.plan import Plan
from frostline.sweeps.prepare import prepare
from frostline.sweeps.progress import Progress, displayed
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.leases import SILENT_AFTER
from frostline.sweeps.results.search_record import read_search
from frostline.sweeps.results.store import Store
from frostline.sweeps.results.tensor_files import BestWeights
from frostline.sweeps.settings import retry_kinds
from frostline.sweeps.toml import TRUST


def work(
    out: str | Path,
    *,
    wait: bool = False,
    retry: Collection[str] = (),
    workers: int | None = None,
    silent_after: float = SILENT_AFTER,
    trust_remote_code: bool = False,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Train runs of the sweep or search in a folder that no other process trains.

    Start it as often as you like, on any machine that can open the folder, the model and the data.

    Args:
        out: The folder of the sweep or search.
        wait: Whether to wait until all runs have ended, and to take over those of processes that die. By default, this call
            ends when there is no run left that it could take.
        retry: Which runs that have ended are trained again: ``failed``, ``diverged``. What is known of them is kept in
            ``retried/``. By default, none are.
        workers: Runs trained at the same time; by default as in the sweep.
        silent_after: Seconds after which this process takes over the runs of another one, if it does not hear from it.
        trust_remote_code: Whether to run code that comes with the model, if the sweep needs it. The folder does not decide that.
        progress: Shows progress; by default on the terminal.

    Returns:
        The number of runs that are ``done``, ``failed`` and ``pending``.

    Raises:
        FrostlineError: The folder holds no sweep, or its model or data cannot be read here. Or it needs code that is not trusted.
    """
    out, retry = Path(out), retry_kinds(retry)
    with displayed(progress) as shown:
        store = Store(out)
        for damage in store.check():
            shown.note(damage)
        folder = Folder(out)
        folder.require_trust(trusted=trust_remote_code)
        store.retry({run.digest for run in folder.runs}, retry)
        _train(out, shown, wait=wait, workers=workers, silent_after=silent_after, trusted=trust_remote_code)
        return Folder(out).counts()


def _train(out: Path, shown: Progress, *, wait: bool, workers: int | None, silent_after: float, trusted: bool) -> None:
    """Train what no other process trains, here and on the other GPUs, until there is nothing to do or to wait for."""
    train = partial(execute, wait=wait, silent_after=silent_after, shared=True)
    options = [f"--silent-after={silent_after}", *(["--wait"] if wait else [])]
    data: Data | None = None
    others: OtherGpus | None = None
    with ExitStack() as opened:
        while True:
            folder = Folder(out)
            digests = {run.digest for run in folder.runs}
            if pending := folder.counts()["pending"]:
                plan, weights = _prepare(folder, workers, shown, data, trusted=trusted), BestWeights(out)
                data = plan.data  # the next step of a search needs the same
                others = others or opened.enter_context(OtherGpus(plan, shown, *options))
                others.start(pending)
                with objects_frozen():
                    train(plan, folder.runs, shown, weights=weights)
            while digests >= {run.digest for run in Folder(out).runs}:  # until a command adds more
                search = read_search(out)
                if not wait or search is None or search.over:
                    return
                sleep(POLL)


def _prepare(folder: Folder, workers: int | None, progress: Progress, data: Data | None, *, trusted: bool) -> Plan:
    """The sweep in a folder, prepared from nothing but the folder, the model and the data."""
    if splits := folder.written.origin.in_memory:
        raise FrostlineError(
            f"The {splits[0]} table of {folder.out} was given in Python and is in no file: start the program that has it once "
            "more instead. Both then share the runs."
        )
    own_code = folder.written.own_code and trusted
    changes: dict[str, Any] = {"out": str(folder.out), TRUST: own_code, **folder.moved_paths()}
    changes |= {} if workers is None else {"workers": workers}
    searched = folder.search is not None and not folder.search.over
    # A search also caches what its probes read. Without it, the states of the last layer would differ in the last bits.
    return prepare(folder.spec.model_copy(update=changes), {}, progress, probes=searched, data=data)
