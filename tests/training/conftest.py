"""A tiny BERT with its data, without and with cached hidden states."""

import gc

import pytest

from training.runs import context_of, with_states


@pytest.fixture(scope="session", autouse=True)
def frozen_objects():
    """Every run collects garbage before it measures memory; what is there by now need not be searched each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def plain(tiny_bert):
    """No cached hidden states."""
    return context_of(tiny_bert)


@pytest.fixture(scope="session")
def context(plain, tmp_path_factory):
    """Hidden states cached after every layer; the model is the same object as that of ``plain``."""
    return with_states(plain, tmp_path_factory.mktemp("cached"))
