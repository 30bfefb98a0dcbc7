"""Every model type that transformers can classify with, small and randomly initialised: equal when cut, or refused and why.

python benchmarks/model_types.py > docs/types.md
"""

import sys
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path

import torch
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from frostline import Check, check
from frostline.frozen.cut import cut_at, hidden_states_by_cut
from frostline.model.anatomy import find_layers
from frostline.model.packing import packable
from small_models import REASONS, TYPES, small_batch, small_model

TEXT = """# Model types

The {types} types that transformers {transformers} can classify with, as small randomly initialised models
(fp32, torch {torch}, CPU), made by `python benchmarks/model_types.py`.

## Equal: {equal}

For every k, logits and gradients are those of the uncut model. "Same batch": the largest relative difference of logits
with hidden states of the same batch ({exact} types: none at all). "Logits", "gradients": the largest of all comparisons
of `frostline check`, with states from the sweep's own pass, whose sums run in another order. Path: packed batches, or
padded where the type does not allow them; for each k where it differs. Last layer: the modules of it that run for the
token that the head reads only; "whole" where there is none, or the head reads all tokens.

| type | path | same batch | logits | gradients | last layer |
|---|---|---|---|---|---|"""


def same_batch_difference(model: torch.nn.Module, batch: dict[str, torch.Tensor], packed: bool) -> float:
    """The largest relative difference of logits, over all cuts, with hidden states of the same batch."""
    anatomy = find_layers(model, batch)
    worst = 0.0
    with torch.no_grad():
        truth = model(**batch).logits
        states = hidden_states_by_cut(model, anatomy, batch)
        with packable(model) if packed else nullcontext() as packing:
            for cut in range(1, anatomy.count + 1):
                with cut_at(model, anatomy, cut, packing=packing) as upper:
                    logits = upper(batch, states[cut])
                worst = max(worst, float((logits - truth).abs().max() / truth.abs().max()))
    return worst


def row(name: str, checks: list[Check], same: float) -> str:
    paths = " ".join(f"{'all' if c.tuned_layers is None else c.tuned_layers}:{c.path}" for c in checks)
    kinds = {c.path for c in checks}
    path = kinds.pop() if len(kinds) == 1 else paths
    logits = max(c.max_logit_difference or 0.0 for c in checks)
    gradients = max(c.max_gradient_difference or 0.0 for c in checks)
    head_token = {c.head_token for c in checks}
    modules = next(iter(head_token)) if len(head_token) == 1 else None
    last = "whole" if modules is None else ", ".join(modules.modules)
    return f"| {name} | {path} | {same:.1e} | {logits:.1e} | {gradients:.1e} | {last} |"


def main() -> None:
    logging.set_verbosity_error()
    equal, refused = [], []
    for name in TYPES:
        if name in REASONS:
            refused.append(f"| {name} | not tried: {REASONS[name]} |")
            continue
        model = small_model(name)
        batch = small_batch(model)
        checks = check(model, batch=batch)
        no = [c for c in checks if c.refused]
        if no:
            where = "" if len(no) == len(checks) else f"k = {', '.join(str(c.tuned_layers) for c in no)}: "
            refused.append(f"| {name} | {where}{no[0].refused} |")
        else:
            packed = all(c.path == "packed" for c in checks)
            equal.append((name, checks, same_batch_difference(model, batch, packed)))
        print(name, file=sys.stderr, flush=True)
    exact = sum(same == 0 for _, _, same in equal)
    print(
        TEXT.format(
            types=len(TYPES),
            transformers=version("transformers"),
            torch=version("torch"),
            equal=len(equal),
            exact=exact,
        )
    )
    print("\n".join(row(*one) for one in equal))
    print(f"\n## Refused: {len(refused)}\n\n| type | why |\n|---|---|")
    print("\n".join(refused))


if __name__ == "__main__":
    main()
