"""Ways to tune as data: what a run trains, from which values, how fast and in which order.

``Way(tune=2)`` tunes the last 2 layers. Every other field changes one thing of that, and most fields can be combined. The command
line knows many ways by name. To add one, add an entry to ``NAMED_WAYS``, or to ``NUMBERED_WAYS`` if a number ends its name.

A new field of ``Way`` needs a place in ``training/`` that reads it, or in ``Way.parameters``: the cut, the exactness check, the
cost and the audit follow from the names of the parameters. Imports no torch, because settings are read without it.
"""

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from frostline import FrostlineError
from frostline.data.kinds import Strict
from frostline.data.wording import did_you_mean, quoted
from frostline.model.terms import EMBEDDINGS, FINAL_NORM, HEAD, OWN_HEAD, POOLER, HeadKind, layer_number, layer_place
from frostline.statistics.recipe import AUTO, FULL, HEAD_ONLY, NAMED, Recipe
from frostline.statistics.run_result import ALTERNATIVES

if TYPE_CHECKING:  # it imports torch
    from frostline.model.anatomy import Anatomy


BY_LAYER = ("tune", "layers", "only", "low_rank", "reinitialized", "transferred")  # fields about whole layers


class Way(Strict):
    """A way to tune. Every field changes one thing of tuning the last k layers; most of them can be combined.

    A TOML file defines a way of its own as a table ``[way.NAME]`` with these fields.
    """

    estimator: Literal["fine-tuning", "probe", "words", "setfit"] = Field(
        default="fine-tuning",
        description="what learns: fine-tuning of the layers, or without the training loop: probe (a linear probe on frozen "
        "features), words (a TF-IDF model) or setfit (contrastive fine-tuning of a sentence encoder)",
    )
    tune: Recipe = Field(default=FULL, description="the number of tuned layers, or full: all layers and the embeddings")
    layers: Literal["last", "first", "middle", "spread", "random"] = Field(
        default="last",
        description="which layers these are; spread: at equal distances; random: drawn from the run's seed",
    )
    only: Literal["all", "biases", "norms"] = Field(
        default="all",
        description="which of their parameters: all, biases (BitFit, Zaken et al. 2022), or those of norms",
    )
    modules: tuple[str, ...] | None = Field(
        default=None, description="module paths to train instead of layers, such as encoder.layer.11.attention"
    )
    signal_share: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="train this share of the weight matrices, those with the highest signal-to-noise ratios (Spectrum)",
    )
    low_rank: Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=r"^last [1-9]\d*$")] = Field(
        default=0,
        description="LoRA (Hu et al. 2022): the rank of the updates of the layers' weight matrices, or last 2: as many "
        "parameters as the last 2 layers have; 0: no LoRA",
    )
    low_rank_scale: float = Field(default=2.0, gt=0, description="factor of the low-rank updates, alpha / rank in PEFT")
    head_reads: Literal["type", "mean", "last"] = Field(
        default="type",
        description="what the head reads: what the model type reads, or with a new head the mean of all tokens or the last one",
    )
    lstm_width: int = Field(
        default=0,
        ge=0,
        description="units of each direction of a two-layer BiLSTM between the hidden states and the head (Devlin et al. "
        "2019, table 7); 0: none",
    )
    lstm_states: int = Field(default=1, ge=1, description="how many last hidden states are concatenated for the BiLSTM")
    reinitialized: int = Field(
        default=0, ge=0, description="the top layers that start from new values, as does the pooler (Zhang et al. 2021)"
    )
    transferred: int | None = Field(
        default=None,
        ge=0,
        description="the lowest layers that keep their pretrained values; all above start anew (Radford et al. 2018)",
    )
    rate_factor: float = Field(default=1.0, gt=0, description="factor of the grid's learning rates")
    layer_decay: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="factor of the learning rate from each layer to the one below it (Howard and Ruder 2018)",
    )
    bias_correction: bool = Field(
        default=True,
        description="whether AdamW corrects its moments for their start at zero; the optimizer of BERT did not",
    )
    order: Literal["at-once", "gradual", "head-first"] = Field(
        default="at-once",
        description="gradual: unfreeze one layer after the other from the top (Howard and Ruder 2018); head-first: start "
        "from a head that ridge regression fitted on the frozen model (LP-FT, Kumar et al. 2022)",
    )
    towards_pretrained: float = Field(
        default=0.0, ge=0, description="L2-SP (Li et al. 2018): the strength of the pull towards the pretrained weights"
    )
    mixout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="mixout (Lee et al. 2020): the share of weights that each step replaces by pretrained ones",
    )
    patience: int = Field(
        default=0, ge=0, description="stop after this many evaluations without a better score; 0: train all epochs"
    )

    @property
    def in_words(self) -> str:
        """The fields that differ from their defaults: ``tune last 2, low_rank 8``."""
        shown = self.model_dump(exclude_defaults=True, exclude={"modules"} if self.signal_share else None)
        return ", ".join(f"{name} {value}" for name, value in shown.items())

    @property
    def in_loop(self) -> bool:
        """Whether the training loop trains such runs, and not an estimator of :mod:`frostline.training.estimators`."""
        return self.estimator == "fine-tuning"

    @property
    def trains_model(self) -> bool:
        """Whether parameters of the model are trained, with a learning rate."""
        return self.estimator not in ("probe", "words")

    @property
    def chooses_by_weights(self) -> bool:
        """Whether modules are still to be chosen, by the weights of the pretrained model."""
        return self.signal_share > 0 and self.modules is None

    @property
    def head(self) -> HeadKind:
        """The kind of the head."""
        return HeadKind(self.head_reads, self.lstm_width, self.lstm_states if self.lstm_width else 1)

    @property
    def head_only(self) -> bool:
        """Whether only the head is trained."""
        return self.tune == HEAD_ONLY and not self.modules

    @property
    def drawn(self) -> bool:
        """Whether the seed of a run draws the layers that are trained."""
        return self.layers == "random"

    @property
    def alone(self) -> bool:
        """Whether such runs are trained one by one and not as stacks."""
        one_by_one = (self.low_rank, self.lstm_width, self.mixout, self.towards_pretrained, self.patience)
        return not self.in_loop or self.order != "at-once" or self.drawn or any(one_by_one)

    @property
    def low_rank_like(self) -> int:
        """The number of last layers that have as many parameters as the low-rank updates; 0 if the rank is given."""
        return int(self.low_rank.split()[1]) if isinstance(self.low_rank, str) else 0

    def parameters(self, anatomy: "Anatomy", *, pooler: bool = True, seed: int = 0) -> frozenset[str]:
        """Names of the trained parameters of a model. The head is among them, because it is newly initialized.

        The final norm is trained with any layer, so it is frozen at k = 0.

        Args:
            anatomy: The model's layers.
            pooler: Whether the pooler is trained if the head reads it. It is not with named modules, unless it is one of them.
            seed: Draws random layers.

        Raises:
            FrostlineError: The model has fewer layers, or a name matches no module.
        """
        if not self.trains_model:
            return frozenset()
        # a head of another kind, or a sentence encoder, does not read the pooler
        beside = {HEAD, *[POOLER] * (pooler and self.in_loop and self.head == OWN_HEAD)}
        if self.modules:
            from frostline.model.anatomy import parameters_in

            return parameters_in(anatomy, self.modules) | anatomy.within(beside if self.signal_share else {HEAD})
        return anatomy.within(beside) | self._of_layers(anatomy, seed)

    def require_layers(self, count: int, model: str = "the model") -> None:
        """Refuse more tuned layers than a model has, which the message calls ``model``.

        Raises:
            FrostlineError: There are more than ``count``.
        """
        k = self.tune.k
        if k is not None and k > count:
            raise FrostlineError(
                f"{k} tuned layers were requested, but {model} has {count}: give numbers from 0 to {count}, or `full`."
            )

    def _of_layers(self, anatomy: "Anatomy", seed: int) -> frozenset[str]:
        """Those of the parameters below the head."""
        names = anatomy.within(self._places_below_head(anatomy, seed))
        if self.low_rank:  # matrices of linear modules
            return frozenset(n for n in names & anatomy.matrices if layer_number(anatomy.places[n]) is not None)
        if self.only == "norms":
            return names & anatomy.norms
        return frozenset(name for name in names if self.only == "all" or name.endswith(".bias"))

    def _places_below_head(self, anatomy: "Anatomy", seed: int) -> set[str]:
        """The chosen layers, with the embeddings for full fine-tuning."""
        count, k = anatomy.count, self.tune.k
        if k is None:
            return {*anatomy.places.values()} - {HEAD, POOLER}
        self.require_layers(count)
        if self.drawn:
            numbers = random.Random(seed).sample(range(count), k)
        elif self.layers == "spread":
            numbers = [count - 1 - n * count // k for n in range(k)]
        else:
            lowest = {"last": count - k, "first": 0, "middle": (count - k) // 2}[self.layers]
            numbers = list(range(lowest, lowest + k))
        return {*map(layer_place, numbers), *[FINAL_NORM] * bool(numbers)}

    def learning_rate(self, of_grid: float) -> float:
        """The learning rate that a value of the grid stands for: ten times 3e-4 is 0.003, not 0.0029999999999999996."""
        return float(Decimal(repr(self.rate_factor)) * Decimal(repr(of_grid)))

    def learning_rate_factor(self, place: str, anatomy: "Anatomy") -> float:
        """The factor of the learning rate in a place: 1 for the last layer and all that follows it."""
        number = -1 if place == EMBEDDINGS else layer_number(place)
        return 1.0 if number is None else self.layer_decay ** (anatomy.count - 1 - number)

    @field_validator("tune")
    @classmethod
    def _layers_or_full(cls, value: Recipe) -> Recipe:
        if not value.is_k:
            raise ValueError("give a number of layers, or full")
        return value

    @model_validator(mode="after")
    def _compose(self) -> Self:
        """Refuse fields that contradict each other."""
        of_estimator = {"estimator", "rate_factor"} if self.estimator == "setfit" else {"estimator"}
        given = self.model_dump(exclude_defaults=True, exclude=of_estimator)
        if given and not self.in_loop:
            raise ValueError(
                f"{next(iter(given))} is about fine-tuning, but estimator = {self.estimator!r}: choose one of them"
            )
        rewriting = [name for name in ("low_rank", "mixout", "towards_pretrained") if getattr(self, name)]
        if len(rewriting) > 1:
            raise ValueError(f"{' and '.join(rewriting)} both change how the same weights learn: choose one of them")
        by_module = [name for name in ("modules", "signal_share") if getattr(self, name)]
        others = [name for name in BY_LAYER if getattr(self, name) != type(self).model_fields[name].default]
        if by_module and others:
            raise ValueError(
                f"{by_module[0]} chooses parts of layers, but {others[0]} is about whole layers: choose one of them"
            )
        if self.modules is not None and not self.modules:
            raise ValueError("modules is empty: give module paths, or leave it out")
        if self.layers != "last" and self.tune == FULL:
            raise ValueError(f"layers = {self.layers!r} needs a number of layers: give tune = 2, for example")
        without_layers = [name for name in ("layers", "only", "low_rank") if name in given]
        if self.tune == HEAD_ONLY and without_layers:
            raise ValueError(f"{without_layers[0]} is about tuned layers, but tune = 0: give tune = 2, for example")
        if self.low_rank and self.only != "all":
            raise ValueError(
                f"low_rank changes weight matrices, but only = {self.only!r} leaves them frozen: choose one"
            )
        if self.order == "head-first" and self.lstm_width:
            raise ValueError("order = 'head-first' fits a linear head, but lstm_width adds an LSTM: choose one of them")
        if self.lstm_states > 1 and not self.lstm_width:
            raise ValueError("lstm_states is about a BiLSTM: give lstm_width = 768, for example")
        if self.order == "gradual" and self.low_rank:
            raise ValueError("low_rank and order = 'gradual' cannot be combined: choose one of them")
        if self.order == "gradual" and self.layers != "last":
            raise ValueError(f"order = 'gradual' unfreezes from the top, but layers = {self.layers!r}: choose last")
        if self.order == "gradual" and by_module:
            raise ValueError(
                f"order = 'gradual' unfreezes whole layers, but {by_module[0]} parts of them: choose one of them"
            )
        self._check_new_layers()
        return self

    def _check_new_layers(self) -> None:
        """Refuse layers with new values beside fields that would leave some of them frozen, or that read pretrained ones."""
        new = "reinitialized" if self.reinitialized else "transferred"
        if self.reinitialized and self.transferred is not None:
            raise ValueError("reinitialized and transferred say both which layers start anew: choose one of them")
        if not self.reinitialized and self.transferred is None:
            return
        for name in ("layers", "only", "low_rank", "order"):
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                raise ValueError(f"{new} and {name} = {value!r} cannot be combined: choose one of them")
        if self.tune.k is not None and self.reinitialized > self.tune.k:
            raise ValueError(
                f"reinitialized = {self.reinitialized} is more than the {self.tune.k} tuned layers: the others would stay random"
            )
        if self.tune != FULL and self.transferred is not None:
            raise ValueError("transferred needs tune = 'full', because the layers above would stay random")


LAYER_DECAY = 0.9
LORA_RANK, LORA_RATES = 8, 10.0  # LoRA is trained at ten times the learning rates of whole matrices
MEAN_POOLED = "mean-pooled"  # a head that reads the mean of all tokens
NAMED_WAYS: Mapping[str, Way] = {
    "lora-all": Way(tune=FULL, low_rank=LORA_RANK, rate_factor=LORA_RATES),
    "llrd": Way(layer_decay=LAYER_DECAY),
    "gradual": Way(order="gradual"),
    "lp-ft": Way(order="head-first"),
    "bitfit": Way(only="biases", rate_factor=10.0),
    "norms": Way(only="norms", rate_factor=10.0),
    "l2-sp": Way(towards_pretrained=0.01),
    "mixout": Way(mixout=0.7),
    "uncorrected": Way(bias_correction=False),
    MEAN_POOLED: Way(head_reads="mean"),
    "bilstm": Way(tune=HEAD_ONLY, lstm_width=768),
    "bilstm-4": Way(tune=HEAD_ONLY, lstm_width=768, lstm_states=4),
    "probe": Way(estimator="probe"),
    "words": Way(estimator="words"),
    "setfit": Way(estimator="setfit", rate_factor=0.2),  # 1e-4 of the grid is the package's own 2e-5
}
NUMBERED_WAYS: Mapping[str, Callable[[int], Way]] = {  # of the number that ends a name, such as 2 of ``lora-2``
    "spectrum": lambda percent: Way(signal_share=percent / 100),
    "lora": lambda k: Way(tune=Recipe(k), low_rank=LORA_RANK, rate_factor=LORA_RATES),
    "lora-like": lambda k: Way(low_rank=f"last {k}", rate_factor=LORA_RATES),
    "first": lambda k: Way(tune=Recipe(k), layers="first"),
    "middle": lambda k: Way(tune=Recipe(k), layers="middle"),
    "spread": lambda k: Way(tune=Recipe(k), layers="spread"),
    "random": lambda k: Way(tune=Recipe(k), layers="random"),
    "gradual": lambda k: Way(tune=Recipe(k), order="gradual"),
    "llrd": lambda k: Way(tune=Recipe(k), layer_decay=LAYER_DECAY),
    "lp-ft": lambda k: Way(tune=Recipe(k), order="head-first"),
    "reinit": lambda count: Way(reinitialized=count),
    "transferred": lambda count: Way(transferred=count),
    MEAN_POOLED: lambda k: Way(tune=Recipe(k), head_reads="mean"),
}
EXAMPLES = (*NAMED_WAYS, *(f"{kind}-{25 if kind == 'spectrum' else 2}" for kind in NUMBERED_WAYS))  # one of each kind
NONE_TOO = ("transferred", MEAN_POOLED)  # may have 0 as their number


def way_named(name: str, own: Mapping[str, Way] = {}, modules: Sequence[str] | None = None) -> Way:
    """The way that a value of the grid stands for.

    Args:
        name: A value of the grid.
        own: The ways that the user defined, which come first.
        modules: What ``named`` trains.

    Raises:
        FrostlineError: No way has this name.
    """
    recipe = Recipe(name)
    if not recipe.is_way:
        return Way(modules=tuple(modules) if modules else None) if recipe == NAMED else Way(tune=recipe)
    way = own.get(name) or NAMED_WAYS.get(name) or _numbered(name)
    if way is None:
        if name == AUTO:
            raise FrostlineError(
                "tune cannot be auto here: it stands for every k in `frostline find`. Name what to train."
            )
        known = [*own, *EXAMPLES, "full", "head", "last-2", NAMED]
        hint = did_you_mean(name, known) or f": choose from {', '.join(known)}"
        raise FrostlineError(f"There is no way to tune called {quoted(name)}{hint}.")
    return way


def require_free(names: Iterable[str]) -> None:
    """Refuse names of own ways that mean something else already.

    Raises:
        FrostlineError: A name is that of k, full fine-tuning, named parts or a model that trains no layer, or has other letters.
    """
    for name in names:
        if not re.fullmatch("[a-z][a-z0-9-]*", name):
            raise FrostlineError(f"[way.{name}] is no name: use small letters, digits and -, beginning with a letter.")
        if name in (*ALTERNATIVES, AUTO) or not Recipe(name).is_way:
            raise FrostlineError(f"[way.{name}] has a name that means something else already: choose another one.")


def _numbered(name: str) -> Way | None:
    """The way whose name ends with a number of layers, such as ``lora-2``; None if there is none."""
    kind, _, digits = name.rpartition("-")
    if kind not in NUMBERED_WAYS or not digits.isdecimal():
        return None
    count = int(digits)
    if digits != str(count) or (not count and kind not in NONE_TOO) or (kind == "spectrum" and count > 100):
        return None
    return NUMBERED_WAYS[kind](count)
