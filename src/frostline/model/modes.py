"""Train mode for trained modules, eval mode for frozen ones."""

from collections.abc import Iterator, Set

from torch import nn
from transformers import PreTrainedModel

from frostline.model.anatomy import Anatomy
from frostline.model.module_paths import paths_to
from frostline.model.places import EMBEDDINGS, layer_place


def set_train_mode(model: PreTrainedModel, anatomy: Anatomy, trained: frozenset[str]) -> None:
    """Set train mode for trained modules and for modules outside the base model, and eval mode for frozen modules.

    A layer or the embeddings are in train mode as a whole if one of their parameters is in ``trained``. Frozen modules
    inside them are in eval mode.
    """
    places = {anatomy.places[name] for name in trained}
    model.train(EMBEDDINGS in places)
    for number, layer in enumerate(anatomy.layers(model)):
        layer.train(layer_place(number) in places)
    for path in {name.rpartition(".")[0] for name in trained}:
        model.get_submodule(path).training = True
    base = getattr(model, model.base_model_prefix, None)
    in_base = set() if base is None else set(base.modules())
    for module in model.modules():
        if module is not model and module not in in_base:
            module.training = True
    for module in frozen_modules(model, trained):
        module.training = False


def frozen_modules(model: nn.Module, trained: Set[str]) -> Iterator[nn.Module]:
    """All modules that have parameters but no trained ones, and the modules inside them."""
    trained_ids = {id(p) for name, p in model.named_parameters() if name in trained}
    holders, trained_holders = set[str](), set[str]()  # paths of modules with parameters, and with trained ones
    for name, p in model.named_parameters(remove_duplicate=False):
        holders.update(_from_root(name))
        if id(p) in trained_ids:
            trained_holders.update(_from_root(name))
    frozen = holders - trained_holders
    for path, module in model.named_modules():
        if not frozen.isdisjoint(_from_root(path)):
            yield module


def _from_root(name: str) -> list[str]:
    """The path of the model itself, which is empty, and those from there to a parameter or module."""
    return ["", *paths_to(name)]
