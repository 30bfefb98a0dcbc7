"""A tiny model, tables and settings for it, runs of sweeps with it, and calls of the command line."""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from frostline import FrostlineError
from frostline.api.keywords import split_off_tables
from frostline.api.results import Results
from frostline.api.sweep import plan, sweep
from frostline.data.files import seal_toml, unseal_toml
from frostline.fast.switch import SPEED_UPS, enabled
from frostline.frozen.exactness import Check
from frostline.model.weights import digest_of, is_unread
from frostline.sweeps.execution.execute import execute
from frostline.sweeps.plan import Plan
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder, read_rows, register
from frostline.sweeps.results.store import DAMAGED, Store, set_aside
from frostline.sweeps.results.tables import COST
from frostline.sweeps.settings import Settings, make_settings
from frostline.training.result import Failure, RunRecord
from pages import answer_of

GOOD = ("good", "great", "fine", "lovely", "warm", "bright")
BAD = ("bad", "poor", "dull", "awful", "cold", "grim")
OTHER = ("the", "film", "was", "a", "plot", "and", "very", "not", "story", "cast", "with", "it")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def tiny_tokenizer(*inputs: str) -> PreTrainedTokenizerFast:
    """A tokenizer of the words of :func:`sentences`, for a model with these inputs."""
    vocabulary = {word: n for n, word in enumerate((*SPECIAL, *GOOD, *BAD, *OTHER))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=32,
        model_input_names=list(inputs),
    )


def tiny_bert_folder(folder: Path, *, layers: int = 3, seed: int = 0, dropout: float = 0.1) -> Path:
    """Write the model and its tokenizer into ``folder``."""
    fast = tiny_tokenizer("input_ids", "token_type_ids", "attention_mask")
    config = BertConfig(
        vocab_size=len(fast),
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        initializer_range=0.2,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        BertModel(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def sentences(count: int, *, seed: int = 0) -> list[dict[str, str]]:
    """``count`` distinct rows of text and label. The labels alternate, and each text has one word that decides its label."""
    generator = torch.Generator().manual_seed(seed)

    def pick(words: tuple[str, ...]) -> str:
        return words[int(torch.randint(len(words), (), generator=generator))]

    rows: dict[str, str] = {}
    while len(rows) < count:
        label = ("negative", "positive")[len(rows) % 2]
        words = [pick(OTHER) for _ in range(2 + int(torch.randint(6, (), generator=generator)))]
        words.insert(len(words) // 2, pick(GOOD if label == "positive" else BAD))
        rows.setdefault(" ".join(words), label)
    return [{"text": text, "label": label} for text, label in rows.items()]


def write_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    """Write rows as a CSV file with a header."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_sst2(folder: Path, *, train: int, dev: int) -> None:
    """Write so many rows of each split as SST-2 in its original layout."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count, seed in (("train", train, 0), ("dev", dev, 1)):
        rows = [f"{row['text']}\t{int(row['label'] == 'positive')}" for row in sentences(count, seed=seed)]
        (folder / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")


QUICK = {  # with these settings, the tiny model learns a little within a second
    "num_train_epochs": 4,
    "per_device_train_batch_size": 8,
    "learning_rate": 1e-3,
    "head_learning_rate": 1e-2,
    "warmup_steps": 0,
    "precision": "float32",
}
EXACT = {"precision": "float32"}
SMALL = {**QUICK, "num_train_epochs": 1, "train_size": 20, "test": "none"}


def contents(folder: Path) -> dict[str, bytes]:
    """The content of every file in a folder, by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def remembered(check: Callable[..., list[Check]]) -> Callable[..., list[Check]]:
    """The exactness check, which is not repeated for a model with the same modules and weights below its head, all in memory."""
    found: dict[tuple[object, ...], list[Check]] = {}

    def look_up(model: Any, **options: Any) -> list[Check]:
        weights = model.base_model.state_dict()
        if any(map(is_unread, weights.values())):
            return check(model, **options)
        digests = (f"{name} {digest_of(value)}" for name, value in weights.items())
        shown = repr(model), repr(getattr(model, "head", None) and vars(model.head).get("kind")), str(model.device)
        key = (type(model), *digests, *shown, str(model.config), repr(options), *map(enabled, SPEED_UPS))
        if key not in found:
            found[key] = check(model, **options)
        return found[key]

    return look_up


def settings_of(**settings: Any) -> Settings:
    """The settings of a call of :func:`frostline.sweep`."""
    return make_settings({name: value for name, value in split_off_tables(settings)[1].items() if name != "progress"})


def plan_of(**settings: Any) -> Plan:
    """The plan of a sweep. Nothing is timed."""
    return plan(timed=False, **{"progress": Progress(), **settings})


def run_sweep(settings: Mapping[str, Any], *, progress: Progress | None = None, **other: Any) -> Results:
    """Train the runs of a sweep, without report and model. ``progress`` shows the training."""
    made = plan_of(**{**settings, **other, "progress": Progress()})
    made.store.retry({run.digest for run in made.requested}, ("failed",))
    register(made)
    execute(made, made.requested, progress or Progress())
    return Results(made.store.out)


class CommandResult(NamedTuple):
    """The exit code, stdout and stderr of a command."""

    code: int
    out: str
    err: str


Frostline = Callable[..., CommandResult]
TrainWith = Callable[[Callable[..., Any]], None]  # the fixture ``train_with``


FAST = "--num-train-epochs 1 --per-device-train-batch-size 8 --learning-rate 1e-3 --precision float32".split()  # noqa: SIM905


LEAST: dict[str, Any] = {"model": "m", "train": "t.csv", "tune": "0,1,all", "out": "o"}


def spec(**values: Any) -> Settings:
    return make_settings({**LEAST, **values})


def refusal(**values: Any) -> str:
    with pytest.raises(FrostlineError) as caught:
        spec(**values)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class Notes(Progress):
    """Collects the sentences that a user would read."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


class SetsAside(Progress):
    """Sets the first result aside as soon as it is shown, as another process does that has found it damaged."""

    def __init__(self, out: Path) -> None:
        super().__init__()
        self.out, self.aside = out, list[str]()

    def result(self, ended: RunRecord | Failure) -> None:
        super().result(ended)
        if not self.aside:
            self.aside.append(ended.digest)
            set_aside(Store(self.out).runs / ended.digest, self.out / DAMAGED)


def table(results: Results) -> pd.DataFrame:
    """The results of a sweep without times and memory, which differ between two runs of the same sweep."""
    return results.table().drop(columns=list(COST))


def assert_same_predictions(ours: Store, theirs: Store) -> None:
    """The same runs have results, with the same predictions; none is damaged, and no lease is left."""
    assert ours.done() == theirs.done() and not list(ours.check())
    for digest in theirs.done():
        assert ours.files(digest)["predictions.safetensors"] == theirs.files(digest)["predictions.safetensors"]
    assert not list((ours.out / "leases").iterdir())


def change_settings(out: Path, old: str, new: str) -> None:
    """Replace a text in the sweep.toml of a folder, as if frostline had written the new one."""
    text = unseal_toml((out / "sweep.toml").read_bytes())
    assert old in text
    (out / "sweep.toml").write_bytes(seal_toml(text.replace(old, new)))


LABELS = ("<script>alert(1)</script>", "=1+1", "w" * 120, "``` | مرحبا 😀 [x](y) **b** {{ 7 * 7 }}")
WORDS = ("good", "bad", "warm", "cold")
MAX_LENGTH = 12


def saved_sweep(base: Path, out: Path, label: Callable[[int], Any], **settings: Any) -> Path:
    """Run a sweep into ``out`` and save its model. ``label(n)`` is the label of a text whose first word is ``WORDS[n]``."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, 4, 160)
    texts = [f"{WORDS[n]} {' '.join(rng.choice(OTHER, rng.integers(2, 20)))}" for n in first]
    rows = pd.DataFrame({"text": texts, "label": [label(n) for n in first]})
    sweep(
        model=str(base), train=rows[:80], validation=rows[80:], test="none", seeds=2, out=str(out),
        learning_rate=5e-3, max_length=MAX_LENGTH, max_truncated=1.0, precision="float32", task="films | <b>",
        **{"tune": "0,all", "head_learning_rate": 2e-2, "num_train_epochs": 4, **settings},
    )  # fmt: skip
    return out


def recommended_predictions(out: Path) -> tuple[list[str], np.ndarray]:
    """The validation texts, and the logits of the recommended run for them."""
    examples = read_rows(out, "validation")
    assert examples is not None
    run = answer_of(out).sizes[0].recommended.run
    return list(examples.texts), Folder(out).store.predictions(run)["validation_best"]
