"""The audit of a run: check on the model which parameters were frozen and which were trained."""

from collections.abc import Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor, nn

from frostline.fast.optimizer import gradient_of
from frostline.model.anatomy import count_parameters, frozen_modules
from frostline.model.pretrained import Pretrained
from frostline.model.terms import layer_number
from frostline.model.weights import digest_of
from frostline.training.learner import Learner
from frostline.training.result import AuditRecord, Parameters
from frostline.training.run import State


def parameters_by_place(pretrained: Pretrained, trained: Set[str]) -> dict[str, Parameters]:
    """How many parameters are trained and frozen in each place, given the names of the trained ones."""
    parameters, by_place = dict(pretrained.model.named_parameters()), dict[str, list[int]]()
    for name, place in pretrained.anatomy.places.items():
        by_place.setdefault(place, [0, 0])[name in trained] += parameters[name].numel()
    return {place: Parameters(trained=trained, frozen=frozen) for place, (frozen, trained) in by_place.items()}


class Audit:
    """Checks before, during and after training that exactly the parameters ``names`` are trained.

    It is made before the training, when the ``learners`` have their first values.
    """

    def __init__(self, pretrained: Pretrained, names: frozenset[str], learners: Sequence[Learner]) -> None:
        self.pretrained, self.names, self.learners = pretrained, names, learners
        self.before = pretrained.frozen_digest(names)
        # of the parameters that do not start from pretrained values; of the others, the values themselves exist
        self.first_digests = [
            {name: digest_of(p) for name, p in learner.learned.items() if not self._is_pretrained(name, p)}
            for learner in learners
        ]
        self.frozen_in_train_mode = 0

    def state(self) -> State:
        """What a continued training cannot find out: where the present phase started."""
        return {"first_digests": self.first_digests}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue the audit of an interrupted training."""
        self.first_digests = state["first_digests"]

    def check_modes(self) -> None:
        """Count the frozen modules that are not in eval mode, including dropout modules inside them."""
        frozen = set(frozen_modules(self.pretrained.model, self.names))
        self.frozen_in_train_mode = sum(module.training for module in frozen)

    def records(self, *, frozen_dropout: bool) -> list[AuditRecord]:
        """Audit the model and the parameters of each run after training.

        Raises:
            AssertionError: A frozen parameter changed, has a gradient, or was in train mode, or the optimizer did not hold
                exactly the trained parameters. Such a run has no result.
        """
        model, anatomy = self.pretrained.model, self.pretrained.anatomy
        depth, head = anatomy.depth(self.names), self.pretrained.head
        parameters = dict(model.named_parameters())
        share = 1.0 if depth is None else max(depth, head.layers) / anatomy.count
        checks = {
            "optimizer_holds_exactly_the_trained": all(self._held_exactly(learner) for learner in self.learners),
            "each_parameter_in_one_place": set(anatomy.places) == set(parameters),
            "frozen_bytes_unchanged": self.pretrained.frozen_digest(self.names) == self.before,
            "frozen_gradients_none": all(gradient_of(p) is None for n, p in parameters.items() if n not in self.names),
            "frozen_in_eval_mode": self.frozen_in_train_mode == 0 and not frozen_dropout,
        }
        wrong = [name for name, holds in checks.items() if not holds]
        assert wrong in ([], ["frozen_in_eval_mode"] if frozen_dropout else []), f"audit: {wrong}"
        records = []
        for learner, first in zip(self.learners, self.first_digests, strict=True):
            moved = self._moved(learner, first)
            moved_places = {anatomy.places[name] for name in moved}
            records.append(
                AuditRecord(
                    parameters=count_parameters(model),
                    trainable_parameters=sum(p.numel() for p in learner.parameters.values()),
                    tuned_share=min(1.0, share + share_of_lstm(self.pretrained)),
                    by_place=parameters_by_place(self.pretrained, self.names),
                    checks=checks,
                    clipped_parameters=len({id(p) for p in learner.parameters.values()}),
                    moved=[place for place in dict.fromkeys(anatomy.places.values()) if place in moved_places],
                    merged=[name for name in moved if name not in learner.parameters],
                )
            )
        return records

    def _held_exactly(self, learner: Learner) -> bool:
        """Whether the optimizer holds exactly the trained parameters."""
        trained = {id(p) for p in learner.parameters.values()}
        held = [id(p) for group in learner.groups for p in group["params"]]
        return learner.learned.keys() == self.names and len(held) == len(trained) and set(held) == trained

    def _moved(self, learner: Learner, first_digests: Mapping[str, str]) -> list[str]:
        """The names of the parameters that have other values than before the training."""
        return [
            name
            for name, p in learner.learned.items()
            if (digest_of(p) != first_digests[name] if name in first_digests else not self._is_pretrained(name, p))
        ]

    def _is_pretrained(self, name: str, parameter: Tensor) -> bool:
        """Whether a trained parameter has its pretrained value."""
        has_one = name not in self.pretrained.new
        return has_one and torch.equal(parameter, self.pretrained.pretrained_value(name))


def share_of_lstm(pretrained: Pretrained) -> float:
    """The weights of LSTMs in the head, which run for every token, as a share of the weights of all layers."""
    model, places = pretrained.model, pretrained.anatomy.places
    lstm = sum(p.numel() for module in model.modules() if isinstance(module, nn.LSTM) for p in module.parameters())
    layers = sum(p.numel() for name, p in model.named_parameters() if layer_number(places[name]) is not None)
    return float(lstm / layers)
