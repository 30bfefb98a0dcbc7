"""Temporary replacement of the forwards of modules."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def forwards_replaced(forwards: Mapping[nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """While the context is open, each module runs the given function as its forward. Contexts can be nested."""
    before = {module: vars(module).get("forward") for module in forwards}
    for module, forward in forwards.items():
        module.forward = forward
    try:
        yield
    finally:
        for module, old in before.items():
            if old is None:
                del module.forward
            else:
                module.forward = old
