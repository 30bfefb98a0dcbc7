"""The audit of a run: check on the model which parameters were frozen and which were trained."""

from collections.abc import Set
from typing import Any

import torch
from torch import nn

from frostline.fast.optimizer import gradient_of
from frostline.model.anatomy import count_parameters
from frostline.model.modes import frozen_modules
from frostline.model.places import layer_number
from frostline.model.pretrained import Pretrained
from frostline.training.learner import Learner


def parameters_by_place(pretrained: Pretrained, trained: Set[str]) -> dict[str, dict[str, int]]:
    """How many parameters are trained and frozen in each place, given the names of the trained ones."""
    parameters, by_place = dict(pretrained.model.named_parameters()), dict[str, dict[str, int]]()
    for name, place in pretrained.anatomy.places.items():
        counts = by_place.setdefault(place, {"trained": 0, "frozen": 0})
        counts["trained" if name in trained else "frozen"] += parameters[name].numel()
    return by_place


class Audit:
    """Checks before, during and after training that exactly the parameters ``names`` are trained."""

    def __init__(self, pretrained: Pretrained, names: frozenset[str]) -> None:
        self.pretrained, self.names = pretrained, names
        self.before = pretrained.frozen_digest(names)
        self.frozen_in_train_mode = 0

    def check_modes(self) -> None:
        """Count the frozen modules that are not in eval mode, including dropout modules inside them."""
        frozen = set(frozen_modules(self.pretrained.model, self.names))
        self.frozen_in_train_mode = sum(module.training for module in frozen)

    def facts(self, *, frozen_dropout: bool) -> dict[str, Any]:
        """Audit the model after training. The returned facts become part of the result.

        Raises:
            AssertionError: A frozen parameter changed, has a gradient, or was in train mode. Such a run has no result.
        """
        model, anatomy = self.pretrained.model, self.pretrained.anatomy
        depth, head = anatomy.depth(self.names), self.pretrained.head
        parameters = dict(model.named_parameters())
        share = 1.0 if depth is None else max(depth, head.layers) / anatomy.count
        facts = {
            "parameters": count_parameters(model),
            "tuned_share": min(1.0, share + self._share_of_lstm()),
            "by_place": parameters_by_place(self.pretrained, self.names),
            "each_parameter_in_one_place": set(anatomy.places) == set(parameters),
            "frozen_bytes_unchanged": self.pretrained.frozen_digest(self.names) == self.before,
            "frozen_gradients_none": all(gradient_of(p) is None for n, p in parameters.items() if n not in self.names),
            "frozen_in_eval_mode": self.frozen_in_train_mode == 0 and not frozen_dropout,
        }
        wrong = [name for name, value in facts.items() if value is False]
        assert wrong in ([], ["frozen_in_eval_mode"] if frozen_dropout else []), f"audit: {wrong}"
        return facts

    def _share_of_lstm(self) -> float:
        """The weights of LSTMs in the head, which run for every token, as a share of the weights of all layers."""
        model, places = self.pretrained.model, self.pretrained.anatomy.places
        lstm = sum(p.numel() for module in model.modules() if isinstance(module, nn.LSTM) for p in module.parameters())
        layers = sum(p.numel() for name, p in model.named_parameters() if layer_number(places[name]) is not None)
        return float(lstm / layers)

    def learner_facts(self, learner: Learner) -> dict[str, Any]:
        """Audit the parameters of one run of the stack. The returned facts become part of the result.

        Raises:
            AssertionError: The optimizer did not hold exactly the trained parameters.
        """
        trained = {id(p) for p in learner.parameters.values()}
        held = [id(p) for group in learner.groups for p in group["params"]]
        exactly = learner.learned.keys() == self.names and len(held) == len(trained) and set(held) == trained
        assert exactly, "audit: ['optimizer_holds_exactly_the_trained']"
        return {
            "trainable_parameters": sum(p.numel() for p in learner.parameters.values()),
            "optimizer_holds_exactly_the_trained": exactly,
            "clipped_parameters": len(trained),
            "moved": self._moved(learner),
        }

    def _moved(self, learner: Learner) -> list[str]:
        """The places whose parameters differ from their pretrained values, without those that have none."""
        places, new = self.pretrained.anatomy.places, self.pretrained.new
        moved = {
            places[name]
            for name, parameter in learner.learned.items()
            if name not in new and not torch.equal(parameter, self.pretrained.pretrained_value(name))
        }
        return [place for place in dict.fromkeys(places.values()) if place in moved]
