"""Model folders that a test may change."""

import shutil

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from small_models import bare_tokenizer


@pytest.fixture
def folder(tiny_bert, tmp_path):
    return shutil.copytree(tiny_bert, tmp_path / "model")


@pytest.fixture
def gpt2(tmp_path):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 2,
            "n_positions": 32,
            "vocab_size": 4,
            "bos_token_id": 0,
            "eos_token_id": 0,
        }
        GPT2LMHeadModel(GPT2Config(**sizes, initializer_range=0.2)).save_pretrained(tmp_path / "gpt2")
    bare_tokenizer(tmp_path / "gpt2")
    return tmp_path / "gpt2"
