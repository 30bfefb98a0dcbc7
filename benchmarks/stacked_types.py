"""Of which model types runs can be trained as one, and why not of the others.

python benchmarks/stacked_types.py > docs/stacked-types.md
"""

import sys
from importlib.metadata import version
from pathlib import Path

import torch
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from frostline import check
from frostline.frozen.check.stacking import stack_refusal
from frostline.model.anatomy import find_layers
from frostline.model.trainable import Trainable
from small_models import REASONS, TYPES, small_batch, small_model

KS = (0, 2, None)  # the head alone, half of four layers, everything
LENGTHS = (11, 36, 5, 29)  # of the second run's texts

TEXT = """# Types whose runs can be trained as one

The types that can be cut, of those that transformers {transformers} can classify with, as small randomly initialised
models (fp32, torch {torch}, CPU), made by `python benchmarks/stacked_types.py`. Two runs with weights and texts of their
own, as one against each alone: logits and gradients must differ by less than 1e-5 of the largest value, in the batches
that the type allows (packed or padded), with batched products, for k = 0, for 2 of 4 layers and for everything. How it
works: [design.md](design.md).

## For every k: {every}

{names}

## Not for every k: {some}

| type | batches | k | why not |
|---|---|---|---|"""


def said(k: int | None) -> str:
    return "all" if k is None else str(k)


def main() -> None:
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    every, some = [], []
    for name in TYPES:
        if name in REASONS:
            continue
        model = small_model(name)
        batches = [small_batch(model), small_batch(model, LENGTHS, seed=1)]
        (row,) = check(model, batch=batches[0], tuned_layers=[2])
        if row.refused:
            continue
        anatomy, packed = find_layers(model, batches[0]), row.path == "packed"
        refused: dict[str, list[str]] = {}
        for k in KS:
            cut = None if k is None else anatomy.count - k
            why = stack_refusal(
                model, anatomy, Trainable.last(k).parameters(anatomy), cut, packed=packed, as_one=True, batches=batches
            )
            if why:
                refused.setdefault(why, []).append(said(k))
        some += [f"| {name} | {row.path} | {', '.join(ks)} | {why} |" for why, ks in refused.items()]
        if not refused:
            every.append(name)
        print(name, file=sys.stderr, flush=True)
    versions = {library: version(library) for library in ("transformers", "torch")}
    differ = len({line.split()[1] for line in some})
    print(TEXT.format(**versions, every=len(every), some=differ, names=", ".join(every) + "."))
    print("\n".join(some))


if __name__ == "__main__":
    main()
