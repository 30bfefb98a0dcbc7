"""Which model types can be trained in stacks, and why can the others not?

python benchmarks/stacked_types.py
"""

import sys
from importlib.metadata import version
from pathlib import Path

import torch
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from measuring import Facts, write_result

from frostline import check
from frostline.frozen.exactness import stack_refusal
from frostline.model.anatomy import find_layers
from frostline.model.ways import Way
from frostline.statistics.recipe import FULL, HEAD_ONLY, Recipe
from small_models import REASONS, TYPES, small_batch, small_model

RESULT = Path(__file__).parent / "results" / "stacked_types.json"
KS: tuple[Recipe, ...] = (HEAD_ONLY, Recipe(2), FULL)  # k = 0, half of four layers, everything
LENGTHS = (11, 36, 5, 29)  # text lengths of the second run


def main() -> None:
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    every, some = [], []
    for name in TYPES:
        if name in REASONS:
            continue
        model = small_model(name)
        batches = [small_batch(model), small_batch(model, LENGTHS, seed=1)]
        (row,) = check(model, batch=batches[0], tune=[2])
        if row.refused:
            continue
        anatomy, packed = find_layers(model, batches[0]), row.batches == "packed"
        refused: dict[str, list[str]] = {}
        for k in KS:
            cut = None if k.k is None else anatomy.count - k.k
            why = stack_refusal(
                model, anatomy, Way(tune=k).parameters(anatomy), cut, packed=packed, batched=True, batches=batches
            )
            if why:
                refused.setdefault(why, []).append(str(k))
        some += [[name, row.batches, ", ".join(ks), why] for why, ks in refused.items()]
        if not refused:
            every.append(name)
        print(name, file=sys.stderr, flush=True)
    versions = f"transformers {version('transformers')}, torch {torch.__version__}"
    differ = len({line[0] for line in some})
    tables: list[Facts] = [
        {
            "caption": f"{len(every)} types can be stacked for every k ({versions}).",
            "header": ("types",),
            "rows": [[", ".join(every)]],
        },
        {
            "caption": f"{differ} types cannot be stacked for some k.",
            "header": ("type", "batches", "k", "reason"),
            "rows": some,
        },
    ]
    write_result(RESULT, "Which model types can be trained in stacks?", tables, {"every": every, "some": some})


if __name__ == "__main__":
    main()
