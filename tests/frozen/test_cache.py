"""What is kept on this machine: listed, removed, verified."""

from pathlib import Path

import pytest

import frostline
from frostline import FrostlineError
from frostline.frozen.cache import kept_states, remove, verify
from frostline.sweep.execution.progress import Progress


@pytest.fixture
def kept(tiny_bert: Path, tiny_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with the states of one model in two precisions."""
    folder = tmp_path / "cache"
    monkeypatch.setattr("frostline.frozen.hidden_states.cache_folder", lambda: folder)
    for precision in ("float32", "bfloat16"):
        sweep = frostline.Sweep(
            model=tiny_bert, train=tiny_table, tune="0,2", seeds=1, train_size=20, num_train_epochs=0.1,
            out=tmp_path / precision, precision=precision, progress=Progress(),
        )  # fmt: skip
        prepared = sweep._prepare(Progress())
        from frostline.sweep.execution.execute import make_ready

        make_ready(prepared, prepared.plan.runs, Progress())
    return folder


def test_everything_that_is_kept_is_listed(kept: Path, tiny_bert: Path) -> None:
    found = list(kept_states(kept))
    assert [one.recipe["precision"] for one in found] == ["float32", "bfloat16"]
    for one in found:
        assert (one.recipe["model"], one.rows, one.cuts) == (str(tiny_bert), 20 + 32, (1,))
        assert one.bytes == sum(path.stat().st_size for path in one.folder.rglob("*") if path.is_file())
    assert list(kept_states(kept / "nothing")) == []


def test_removing_by_the_beginning_of_a_key(kept: Path) -> None:
    first, second = kept_states(kept)
    with pytest.raises(FrostlineError, match="No kept hidden states have the key 'zz'"):
        remove([first.key[:6], "zz"], kept)
    assert len(list(kept_states(kept))) == 2
    assert [one.key for one in remove([first.key[:6]], kept)] == [first.key]
    assert [one.key for one in kept_states(kept)] == [second.key] and not first.folder.exists()
    assert len(remove(None, kept)) == 1 and list(kept_states(kept)) == [] and remove(None, kept) == []


@pytest.mark.parametrize("content", ["", "{", "[]"])
@pytest.mark.parametrize("name", ["recipe.json", "shard.json"])
def test_a_damaged_record_is_listed_found_and_removed(kept: Path, name: str, content: str) -> None:
    file = next(kept.rglob(name))
    file.write_text(content)
    assert len(list(kept_states(kept))) == 2
    problems = [problem for _, problem in verify(kept)]
    assert sorted(map(bool, problems)) == [False, True] and f"{file} is not what was written" in "".join(problems)
    assert len(remove(None, kept)) == 2 and list(kept_states(kept)) == []


def test_a_changed_bit_is_found(kept: Path) -> None:
    assert [problem for _, problem in verify(kept)] == ["", ""]
    file = next(kept.rglob("tokens-1.npy"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    problems = [problem for _, problem in verify(kept)]
    assert sorted(map(bool, problems)) == [False, True] and f"{file} is not what was written" in "".join(problems)
