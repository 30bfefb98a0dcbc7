"""Hidden states that no later command reads."""

import errno
from pathlib import Path

import numpy as np
import pytest
import torch

from frostline import FrostlineError
from frostline.frozen import hidden_states as temporary
from frostline.frozen.forward_pass import StateSelection
from frostline.frozen.hidden_states import scratch_folder, temporary_states
from frozen.passes import pass_over
from frozen.random_tokens import ragged_tokens
from small_models import small_model


def test_they_are_those_of_a_forward_pass_and_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "cache_folder", lambda: tmp_path / "cache")
    forward_pass = pass_over(small_model("bert"), selection=StateSelection((1,), head=False))
    tokens, rows = ragged_tokens(12), np.array([7, 2, 5, 2])
    with temporary_states(forward_pass, tokens, rows) as states:
        for row in rows:
            one = np.array([row])
            (expected,) = forward_pass.hidden_states(tokens, forward_pass.batches(tokens.lengths, one))
            assert torch.equal(states.tokens(1, one)[0], expected["tokens-1"])
        assert not states.has(np.array([0]))
    assert not any((tmp_path / "cache").iterdir())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_cannot_be_written_is_named(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "cache_folder", lambda: tmp_path / "cache")
    with pytest.raises(FrostlineError, match=r"^Hidden states cannot be written to .*cache \("), scratch_folder():
        raise OSError(number, "no")
    with pytest.raises(FileNotFoundError), scratch_folder():  # not about this folder
        raise FileNotFoundError(errno.ENOENT, "gone")
