"""A model folder that a test may change."""

import shutil

import pytest


@pytest.fixture
def folder(tiny_bert, tmp_path):
    return shutil.copytree(tiny_bert, tmp_path / "model")
