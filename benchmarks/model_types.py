"""Which model types can be cut exactly? A small random model of every type with a classification head in transformers.

    python benchmarks/model_types.py [--tags]

With ``--tags``, of every type with a head for tags of words.
"""

import argparse
import sys
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from measuring import Facts, write_result

from frostline import Check, check
from frostline.frozen.cut import cut_at, hidden_states_by_cut
from frostline.model.anatomy import find_layers
from frostline.model.heads import real_logits
from frostline.model.packing import packable
from small_models import REASONS, TAG_TYPES, TYPES, small_batch, small_model

RESULTS = Path(__file__).parent / "results"
EXACT = ("type", "batches", "same batch", "logits", "gradients", "last layer")


def same_batch_difference(model: torch.nn.Module, batch: dict[str, torch.Tensor], packed: bool) -> float:
    """The largest relative difference of logits over all cuts, if the hidden states come from the same batch."""
    anatomy = find_layers(model, batch)
    worst = 0.0
    with torch.no_grad():
        truth = real_logits(model(**batch).logits, batch["attention_mask"])
        states = hidden_states_by_cut(model, anatomy, batch)
        with packable(model) if packed else nullcontext() as packing:
            for cut in range(1, anatomy.count + 1):
                with cut_at(model, anatomy, cut, packing=packing) as upper:
                    logits = upper(batch, states[cut])
                worst = max(worst, float((logits - truth).abs().max() / truth.abs().max()))
    return worst


def row(name: str, checks: list[Check], same: float) -> list[str]:
    """The row of a type that is exact for every k."""
    paths = " ".join(f"{c.recipe}:{c.batches}" for c in checks)
    path = str(checks[0].batches) if len({c.batches for c in checks}) == 1 else paths
    logits = max(c.max_logit_difference or 0.0 for c in checks)
    gradients = max(c.max_gradient_difference or 0.0 for c in checks)
    parts = {c.head_token for c in checks}
    part = next(iter(parts)) if len(parts) == 1 else None
    last = "whole" if part is None else ", ".join(part.modules)
    return [name, path, f"{same:.1e}", f"{logits:.1e}", f"{gradients:.1e}", last]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tags", action="store_true", help="check heads for tags of words")
    tags = parser.parse_args().tags
    logging.set_verbosity_error()
    types, head = (TAG_TYPES, AutoModelForTokenClassification) if tags else (TYPES, AutoModelForSequenceClassification)
    exact, refused = [], []
    for name in types:
        if name in REASONS:
            refused.append([name, f"not tried: {REASONS[name]}"])
            continue
        model = small_model(name, head=head)
        batch = small_batch(model)
        checks = check(model, batch=batch)
        no = [c for c in checks if c.refused]
        if no:
            where = "" if len(no) == len(checks) else f"k = {', '.join(str(c.recipe) for c in no)}: "
            refused.append([name, f"{where}{no[0].refused}"])
        else:
            packed = all(c.batches == "packed" for c in checks)
            exact.append(row(name, checks, same_batch_difference(model, batch, packed)))
        print(name, file=sys.stderr, flush=True)
    versions = f"transformers {version('transformers')}, torch {torch.__version__}"
    tables: list[Facts] = [
        {
            "caption": f"{len(exact)} of {len(types)} types are exact for every k ({versions}).",
            "header": EXACT,
            "rows": exact,
        },
        {"caption": f"{len(refused)} types are refused.", "header": ("type", "reason"), "rows": refused},
    ]
    result, what = ("model_types_tags", "model types for tags of words") if tags else ("model_types", "model types")
    counts = {"exact": len(exact), "refused": len(refused)}
    write_result(RESULTS / f"{result}.json", f"Which {what} can be cut exactly?", tables, counts)


if __name__ == "__main__":
    main()
