"""The values of ``tune``: the number of tuned layers k, ``all`` or ``named``.

Imports no torch, because settings are read without it.
"""

from typing import Annotated, Literal

from pydantic import Field

Tune = Annotated[int, Field(ge=0)] | Literal["all", "named"]  # "all" is full, with the embeddings
