"""Ways as data: which fields go together and what each is by default."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from frostline.training.recipes import PLAIN, Way
from frostline.training.run import Run

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "ways-to-tune.md"
RUN = {
    "weights": "w",
    "vocabulary": "v",
    "data": "d",
    "recipe": "my-way",
    "seed": 0,
    "train_size": 9,
    "learning_rate": 1e-3,
}
CHANGED = {
    "estimator": "probe",
    "tune": 2,
    "layers": "first",
    "only": "biases",
    "modules": ("pooler",),
    "signal_share": 0.25,
    "low_rank": 4,
    "low_rank_scale": 1.0,
    "head_reads": "mean",
    "lstm_width": 768,
    "lstm_states": 4,
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
    needed = {"layers": {"tune": 2}, "lstm_states": {"lstm_width": 768}}
    ways = [Way(**{**needed.get(name, {}), name: value}) for name, value in CHANGED.items()]
    digests = {Run(**RUN, way=way).digest for way in [PLAIN, *ways]}
    assert len(digests) == len(CHANGED) + 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"modules": ("pooler",), "tune": 2}, "modules chooses parts of layers, but tune is about whole layers"),
        ({"signal_share": 0.5, "low_rank": 4}, "signal_share chooses parts of layers, but low_rank is about"),
        ({"modules": ("pooler",), "order": "gradual"}, "unfreezes whole layers, but modules parts of them"),
        ({"low_rank": 8, "mixout": 0.5}, "low_rank and mixout both change"),
        ({"mixout": 0.5, "towards_pretrained": 0.1}, "mixout and towards_pretrained both change"),
        ({"low_rank": 8, "only": "biases"}, "leaves them frozen"),
        ({"low_rank": 8, "order": "gradual"}, "cannot be combined"),
        ({"order": "gradual", "layers": "first", "tune": 2}, "unfreezes from the top"),
        ({"layers": "random"}, "needs a number of layers"),
        ({"tune": 0, "low_rank": 8}, "low_rank is about tuned layers, but tune = 0"),
        ({"tune": 0, "low_rank": "last 2"}, "low_rank is about tuned layers, but tune = 0"),
        ({"tune": 0, "only": "norms"}, "only is about tuned layers, but tune = 0"),
        ({"reinitialized": 1, "transferred": 2}, "choose one of them"),
        ({"reinitialized": 1, "layers": "first", "tune": 2}, "reinitialized and layers = 'first' cannot be combined"),
        ({"reinitialized": 1, "low_rank": 4}, "reinitialized and low_rank = 4 cannot be combined"),
        ({"transferred": 1, "order": "gradual"}, "transferred and order = 'gradual' cannot be combined"),
        ({"reinitialized": 1, "order": "head-first"}, "reinitialized and order = 'head-first' cannot be combined"),
        ({"transferred": 1, "tune": 2}, "would stay random"),
        ({"modules": ()}, "modules is empty"),
        ({"low_rank": True}, "not true or false"),
        ({"tune": "named"}, "give a number of layers, or full"),
        ({"reinitialized": 3, "tune": 2}, "would stay random"),
        ({"transferred": 3, "only": "norms"}, "transferred and only = 'norms' cannot be combined"),
        ({"order": "head-first", "lstm_width": 8}, "fits a linear head, but lstm_width adds an LSTM"),
        ({"lstm_states": 4}, "lstm_states is about a BiLSTM"),
        ({"mixout": 1.0}, "less than 1"),
        ({"estimator": "probe", "tune": 2}, "tune is about fine-tuning, but estimator = 'probe'"),
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


def test_the_page_lists_every_field() -> None:
    _, _, table = PAGE.read_text(encoding="utf-8").partition("| field | meaning | default |\n")
    rows = table.partition("\n\n")[0].splitlines()
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])) == sorted(
        Way.model_fields
    )
