"""A stand-in for a GPU: torch's device ``meta``, whose tensors have no data, watched by a dispatch mode."""

import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch._meta_registrations import meta__efficient_attention_backward
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from frostline.frozen import forward_pass as batches
from frostline.model.device import Machine

META = torch.device("meta")
OWN_ANSWER = ("_local_scalar_dense", "_to_copy", "copy_", "equal")  # reads for which the stand-in has an answer
DRAWS = ("normal_", "uniform_", "random_", "exponential_", "randn", "rand")
READS = ("nonzero", "masked_select", "_unique2", "unique_consecutive", "unique_dim", "is_nonzero")


class StandIn(TorchDispatchMode):
    """Counts the operations on the device, and what a GPU would make slow or refuse.

    Attributes:
        reads: By phase, how often the host reads from the device. Each read answers with ones.
        draws: By phase, how often random values are drawn on the device, masks of dropout left out.
        operations: By phase, the operations on the device, views left out.
        misplaced: Operations whose operands or random generators are on different devices.
        phase: What runs now.
    """

    def __init__(self):
        super().__init__()
        self.reads, self.draws, self.operations, self.misplaced = Counter(), Counter(), Counter(), []
        self.phase = "outside"

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function._schema.name.removeprefix("aten::")
        leaves = tree_leaves([args, kwargs])
        devices = {x.device.type for x in leaves if isinstance(x, torch.Tensor)}
        generators = {x.device.type for x in leaves if isinstance(x, torch.Generator)}
        made = kwargs.get("device")
        on_device = "meta" in devices or (made is not None and torch.device(made).type == "meta")
        if not on_device:
            return function(*args, **kwargs)
        self.operations[self.phase] += not is_view(function)
        self.draws[self.phase] += name in DRAWS
        is_copy = name in ("_to_copy", "copy_")
        if generators - {"meta"} or (len(devices) > 1 and not is_copy):
            self.misplaced.append(f"{self.phase}: {name} of {sorted(devices)}, generators of {sorted(generators)}")
            if len(devices) > 1:
                raise RuntimeError(self.misplaced[-1])
        if self._is_read(name, args, kwargs):
            self.reads[self.phase] += 1
            return self._answer(name, args, kwargs)
        if function is torch.ops.aten._fused_adamw_.tensor_lr:  # meta only has the one with a number
            return torch.ops.aten._fused_adamw_.default(*args, **{**kwargs, "lr": 1.0})
        if function is torch.ops.aten._efficient_attention_backward.default:  # that of meta does not take the output
            return meta__efficient_attention_backward(*args[:5], *args[6:], **kwargs)
        return function(*args, **kwargs)

    @staticmethod
    def _is_read(name, args, kwargs):
        if name == "_to_copy":
            return args[0].device == META and kwargs.get("device") == torch.device("cpu")
        if name == "copy_":
            return args[0].device.type == "cpu"
        if name in ("index", "index_put", "index_put_", "_index_put_impl_"):  # a mask as an index hides a nonzero
            return any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])
        if name == "repeat_interleave":
            return kwargs.get("output_size") is None
        return name in (*READS, *OWN_ANSWER)

    @staticmethod
    def _answer(name, args, kwargs):
        if name in ("_local_scalar_dense", "equal"):
            return True if name == "equal" else 1.0
        if name == "copy_":
            return args[0].fill_(1)
        if name == "_to_copy":
            return torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        raise RuntimeError(f"{name} waits for the device, and the stand-in has no answer")


def is_view(function):
    """Whether an operation only returns other views of its operands, or memory, which starts nothing on a device."""
    returns = function._schema.returns
    aliases = [one.alias_info for one in returns]
    is_marked = bool(returns) and all(alias is not None and not alias.is_write for alias in aliases)
    allocates = function._schema.name in ("aten::empty", "aten::empty_like", "aten::new_empty")
    return is_marked or allocates or function is torch.ops.aten._unsafe_view.default


@contextmanager
def on_stand_in(experiment, monkeypatch):
    """The context with its model on the stand-in device, and the mode that watches the device. The model cannot be used again."""
    optimizers = sys.modules["torch.optim.optimizer"]  # torch.optim hides it
    supported = optimizers._get_fused_kernels_supported_devices()
    monkeypatch.setattr(optimizers, "_get_fused_kernels_supported_devices", lambda: [*supported, "meta"])
    monkeypatch.setitem(batches.TOKENS, "meta", batches.TOKENS["cuda"])
    experiment.pretrained.model.to(META)
    with StandIn() as watched:
        yield replace(experiment, machine=Machine(META, "float32")), watched
