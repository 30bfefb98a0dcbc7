"""The key of cached hidden states: everything that determines them, except the examples."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import xxhash
from huggingface_hub import constants

FORMAT = 10
UNREADABLE = (OSError, ValueError, LookupError, TypeError, EOFError)  # errors of reading a damaged record


@dataclass(frozen=True)
class Recipe:
    """Everything that determines an example's hidden states, except the example."""

    model: str  # its name, for display; not part of the key
    weights: str  # digest of weights and configuration
    precision: str
    attention: str
    device: str
    threads: int
    instructions: str
    torch: str
    transformers: str
    head_reads: str
    packed: bool = True
    head_token: str = ""  # modules of the last layer that run for the head's token only
    format: int = FORMAT

    @property
    def key(self) -> str:
        """The name of the folder with the hidden states."""
        facts = {name: value for name, value in asdict(self).items() if name != "model"}
        return xxhash.xxh3_128_hexdigest(json.dumps(facts, sort_keys=True).encode())[:20]


def cache_folder() -> Path:
    """The folder of cached hidden states, in the assets cache of Hugging Face. It may not exist yet."""
    return Path(constants.HF_ASSETS_CACHE) / "frostline" / "hidden-states" / "default"


def similar_recipes(recipe: Recipe, *, folder: Path | None = None) -> Iterator[Recipe]:
    """Recipes on disk that differ only in ``packed`` and ``head_token``.

    Both are unknown before the exactness check.
    """
    for file in (folder or cache_folder()).glob("*/recipe.json"):
        with suppress(*UNREADABLE):
            found = Recipe(**json.loads(file.read_text()))
            if replace(recipe, model=found.model, packed=found.packed, head_token=found.head_token) == found:
                yield found
