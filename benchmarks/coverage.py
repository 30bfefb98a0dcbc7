"""How often do confidence intervals cover the truth, and are operating points correct? Simulated scores with a known truth.

    python benchmarks/coverage.py --out FOLDER

The script prints six tables and writes each as CSV. With ``--result`` it also writes the rows that the documentation shows
(``DOCUMENTED``) into a result file. It uses one thread and a fixed seed. The simulation vectorises the computations of
``frostline.statistics`` and asserts for some simulated cases that both agree.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import write_result
from simulation.means import means
from simulation.points import operating_points, seeds_to_tell
from simulation.shares import pairing, rates, shares

CAPTIONS = {
    "means": "**The interval of a mean**, beside other intervals.",
    "shares": "**The share of full's gain**, with Fieller's interval.",
    "pairing": "**Paired by seed or not.**",
    "failure rates": "**The interval of a failure rate** (Clopper and Pearson; exact).",
    "operating points": "**Operating points**: how often the right k is named, a wrong one, or none.",
    "seeds to tell": "**How many seeds would be enough**, as the page estimates it.",
}

# The rows of each table that the documentation shows: five seeds, and the most important intervals.
DOCUMENTED = {
    "means": "seeds == 5 and failures in ['none', '5 %, at chance']"
    " and interval in ['bootstrap, all runs', 't, all runs', 't, succeeded (ours)']",
    "shares": "seeds == 5 and correlation == 0.1"
    " and interval in ['Fieller, paired (ours)', 'delta, paired', 'bootstrap, paired']",
    "pairing": "correlation == 0.1",
    "failure rates": "runs in [5, 20]",
    "operating points": "seeds == 5",
    "seeds to tell": "seeds == 5",
}


def documented(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """The rows for the documentation. For operating points, only the columns about our rule and about plain means."""
    rows = table.query(DOCUMENTED[name])
    if rows.empty:
        raise ValueError(f"no row of {name!r} is left for the documentation")
    return rows.loc[:, :"means, true k"] if name == "operating points" else rows


def shown(value: object) -> str:
    """A number with three digits; a dash if it is undefined."""
    if isinstance(value, float):
        return "-" if np.isnan(value) else f"{value:.3g}"
    return str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--tries",
        type=int,
        default=4000,
        help="simulations of each case; a quarter of them where examples are simulated",
    )
    parser.add_argument("--result", type=Path, help="also write this file for the documentation")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    tables = {
        "means": lambda draw: means(draw, options.tries),
        "shares": lambda draw: shares(draw, options.tries // 4),
        "pairing": lambda draw: pairing(draw, 5 * options.tries),
        "failure rates": lambda draw: rates(),
        "operating points": lambda draw: operating_points(draw, options.tries // 4),
        "seeds to tell": lambda draw: seeds_to_tell(draw, options.tries // 4),
    }
    made: dict[str, pd.DataFrame] = {}
    for name, draw in zip(tables, np.random.default_rng(options.seed).spawn(len(tables)), strict=True):
        start = time.monotonic()
        made[name] = tables[name](draw)
        print(f"\n{name} ({time.monotonic() - start:.0f} s)\n{made[name].round(4).to_string(index=False)}", flush=True)
        made[name].to_csv(options.out / f"{name.replace(' ', '_')}.csv", index=False)
    if options.result:
        documents = {name: documented(name, table) for name, table in made.items()}
        write_result(
            options.result,
            "How often do the intervals cover the truth?",
            [
                {
                    "caption": CAPTIONS[name],
                    "header": [str(column) for column in table.columns],
                    "rows": [[shown(value) for value in row] for row in table.itertuples(index=False)],
                }
                for name, table in documents.items()
            ],
            {
                name: json.loads(table.to_json(orient="records", double_precision=6))
                for name, table in documents.items()
            },
        )


if __name__ == "__main__":
    main()
