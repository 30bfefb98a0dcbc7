"""Training mode for what is trained, eval mode for what is frozen."""

from collections.abc import Iterator

from torch import nn
from transformers import PreTrainedModel

from frostline.model.anatomy import EMBEDDINGS, LAYER, Anatomy


def set_train_mode(model: PreTrainedModel, anatomy: Anatomy, trained: frozenset[str]) -> None:
    """Set trained modules and those around the head to train mode, and frozen modules to eval mode."""
    places = {anatomy.places[name] for name in trained}
    model.train(EMBEDDINGS in places)
    for number, layer in enumerate(anatomy.layers(model)):
        layer.train(f"{LAYER}{number}" in places)
    for path in {name.rpartition(".")[0] for name in trained}:
        model.get_submodule(path).training = True
    base = getattr(model, model.base_model_prefix, None)
    inside = set() if base is None else set(base.modules())
    for module in model.modules():
        if module is not model and module not in inside:
            module.training = True
    for module in frozen_modules(model, trained):
        module.eval()


def frozen_modules(model: nn.Module, trained: frozenset[str]) -> Iterator[nn.Module]:
    """Modules with parameters of which none is trained, and all modules inside them."""
    train = {id(p) for name, p in model.named_parameters() if name in trained}
    for module in model.modules():
        held = {id(p) for p in module.parameters()}
        if held and not held & train:
            yield from module.modules()
