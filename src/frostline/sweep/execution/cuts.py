"""Check on the model itself, before anything is trained, that the cuts of a sweep are exact."""

from collections.abc import Sequence

from frostline import FrostlineError
from frostline.fast.switch import release_freed_memory
from frostline.frozen.exactness import Check, check
from frostline.model.terms import OWN_HEAD, HeadKind
from frostline.statistics.recipe import FULL, NAMED
from frostline.sweep.grid import one_of_each
from frostline.sweep.plan import Plan
from frostline.training.experiment import starting_cut
from frostline.training.run import Run


def check_cuts(prepared: Plan) -> list[Check]:
    """Check in fp32 that the cuts of this sweep are exact, with every head; choose packed or padded batches.

    Raises:
        FrostlineError: A cut is not exact.
    """
    if prepared.context.worker.checks is not None:
        return prepared.context.worker.checks
    context, by_head = prepared.context, {OWN_HEAD: list[Run]()}
    for spec in (spec for spec in prepared.runs if spec.way.in_loop):
        by_head.setdefault(context.for_run(spec).pretrained.head, []).append(spec)
    checks_of = {kind: _checks(prepared, runs, kind) for kind, runs in by_head.items()}
    checks = [one for some in checks_of.values() for one in some]
    release_freed_memory()
    refused = next((one for one in checks if one.refused), None)
    if refused:
        at = "" if refused.tuned_layers is None else f" with {refused.tuned_layers}"
        raise FrostlineError(
            f"The model {context.pretrained.name} cannot be cut exactly{at}: {refused.refused} Run `frostline check` for "
            "details, or choose another model."
        )
    context.worker.packed = all(one.batches == "packed" for one in checks)
    for kind, some in checks_of.items():
        as_checked = all(one.head_token and one.batches == checks[0].batches for one in some)
        context.worker.head_tokens[kind] = some[0].head_token if as_checked else None
    context.worker.checks = checks
    return checks


def _checks(prepared: Plan, runs: Sequence[Run], kind: HeadKind) -> list[Check]:
    """The check of the smallest k and the largest one of some runs, and of full fine-tuning, with the head of these runs."""
    pretrained, cached = prepared.context.pretrained.with_head(kind), prepared.cached
    depths = [spec.depth(pretrained.anatomy) for spec in one_of_each(runs) if spec.recipe != NAMED]
    ks = {max(depth, kind.layers) for depth in depths if depth is not None}
    ends = {min(ks), max(ks)} if ks else set()
    all_cut = all(starting_cut(cached, pretrained.anatomy, spec) is not None for spec in runs)
    return check(
        pretrained.model,
        # always with full fine-tuning: a sweep to which it is added later then uses the same kind of batches
        tuned_layers=[*sorted(ends), FULL],
        tune_modules=next((spec.way.modules for spec in runs if spec.recipe == NAMED), None),
        max_uncut_layers=max(ends) if ends and all_cut else None,
    )
