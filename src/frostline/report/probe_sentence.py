"""The sentence that sums up linear probes on frozen features."""

from collections.abc import Mapping
from typing import Any

from frostline.report import formatting, names

ProbeFacts = Mapping[str, Any]  # one label column in probes.json


def probe_sentence(facts: ProbeFacts) -> str:
    """The score of the best probe, and whether it is significantly better than the constant baseline."""
    best, metric = facts["best"], names.metric(facts["metric"])
    if best["score"] is None or best["low"] is None or best["high"] is None:
        return (
            f"No probe has a defined {metric}: it predicts the same for every example, or there are too few "
            "validation examples."
        )
    count = facts["validation_rows"]
    examples = f"{count:,} validation example{'' if count == 1 else 's'}"
    layers = f"layer{'s' if len(best['layers']) > 1 else ''} {formatting.layers(best['layers'])} of {facts['layers']}"
    probe = f"{facts['kind']} probe on the {names.VECTORS[best['vector']]} after {layers}"
    interval = f"95 % interval {best['low']:.3f} to {best['high']:.3f}"
    baseline = names.baseline(facts["metric"])
    tfidf = "" if facts["tfidf_score"] is None else f", the TF-IDF model {facts['tfidf_score']:.3f}"
    baselines = f"The {baseline} reaches {facts['chance']:.3f}{tfidf}."
    if not best["low"] > facts["chance"]:
        return (
            f"With {examples}, frozen features are not significantly better than the {baseline}. The best, a {probe}, "
            f"reaches {metric} {best['score']:.3f} ({interval}). {baselines}"
        )
    return (
        f"A {probe} reaches {metric} {best['score']:.3f} without training a layer. With {examples} that is significantly "
        f"better than the {baseline} ({interval}). {baselines}"
    )
