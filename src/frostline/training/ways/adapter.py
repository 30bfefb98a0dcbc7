"""The low-rank updates of a run as an adapter of PEFT, which its users load onto the pretrained model."""

import importlib.util
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from frostline import FrostlineError
from frostline.model.anatomy import module_of
from frostline.model.pretrained import Pretrained
from frostline.model.terms import layer_number
from frostline.training.specification import RunSpec
from frostline.training.ways.start import rank_of, transposed_in

PREFIX = "base_model.model."  # before the name of each parameter in an adapter's file


def require_peft() -> None:
    """Refuse to keep an adapter without PEFT.

    Raises:
        FrostlineError: PEFT is not installed.
    """
    if importlib.util.find_spec("peft") is None:
        raise FrostlineError("--keep-adapter needs PEFT: install it with `pip install peft`, or leave the flag out.")


@torch.no_grad()
def write_adapter(folder: Path, spec: RunSpec, pretrained: Pretrained) -> None:
    """Write the updates that the model holds since the run ``spec``, as ``adapter_config.json`` and safetensors.

    The factors are computed from the merged matrices by a singular value decomposition, so their product equals the trained
    update except for rounding. Head and pooler are saved as they are. The adapter has no type of task, because PEFT would then
    look for a head of one module.
    """
    from peft import LoraConfig

    model, places = pretrained.model, pretrained.anatomy.places
    changed = {n: p for n, p in model.named_parameters() if n in spec.to_train.parameters(pretrained.anatomy)}
    matrices = {name: p for name, p in changed.items() if layer_number(places[name]) is not None}
    transposed, scale = transposed_in(model, matrices), spec.way.low_rank_scale
    rank = rank_of(spec, model, pretrained.anatomy)
    tensors: dict[str, Tensor] = {}
    for name, weight in matrices.items():
        update = weight - pretrained.pretrained_value(name)
        up, down = _factors((update.T if name in transposed else update) / scale, rank)
        path = PREFIX + module_of(name)
        tensors |= {f"{path}.lora_A.weight": down, f"{path}.lora_B.weight": up}
    tensors |= {PREFIX + name: p for name, p in changed.items() if name not in matrices}
    config = LoraConfig(
        r=rank,
        lora_alpha=scale * rank,
        target_modules=sorted(map(module_of, matrices)),
        modules_to_save=sorted({module_of(name) for name in changed if name not in matrices}),
        fan_in_fan_out=bool(transposed),
        base_model_name_or_path=pretrained.name,
        inference_mode=True,
    )
    config.save_pretrained(folder)
    save_file(
        {name: x.detach().cpu().contiguous() for name, x in tensors.items()}, folder / "adapter_model.safetensors"
    )


def _factors(update: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """``up`` and ``down`` whose product is an update of this rank."""
    left, values, right = torch.linalg.svd(update.float(), full_matrices=False)
    root = values[:rank].sqrt()
    return left[:, :rank] * root, root[:, None] * right[:rank]
