"""A pretrained model from the hub or a folder, ready to be cut: its tokenizer, its layers, and its identity."""

import hashlib
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from frostline import FrostlineError
from frostline.fast.mapped_pages import release_mapped_pages
from frostline.fast.optimizer import clear_gradients
from frostline.fast.switch import enabled
from frostline.model.anatomy import EMBEDDINGS, HEAD, LAYER, POOLER, Anatomy, find_layers
from frostline.model.unread import take_away, unread

WANTED_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
LONGEST = 512  # tokens, where neither the user nor the model sets a lower limit


@dataclass
class Pretrained:
    """A model with its pretrained weights, and what is needed to put them back before each run."""

    name: str
    folder: Path
    revision: str | None
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    anatomy: Anatomy
    weights: str  # digest of configuration and weights
    vocabulary: str  # digest of the tokenizer's files
    max_length: int  # the most tokens that the model takes, at most LONGEST
    new: frozenset[str]  # parameters that the checkpoint does not hold, drawn anew from every run's seed
    read: Callable[[], PreTrainedModel]  # the model once more, as the checkpoint has it
    use_cache: bool | None = None  # what its configuration says of it, which training has off; None: nothing
    _changed: dict[str, Tensor] = field(default_factory=dict)  # pretrained values of what was trained, in a copy
    _absent: dict[str, nn.Parameter] = field(default_factory=dict)  # what is done without for now

    def start(self, names: frozenset[str], generator_seed: int) -> dict[str, nn.Parameter]:
        """Make exactly ``names`` trainable, with the pretrained values, and draw the head from the seed."""
        self.release(self._changed.keys() - names)  # what this run does not train needs no copy
        parameters = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, value in self._changed.items():
                parameters[name].copy_(value)
        for name in names - self.new - self._changed.keys():
            value = parameters[name].data
            parameters[name].data = value.clone()  # for which there may be no memory: then nothing has changed
            self._changed[name] = value
        release_mapped_pages(self._changed.values())
        self._draw(generator_seed)
        for name, parameter in parameters.items():
            parameter.requires_grad_(name in names)
        return {name: p for name, p in parameters.items() if name in names}

    def release(self, names: Set[str] | None = None) -> None:
        """Put the pretrained values of these (None: all) back, and give up the copies that were trained, and all gradients."""
        for name in list(self._changed if names is None else names):
            self.model.get_parameter(name).data = self._changed.pop(name)
        clear_gradients(self.model.parameters())

    def have(self, cut: int | None) -> None:
        """Have the weights that the model needs from ``cut`` on (None: all), whatever was let go before."""
        needed = self._absent.keys() - unread(self.model, self.anatomy, cut).keys()
        if needed:
            for name, value in self._values(needed).items():
                self._absent[name].data = value.to(self._absent[name].device)
                del self._absent[name]

    def let_go(self, cut: int | None) -> None:
        """Do without the weights that the model does not need from ``cut`` on."""
        more = {n: p for n, p in unread(self.model, self.anatomy, cut).items() if n not in self._absent}
        if not more or not enabled("unread"):
            return
        self._absent |= more
        take_away(more.values())
        for name in more:
            self._changed.pop(name, None)
        if self.model.device.type == "cpu":
            self._map_anew()

    def _map_anew(self) -> None:
        """A mapped file takes memory for all of it that was ever read; of a new map only what is there is read."""
        there = {name: p for name, p in self.model.named_parameters() if name not in self._absent}
        for name, value in self._values(there.keys()).items():
            if name in self._changed:
                self._changed[name] = value
            else:
                there[name].data = there[name].data.clone() if name in self.new else value

    def _values(self, names: Set[str]) -> dict[str, Tensor]:
        """The pretrained values of these parameters, read anew."""
        with torch.random.fork_rng(devices=[]):
            return {name: p.detach() for name, p in self.read().named_parameters() if name in names}

    def _draw(self, seed: int) -> None:
        """transformers' own initialisation of what is new, from this seed alone."""
        modules = sorted({name.rpartition(".")[0] for name in self.new})
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            for path in modules:
                module = self.model.get_submodule(path)
                old = {name: p.detach().clone() for name, p in module.named_parameters(recurse=False)}
                for tensor in (module, *module.parameters(recurse=False)):
                    tensor._is_hf_initialized = False
                self.model._init_weights(module)
                for name, value in old.items():
                    if f"{path}.{name}".removeprefix(".") not in self.new:
                        module.get_parameter(name).copy_(value)

    def frozen_digest(self, trained: frozenset[str]) -> str:
        """A digest of every byte of the parameters that are there and not trained (and not new)."""
        import xxhash

        digest = xxhash.xxh3_128()
        for name, parameter in self.model.named_parameters():
            if name not in trained and name not in self.new and name not in self._absent:
                digest.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()


def set_train_mode(model: PreTrainedModel, anatomy: Anatomy, trained: frozenset[str]) -> None:
    """Dropout on in what is trained and in the parts around the head; the frozen part in eval mode."""
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
    """Modules that hold parameters, but none that is trained, and all that is in them."""
    train = {id(p) for name, p in model.named_parameters() if name in trained}
    for module in model.modules():
        held = {id(p) for p in module.parameters()}
        if held and not held & train:
            yield from module.modules()


def load_pretrained(
    name: str,
    *,
    labels: Sequence[str],
    problem_type: str,
    revision: str | None = None,
    trust_remote_code: bool = False,
    device: torch.device | str = "cpu",
) -> Pretrained:
    """Load ``name``, a hub name or a folder, for classification into ``labels`` (none: regression on a number).

    Raises:
        FrostlineError: no such model, no tokenizer, weights that are not safetensors, or a type that cannot be cut.
    """
    if trust_remote_code and not revision and not Path(name).expanduser().is_dir():
        raise FrostlineError("trust_remote_code runs code from the hub: pin it with --revision COMMIT.")
    folder, commit = _folder(name, revision, WANTED_FILES + ["*.py"] * trust_remote_code)
    trust = {"trust_remote_code": trust_remote_code}
    config = demand(lambda: AutoConfig.from_pretrained(folder, **trust), name, "its config.json cannot be used")
    require_files(name, folder)
    tokenizer = load_tokenizer(name, folder, trust_remote_code=trust_remote_code)
    config.num_labels = len(labels) or 1
    if labels:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: n for n, label in enumerate(labels)}
    config.problem_type = problem_type
    config.pad_token_id = tokenizer.pad_token_id
    config.get_text_config().pad_token_id = tokenizer.pad_token_id
    use_cache = getattr(config, "use_cache", None)
    if use_cache is not None:
        config.use_cache = False

    def read() -> tuple[PreTrainedModel, Any]:
        with quiet():
            return demand(  # type: ignore[no-any-return]
                lambda: AutoModelForSequenceClassification.from_pretrained(
                    folder,
                    config=config,
                    dtype=torch.float32,
                    use_safetensors=True,
                    ignore_mismatched_sizes=True,
                    output_loading_info=True,
                    **trust,
                ),
                name,
                "transformers cannot load it for classification",
            )

    model, info = read()
    model.to(device).eval()
    anatomy = find_layers(model)
    return Pretrained(
        name=name,
        folder=folder,
        revision=commit,
        model=model,
        tokenizer=tokenizer,
        anatomy=anatomy,
        weights=_digest([*sorted(folder.glob("*.safetensors")), folder / "config.json"]),
        vocabulary=_digest(sorted(p for p in folder.iterdir() if p.name in _tokenizer_files(folder))),
        max_length=_max_length(model, tokenizer),
        new=_new_parameters(model, anatomy, info),
        read=lambda: read()[0],
        use_cache=use_cache,
    )


def load_config(name: str, *, revision: str | None = None) -> PreTrainedConfig:
    """The configuration of a hub model or a folder, without its weights.

    Raises:
        FrostlineError: there is no such model, or its config.json cannot be used.
    """
    folder, _ = _folder(name, revision, ["config.json"])
    return demand(lambda: AutoConfig.from_pretrained(folder), name, "its config.json cannot be used")


def _folder(name: str, revision: str | None, files: list[str]) -> tuple[Path, str | None]:
    """The folder with the files, and the commit where they come from the hub."""
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise FrostlineError(
                f"The folder {name} is no model: it has no config.json. Give a folder that save_pretrained wrote, or a hub name."
            )
        if revision:
            raise FrostlineError(
                f"{name} is a folder, and a folder has no revision {revision!r}: leave --revision out, or give a hub name."
            )
        return path, None
    if path.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise FrostlineError(f"There is no model folder {name}: check the path, or give a hub name such as org/model.")
    try:
        snapshot = Path(snapshot_download(name, revision=revision, allow_patterns=files))
    except (OSError, ValueError, HFValidationError) as error:
        raise FrostlineError(
            f"The model {name!r} (revision {revision or 'main'}) is neither a folder here nor to be had from the hub "
            f"({type(error).__name__}): check its name, or download it where there is a network and give its folder."
        ) from error
    return snapshot, snapshot.name


def require_files(name: str, folder: Path) -> None:
    if not list(folder.glob("*.safetensors")):
        other = [p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth", ".h5", ".msgpack", ".ckpt")]
        found = f"only {', '.join(sorted(other))}" if other else "no weights at all"
        raise FrostlineError(
            f"The model {name} has no weights in safetensors ({found}), and frostline reads nothing else: "
            "convert them with transformers' save_pretrained, which writes model.safetensors."
        )
    if not _tokenizer_files(folder):
        raise FrostlineError(
            f"The model {name} has no tokenizer: tokenizer.json or a vocabulary file belongs beside config.json. "
            "Copy those of the model it came from."
        )


def _tokenizer_files(folder: Path) -> set[str]:
    known = {"tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model", "spm.model"}
    return {
        p.name for p in folder.iterdir() if p.name in known or (p.name.startswith("tokenizer") and p.suffix == ".model")
    }


def demand(load: Any, name: str, what: str) -> Any:
    """Turn whatever a library says of unusable files into one sentence."""
    try:
        return load()
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        ImportError,
        RuntimeError,
        SafetensorError,
    ) as error:
        first = next(iter(str(error).strip().splitlines()), "")
        raise FrostlineError(
            f"The model {name} cannot be used: {what} ({type(error).__name__}: {first[:200].rstrip('.')}). "
            "Get its files again, or choose another model."
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """No table of newly drawn parameters and no bar for a load of a second: both are expected here."""
    level = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()
    bars = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.utils.logging.set_verbosity(level)
        if bars:
            transformers.utils.logging.enable_progress_bar()


def _new_parameters(model: PreTrainedModel, anatomy: Anatomy, info: Any) -> frozenset[str]:
    """The head, and the pooler where the checkpoint has none; anything else that is missing is an error."""
    absent = set(info["missing_keys"]) | {key[0] if isinstance(key, tuple) else key for key in info["mismatched_keys"]}
    parameters = dict(model.named_parameters())
    head = {name for name, place in anatomy.places.items() if place == HEAD}
    missing = {name for name in absent if name in parameters} - head
    body = sorted(name for name in missing if anatomy.places[name] != POOLER)
    if body:
        raise FrostlineError(
            f"The model's weights lack {len(body)} parameters of its body ({body[0]}, ...): the folder does not hold "
            "the checkpoint that its config.json describes. Download it again."
        )
    return frozenset(head | missing)


def most_tokens(model: PreTrainedModel) -> int | None:
    """How many tokens a text may have at most, by the positions that the model knows; None where it does not say."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if not positions:
        return None
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding) and m.num_embeddings == positions]
    # RoBERTa and its kin number positions from the one of padding on: 514 of them take 512 tokens.
    return int(positions - max((m.padding_idx + 1 for m in tables if m.padding_idx is not None), default=0))


def _max_length(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    positions = getattr(model.config.get_text_config(), "n_positions", None)
    return int(min(tokenizer.model_max_length, most_tokens(model) or positions or LONGEST, LONGEST))


def load_tokenizer(name: str, folder: Path, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer in ``folder``; one without a token for padding pads with another, which attention does not see.

    Raises:
        FrostlineError: there is none that can be used, in the model called ``name``.
    """
    tokenizer: PreTrainedTokenizerBase = demand(
        lambda: AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code),
        name,
        "its tokenizer cannot be loaded",
    )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    tokenizer.padding_side = "right"
    return tokenizer


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0")
        with file.open("rb") as handle:
            while block := handle.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()
