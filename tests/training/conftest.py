"""A tiny BERT with its data, with and without cached hidden states, and without dropout."""

import pytest

from training.by_hand import context_without_dropout
from training.runs import context_of, with_states


@pytest.fixture(scope="session")
def uncached(tiny_bert):
    """A context without cached hidden states."""
    return context_of(tiny_bert)


@pytest.fixture(scope="session")
def experiment(uncached, tmp_path_factory):
    """A context with hidden states cached after every layer. Its model is the same object as that of ``uncached``."""
    return with_states(uncached, tmp_path_factory.mktemp("cached"))


@pytest.fixture(scope="session")
def even(tmp_path_factory):
    """A context whose model has no dropout, without cached hidden states."""
    return context_without_dropout(tmp_path_factory.mktemp("even"))
