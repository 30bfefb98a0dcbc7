"""The machine: requested and available devices and precisions."""

import platform
import shutil

import pytest
import torch

from frostline import FrostlineError
from frostline.model.device import Machine, free_bytes, random_state_restored, this_machine, to_device

CPU = Machine(torch.device("cpu"), "float32")


@pytest.mark.parametrize("wrong", [{"device": "gpu"}, {"precision": "fp16"}, {"device": "cuda:0", "precision": "auto"}])
def test_an_unknown_name_lists_the_known_ones(wrong):
    with pytest.raises(FrostlineError, match=r"auto, cpu, cuda, mps, precisions auto, float32, bfloat16, float16\.$"):
        this_machine(**wrong)


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_this_machine_does_not_have_is_an_error(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(FrostlineError, match=f"This machine has no device '{device}': use --device cpu"):
        this_machine(device)
    assert this_machine("auto").device.type == "cpu"


def test_float16_is_refused_where_the_optimizer_cannot_skip_steps(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(FrostlineError, match="float16 cannot be used with the device mps"):
        this_machine("mps", "float16")
    assert this_machine("mps", "auto").precision == "float32"


@pytest.mark.parametrize(
    "instructions, precision",
    [
        ({"avx2": True, "avx512_bf16": True}, "bfloat16"),
        ({"amx_bf16": True}, "bfloat16"),
        ({"avx512_bf16": False, "avx512_f": True}, "float32"),
        ({}, "float32"),
    ],
)
def test_the_default_is_bfloat16_if_the_processor_has_instructions_for_it(monkeypatch, instructions, precision):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: instructions)
    assert this_machine("cpu").precision == precision
    assert this_machine("cpu", "float32").precision == "float32"
    assert this_machine("cpu", "bfloat16").precision == "bfloat16"


def test_autocast_changes_the_precision_of_products_only():
    x = torch.ones(4, 4)
    with Machine(torch.device("cpu"), "bfloat16").autocast():
        assert (x @ x).dtype == torch.bfloat16 and (x + x).dtype == torch.float32
    with CPU.autocast():
        assert (x @ x).dtype == torch.float32


def test_facts_describe_the_current_state():
    facts = CPU.facts()
    assert facts["threads"] == 1 and facts["device"] == "cpu" and facts["torch"].split("+")[0] in torch.__version__
    assert facts["python"] == platform.python_version() and facts["device_name"] == platform.machine()
    assert {"frostline", "transformers", "numpy", "instructions"} <= set(facts)
    torch.set_num_threads(2)
    assert CPU.facts()["threads"] == 2


def test_free_bytes_are_those_of_the_disk_that_holds_the_folder(tmp_path):
    assert abs(free_bytes(tmp_path) - shutil.disk_usage(tmp_path).free) < 1 << 30


def test_a_device_has_a_name(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA T4")
    assert Machine(torch.device("cuda"), "float16").name == "NVIDIA T4"
    assert Machine(torch.device("mps"), "float32").name == "MPS"
    torch.set_num_threads(1)
    assert CPU.name == "CPU, 1 thread"
    torch.set_num_threads(2)
    assert CPU.name == "CPU, 2 threads"


@pytest.mark.parametrize("device, asked", [("cpu", []), ("cuda", ["cuda"]), ("cuda:1", ["cuda:1"]), ("mps", ["mps"])])
def test_the_random_state_of_the_device_is_restored_and_no_other_gpu_is_asked(monkeypatch, device, asked):
    got, restored = [], []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    backend = torch.mps if device == "mps" else torch.cuda
    monkeypatch.setattr(backend, "get_rng_state", lambda one: got.append(str(one)) or torch.ones(1))
    monkeypatch.setattr(backend, "set_rng_state", lambda state, one: restored.append(str(one)))
    before = torch.get_rng_state()
    with random_state_restored(torch.device(device)):
        torch.rand(1)
    assert got == restored == asked and torch.equal(torch.get_rng_state(), before)


def test_large_copies_to_a_gpu_come_from_pinned_memory(monkeypatch):
    copies = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda x: copies.append("pinned") or x)
    monkeypatch.setattr(torch.Tensor, "to", lambda x, *args, **more: copies.append((args, more)) or x)
    copied = ((torch.device("cuda"),), {"non_blocking": True})
    to_device(torch.ones(2**14 + 1), torch.device("cuda"))
    assert copies == ["pinned", copied]
    to_device(torch.ones(2**14), torch.device("cuda"))  # CUDA stages these itself
    assert copies[2:] == [copied]
    to_device(torch.ones(2), torch.device("cpu"))
    assert copies[3:] == [((torch.device("cpu"),), {})]
