"""Parameter counts from configurations are those of the publications."""

from pathlib import Path

import pytest

from frostline import FrostlineError
from frostline.statistics.recipe import Recipe
from frostline.studies.protocol import load_protocol, tune_values
from frostline.studies.sweeps import model_config, parameter_counts


def test_trainable_parameters_are_those_of_jeong() -> None:
    """Exactly the numbers of Table 1, from the configuration in the study's files."""
    protocol = load_protocol("jeong2025")
    counts = parameter_counts(
        model_config(protocol, "klue/bert-base"), tune_values(protocol.tune, 12), tune_pooler=False
    )
    printed = {p.tuned: p.value for p in protocol.published if p.statistic == "trainable_parameters"}
    assert dict(counts.trained) == printed and len(printed) == 7


def test_parameters_by_place_are_those_of_lee_et_al() -> None:
    """Their Table 1, which is in millions."""
    protocol = load_protocol("lee2019")
    for model in protocol.models:
        counts = parameter_counts(model_config(protocol, model), [Recipe(0)])
        printed = {p.statistic: p.value for p in protocol.published if p.table == "Table 1" and p.model == model}
        output = counts.places.get("pooler", 0) + counts.places["head"]
        assert counts.places["embeddings"] == pytest.approx(printed["parameters_embedding"], abs=0.6e6)
        assert counts.places["layer 0"] == pytest.approx(printed["parameters_per_layer"], abs=0.6e6)
        assert output == pytest.approx(printed["parameters_output"], abs=0.06e6)
        assert counts.total == pytest.approx(printed["parameters_total"], abs=1.2e6)


def test_the_configuration_of_a_folder_or_an_error(tiny_bert: Path) -> None:
    protocol = load_protocol("jeong2025")
    assert model_config(protocol, str(tiny_bert)).num_hidden_layers == 3
    with pytest.raises(FrostlineError, match="neither a folder nor available from the hub"):
        model_config(protocol, "nowhere")


def test_ways_count_what_they_train() -> None:
    config = model_config(load_protocol("jeong2025"), "klue/bert-base")
    counts = parameter_counts(config, [Recipe(one) for one in (2, "full", "lora-2", "random-2", "llrd")]).trained
    assert counts["random-2"] == counts["last 2"] and counts["llrd"] == counts["full"]
    matrices = 2 * (4 * (768 + 768) + 2 * (768 + 3072))  # inputs and outputs of the matrices of two layers
    head = 768 * 768 + 768 + 2 * 768 + 2
    assert counts["lora-2"] == 8 * matrices + head
    with pytest.raises(FrostlineError, match="chooses matrices by their weights"):
        parameter_counts(config, ["spectrum-25"])
