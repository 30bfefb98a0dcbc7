"""Ways as data: which fields go together, and what each is by default."""

import pytest
from pydantic import ValidationError

from frostline.training.specification import RunSpec
from frostline.training.ways.way import PLAIN, Way

RUN = {
    "weights": "w",
    "vocabulary": "v",
    "data": "d",
    "tune": "my-way",
    "seed": 0,
    "train_size": 9,
    "learning_rate": 1e-3,
}
CHANGED = {
    "tune": 2,
    "layers": "first",
    "only": "biases",
    "modules": ("pooler",),
    "signal_share": 0.25,
    "low_rank": 4,
    "low_rank_scale": 1.0,
    "reinitialized": 1,
    "transferred": 2,
    "rate_factor": 10.0,
    "layer_decay": 0.9,
    "bias_correction": False,
    "order": "gradual",
    "towards_pretrained": 0.1,
    "mixout": 0.5,
    "patience": 2,
}


def test_every_field_changes_the_digest_of_a_run() -> None:
    assert set(CHANGED) == set(Way.model_fields)
    needed = {"layers": {"tune": 2}}
    ways = [Way(**{**needed.get(name, {}), name: value}) for name, value in CHANGED.items()]
    digests = {RunSpec(**RUN, way=way).digest for way in [PLAIN, *ways]}
    assert len(digests) == len(CHANGED) + 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"modules": ("pooler",), "tune": 2}, "modules says what is trained, and so does tune"),
        ({"signal_share": 0.5, "low_rank": 4}, "signal_share says what is trained, and so does low_rank"),
        ({"low_rank": 8, "mixout": 0.5}, "low_rank and mixout both change"),
        ({"mixout": 0.5, "towards_pretrained": 0.1}, "mixout and towards_pretrained both change"),
        ({"low_rank": 8, "only": "biases"}, "leaves them frozen"),
        ({"low_rank": 8, "order": "gradual"}, "cannot be combined"),
        ({"order": "gradual", "layers": "first", "tune": 2}, "thaws from the top"),
        ({"layers": "random"}, "needs a number of layers"),
        ({"reinitialized": 1, "transferred": 2}, "choose one of them"),
        ({"reinitialized": 1, "layers": "first", "tune": 2}, "may freeze them"),
        ({"reinitialized": 3, "tune": 2}, "would stay random"),
        ({"transferred": 3, "only": "norms"}, "frozen: choose all"),
        ({"mixout": 1.0}, "less than 1"),
        ({"low_ranks": 8}, "Extra inputs"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Way(**values)


def test_ways_that_keep_a_state_of_their_own_are_trained_one_by_one() -> None:
    assert not PLAIN.alone and not Way(layer_decay=0.9).alone and not Way(only="biases").alone
    for name in ("low_rank", "order", "mixout", "towards_pretrained", "patience"):
        assert Way(**{name: CHANGED[name]}).alone
