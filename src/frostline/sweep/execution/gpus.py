"""One process for each GPU of this machine: this one trains on the first GPU, a ``frostline work`` on each other one."""

import os
import subprocess
import sys
from threading import Thread
from typing import Self

from frostline.sweep.execution.stopping import LONGEST_STEP
from frostline.sweep.prepare import Prepared
from frostline.sweep.progress import Progress
from frostline.sweep.slurm import TERMINATED

WORK = (sys.executable, "-m", "frostline", "work")
STOPS_WITHIN = LONGEST_STEP + 10  # seconds to finish a step and leave a checkpoint
EXPECTED = (0, 1, TERMINATED)  # exit codes: the runs have ended, some of them in an error; it was stopped


class OtherGpus:
    """The processes on all GPUs but the first. They share the runs in the folder of a sweep or search with this process.

    None is left when its context closes: it waits until they end, and stops them if it is left with an error.
    """

    def __init__(self, prepared: Prepared, progress: Progress, *options: str) -> None:
        """Start nothing yet. ``options`` are those of ``frostline work``."""
        self.progress = progress
        trust = ["--trust-remote-code"] if prepared.spec.trust_remote_code else []
        self._command = [*WORK, str(prepared.store.out), *trust, *options]
        self._free = prepared.context.machine.gpus[1 : prepared.plan.device.processes]
        self._started: list[tuple[subprocess.Popen[bytes], Thread]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *more: object) -> None:
        try:
            if error is None:
                for _, watching in self._started:
                    watching.join()
        finally:
            self._stop()

    def start(self, runs: int) -> None:
        """Start processes until as many train as there are GPUs or runs. The sweep must be in its folder."""
        while self._free and len(self._started) + 1 < runs:
            gpu = self._free.pop(0)
            process = subprocess.Popen(
                self._command,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            watching = Thread(target=self._watch, args=(gpu, process), daemon=True)
            self._started.append((process, watching))
            watching.start()

    def _stop(self) -> None:
        """End the processes that have not ended."""
        for process, _ in self._started:
            process.terminate()
        for process, watching in self._started:
            watching.join(STOPS_WITHIN)
            process.kill()

    def _watch(self, gpu: str, process: "subprocess.Popen[bytes]") -> None:
        """Wait for a process, and say why if it ends before its work is done."""
        said = process.communicate()[1].decode(errors="replace").strip()
        if process.returncode not in EXPECTED or "Traceback (most recent call last)" in said:
            reason = said.splitlines()[-1] if said else f"exit code {process.returncode}"
            self.progress.note(f"The process on GPU {gpu} has ended ({reason}): the others train its runs.")
