"""Names of the parameter groups: merged paths lose no layer and no part."""

from hypothesis import given
from hypothesis import strategies as st

from frostline.sweep.parameter_groups import merged_paths


@given(st.sets(st.integers(0, 30)), st.sampled_from(["", ".output", ".attention.query"]))
def test_merged_paths_name_every_layer_again(numbers: set[int], rest: str) -> None:
    found = merged_paths([f"bert.layer.{n}{rest}" for n in numbers] + ["bert.pooler", "bert.layer"], "bert.layer.")
    assert found[:2] == ("bert.pooler", "bert.layer")
    ends = [one.removeprefix("bert.layer.").removesuffix(rest).split(" .. ") for one in found[2:]]
    assert [n for end in ends for n in range(int(end[0]), int(end[-1]) + 1)] == sorted(numbers)


def test_parts_of_the_same_layers_are_merged() -> None:
    paths = [f"l.{n}.{part}" for n in (0, 1, 2, 4) for part in ("a", "b.c")]
    assert merged_paths([*paths, "l.7", "e"], "l.") == ("e", "l.0 .. 2.{a, b.c}", "l.4.{a, b.c}", "l.7")
    assert merged_paths(["embeddings", "layer 3", "layer 4", "head"], "layer ") == (
        "embeddings",
        "head",
        "layer 3 .. 4",
    )
