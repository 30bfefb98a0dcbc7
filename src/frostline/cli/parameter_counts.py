"""`frostline plan --study`: how many parameters each k of a published study trains."""

from collections.abc import Mapping
from typing import Any

from frostline import FrostlineError
from frostline.cli.printing import print_table
from frostline.cli.values import split_words
from frostline.model.places import EMBEDDINGS, HEAD, POOLER, layer_number, layer_place
from frostline.statistics.tune import NAMED, name_of


def print_parameter_counts(name: str, settings: Mapping[str, Any]) -> None:
    """Print the parameters of a study's models, or of the models in ``settings``, by part of the model and by k."""
    from frostline.studies.parameters import model_config, parameter_counts
    from frostline.studies.protocol import load_protocol
    from frostline.studies.tune_values import tune_values

    protocol = load_protocol(name)
    for model in split_words([settings["model"]] if "model" in settings else None) or protocol.models:
        config = model_config(protocol, model)
        values = {**protocol.settings_of(model, protocol.tasks[0]), **settings}
        ks = tune_values(settings.get("tune", protocol.tune), config.num_hidden_layers)
        parts = values.get("tune_modules")
        parts = split_words([parts] if isinstance(parts, str) else parts)
        if NAMED in ks and not parts:
            raise FrostlineError(f"{name} names no modules to tune: give --tune-modules with module paths.")
        counts = parameter_counts(config, ks, tune_pooler=bool(values.get("tune_pooler", True)), tune_modules=parts)
        print(f"\n{model}: {counts.layers} layers, {counts.total:,} parameters")
        printed = [row for row in protocol.published if row.model == protocol.short_name(model)]
        totals = {row.statistic.removeprefix("parameters_"): row.value for row in printed}
        _print_places(counts, totals)
        by_k = {row.tuned: int(row.value) for row in printed if row.statistic == "trainable_parameters"}
        rows = [
            {
                "tune": name_of(k),
                "trainable parameters": f"{number:,}",
                "share": f"{100 * number / counts.total:.1f} %",
                "printed": f"{by_k[k]:,}" if k in by_k else "",
            }
            for k, number in counts.trainable.items()
        ]
        print_table(rows, ("tune", "trainable parameters", "share", *["printed"] * bool(by_k)))


def _print_places(counts: Any, printed: Mapping[str, float]) -> None:
    """Print the parameters of each part of a model, next to the published numbers if there are any."""
    output = POOLER if POOLER in counts.places else HEAD
    names = {EMBEDDINGS: "embedding", "a layer": "per_layer", output: "output", "total": "total"}
    places = {place: number for place, number in counts.places.items() if layer_number(place) is None}
    parts = {
        EMBEDDINGS: places.pop(EMBEDDINGS),
        "a layer": counts.places[layer_place(0)],
        **places,
        "total": counts.total,
    }
    rows = [
        {
            "part": part,
            "parameters": f"{number:,}",
            "share": f"{100 * number / counts.total:.1f} %",
            "printed": f"{printed[names[part]] / 1e6:g} million" if names.get(part) in printed else "",
        }
        for part, number in parts.items()
    ]
    print_table(rows, ("part", "parameters", "share", *["printed"] * any(row["printed"] for row in rows)))
