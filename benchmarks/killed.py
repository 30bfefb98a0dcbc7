"""Is a sweep that was killed with SIGKILL many times bitwise identical to an uninterrupted one?

    python benchmarks/killed.py --every 20 -- --model FOLDER --train FILE --tune 0,1,2,all --train-size 300

Everything after the two dashes goes to ``frostline sweep``. Both sweeps start with an empty cache of hidden states.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from frostline.sweep.results.tables import COST


def sweep(arguments: list[str], folder: Path, kill_after: float | None) -> tuple[bool, float]:
    """Run the command; returns whether it ended by itself, and its seconds."""
    environment = {**os.environ, "HF_ASSETS_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", "frostline", "sweep", *arguments, "--out", str(folder / "out")]
    start = time.monotonic()
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            code = process.wait(kill_after)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            return False, time.monotonic() - start
    assert code == 0, f"the sweep ended with {code}"
    return True, time.monotonic() - start


def table(folder: Path) -> pd.DataFrame:
    """The results without times and memory, which differ between runs."""
    return pd.read_csv(folder / "out" / "results.csv", keep_default_na=False, dtype=str).drop(columns=list(COST))


def main() -> None:
    cut = sys.argv.index("--")
    every, arguments = float(sys.argv[sys.argv.index("--every") + 1]), sys.argv[cut + 1 :]
    with tempfile.TemporaryDirectory() as uninterrupted, tempfile.TemporaryDirectory() as killed:
        _, seconds = sweep(arguments, Path(uninterrupted), None)
        kills, ended = 0, False
        while not ended:
            # Each attempt is longer than the last one, so that even a long run can finish.
            ended, _ = sweep(arguments, Path(killed), every * (1 + 0.3 * kills))
            kills += not ended
        same = table(Path(uninterrupted)).equals(table(Path(killed)))
        scores = [(Path(f) / "out" / "scores.csv").read_bytes() for f in (uninterrupted, killed)]
        print(f"{len(table(Path(uninterrupted)))} runs, {seconds:.0f} s without kills; killed {kills} times: ", end="")
        print(
            f"results.csv {'equal' if same else 'DIFFERENT'}, scores.csv {'equal' if len(set(scores)) == 1 else 'DIFFERENT'}"
        )
        sys.exit(not (same and len(set(scores)) == 1))


if __name__ == "__main__":
    main()
