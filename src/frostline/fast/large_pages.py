"""Large tensors in pages of 2 MB, where Linux has them (docs/performance.md)."""

import os

import torch

from frostline.fast.switch import enabled

VARIABLE = "THP_MEM_ALLOC_ENABLE"  # torch's own, which it reads once, when it first allocates memory


def use_large_pages() -> None:
    """Have torch ask for large pages, unless the environment already says whether it should.

    The variable is set for the first allocation only, so programs that this one starts do not inherit it.
    """
    if VARIABLE not in os.environ and enabled("large_pages"):
        os.environ[VARIABLE] = "1"
        torch.empty(1)
        del os.environ[VARIABLE]


use_large_pages()
