"""The specification of a run: its digest, its stack key, and its printed name."""

from typing import Any

import pytest

from frostline.model.ways import Way, way_named
from frostline.training.run import Run
from frostline.training.settings import TrainingSettings

RUN: dict[str, Any] = {
    **{"weights": "w", "vocabulary": "v", "data": "d"},
    **{"recipe": 2, "seed": 1, "train_size": 100, "learning_rate": 1e-4},
}


def test_the_digest_depends_only_on_the_values() -> None:
    assert Run(**RUN).digest == Run(**dict(reversed(RUN.items()))).digest
    assert Run(**RUN).digest == Run.model_validate(Run(**RUN).model_dump(mode="json")).digest
    one, other = ({"class_weights": dict(pairs)} for pairs in ((("0", 1), ("1", 2)), ((1, 2), (0, 1))))
    assert Run(**RUN, **one).digest == Run(**RUN, **other).digest
    assert len(Run(**RUN).digest) == 20


OTHER: dict[str, Any] = {
    "num_train_epochs": 2, "per_device_train_batch_size": 8, "per_device_eval_batch_size": 8,
    "gradient_accumulation_steps": 2, "gradient_checkpointing": True, "head_learning_rate": "same", "weight_decay": 0,
    "adam_beta1": 0.8, "adam_beta2": 0.99, "adam_epsilon": 1e-6, "lr_scheduler_type": "cosine", "warmup_steps": 5,
    "max_grad_norm": 0, "evaluations_per_epoch": 2, "load_best_model_at_end": False, "train_score_rows": 10,
    "metric": "f1", "class_weights": "balanced", "label_all_tokens": True, "standardize_targets": True,
    "tune_pooler": False, "frozen_dropout": True,
    "subset": "fixed", "data_seed": 1, "folds": 5, "max_length": 64, "precision": "bfloat16",
    "weights": "x", "vocabulary": "x", "data": "x", "recipe": "full", "phase": 1, "seed": 2, "train_size": 50,
    "learning_rate": 2e-4,
}  # fmt: skip


def test_every_field_changes_the_digest() -> None:
    assert set(OTHER) == set(Run.model_fields) - {"way"}
    digests = {Run(**{**RUN, name: value}).digest for name, value in OTHER.items()}
    assert len(digests | {Run(**RUN).digest}) == len(OTHER) + 1


OTHER_WAYS: dict[str, Any] = {
    "estimator": "probe", "tune": 2, "layers": "first", "only": "biases", "modules": ("pooler",),
    "signal_share": 0.25, "low_rank": 4, "low_rank_scale": 1.0, "head_reads": "mean", "lstm_width": 768,
    "lstm_states": 4, "reinitialized": 1, "transferred": 2, "rate_factor": 10.0, "layer_decay": 0.9,
    "bias_correction": False, "order": "gradual", "towards_pretrained": 0.1, "mixout": 0.5, "patience": 2,
}  # fmt: skip


def test_every_field_of_a_way_changes_the_digest() -> None:
    assert set(OTHER_WAYS) == set(Way.model_fields)
    needed = {"layers": {"tune": 2}, "lstm_states": {"lstm_width": 768}}
    ways = [Way(**{**needed.get(name, {}), name: value}) for name, value in OTHER_WAYS.items()]
    digests = {Run(**{**RUN, "recipe": "my-way"}, way=way).digest for way in [Way(), *ways]}
    assert len(digests) == len(OTHER_WAYS) + 1
    named = {Run(**{**RUN, "recipe": "named"}, way=Way(modules=(part,))).digest for part in ("pooler", "layer.1")}
    assert len(named) == 2


def test_digests_stay_the_same_in_new_versions() -> None:
    values = {"weights": "w", "vocabulary": "v", "data": "d", "seed": 0, "train_size": 32, "learning_rate": 3e-3}
    digests = [Run(**{**values, "recipe": k}).digest for k in (0, 2, "full")]
    ways = {"named": {"modules": ("pooler", "layer.1")}, "lora-2": way_named("lora-2"), "mine": {"low_rank": "last 2"}}
    digests += [Run(**values, recipe=name, way=way).digest for name, way in ways.items()]
    assert digests == [
        *("8c59a1fe93988251dbbf", "f9281712e9d0b8bc6744", "ef0f105ad7222d555c01"),
        *("bcaaf2a13f333257f3af", "59c4342d9d9de5e844eb", "d0a81d42af2296bbcb70"),
    ]


def test_runs_that_differ_only_in_seed_and_learning_rate_have_the_same_stack_key() -> None:
    run = Run(**RUN)
    assert Run(**{**RUN, "seed": 7, "learning_rate": 1e-3}).stack_key == run.stack_key
    different = [name for name in OTHER if name not in ("seed", "learning_rate")]
    keys = {Run(**{**RUN, name: OTHER[name]}).stack_key for name in different}
    assert len(keys | {run.stack_key}) == len(different) + 1


def test_all_runs_of_a_stack_have_the_same_fold() -> None:
    first, second, third = (Run(**{**RUN, "seed": seed, "folds": 2}) for seed in (0, 1, 2))
    assert (first.fold, second.fold, third.fold) == (0, 1, 0)
    assert first.stack_key == third.stack_key != second.stack_key


@pytest.mark.parametrize("value", [True, [True]])
def test_a_boolean_is_refused_for_a_number(value: Any) -> None:
    with pytest.raises(ValueError, match="give a number or a word, not true or false"):
        TrainingSettings(num_train_epochs=value)
