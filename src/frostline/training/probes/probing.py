"""What frozen features can do alone: probes after every layer of a model, from one pass over the texts."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from threadpoolctl import threadpool_limits

from frostline import FrostlineError
from frostline.data import Data, Examples
from frostline.data.folding import between_commas
from frostline.data.load import NO_TEST_SET
from frostline.frozen.forward_pass import POOLED, Need, Rows, ready_for_pass
from frostline.frozen.hidden_states import RESERVE, HiddenStates, cache_folder, keep, not_kept
from frostline.model.device import Machine, free_bytes, this_machine
from frostline.model.pretrained import Pretrained, load_pretrained
from frostline.model.tokens import Tokens
from frostline.report import formatting
from frostline.statistics.evidence import Labelled, Predictions
from frostline.statistics.metrics import check_metric, defined
from frostline.sweep.execution.progress import Progress
from frostline.sweep.prepare import encode_splits, existing, length_limit, read_data, recipe_of, splits_of
from frostline.sweep.results.store import make_folder
from frostline.sweep.specification import OF_MODEL_AND_DATA, SweepSpec, make_spec
from frostline.training.probes.linear import FITS, Probe
from frostline.training.probes.saved import Place, save_probe, vectors_of

WRITTEN = ("probe", "figures", "tables", "report.html", "probes.json")  # in the folder, and a probe_<column> each
LAST = 4  # so many of the last layers are also read together
ABREAST = 4  # probes that are fitted at the same time, at most: each takes memory for all rows


@dataclass(frozen=True)
class Reading:
    """A probe at one place, with its scores."""

    place: Place
    probe: Probe
    unseen: float  # score of the training rows, each by a fit that had not seen it
    validation: float
    values: Any  # [validation rows, C]


@dataclass(frozen=True)
class Probed:
    """Everything about one column of labels. ``facts`` are what probes.json says."""

    facts: dict[str, Any]
    best: Reading
    pretrained: Pretrained
    machine: Machine

    @property
    def sentence(self) -> str:
        """The answer in words."""
        said: str = self.facts["sentence"]
        return said

    def save(self, folder: Path) -> None:
        """Write the best probe into ``folder``, for ``frostline predict``."""
        save_probe(folder, self.best.place, self.best.probe, self.pretrained, self.machine, self.facts)


def probe(
    *,
    label_columns: str | Sequence[str] | None = None,
    kind: str = "ridge",
    out: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> list[Probed]:
    """Fit probes on first, mean and last token after every layer and, of the vector that does best, on the last four layers
    together, for each of the ``label_columns``.

    Takes the settings of :class:`frostline.sweep.specification.SweepSpec` that are about model and data; ``train`` and
    ``validation`` may also be a ``datasets.Dataset``, a ``DataFrame`` or a ``pyarrow.Table``. The strength of a
    probe's penalty, and the place that is named the best, are chosen on the training rows alone; validation is only
    reported. ``kind``: ridge or logistic. ``out``: a folder for page, table, figure and the best probe of each column.

    Raises:
        FrostlineError: whatever a user can put right.
    """
    progress = progress or Progress()
    if kind not in FITS:
        raise FrostlineError(f"There is no kind of probe {kind!r}: give {' or '.join(FITS)}.")
    if unsuitable := [name for name in settings if name not in OF_MODEL_AND_DATA]:
        raise FrostlineError(f"Probes have no setting {unsuitable[0]!r}: known are {', '.join(OF_MODEL_AND_DATA)}.")
    folder = _room(out)
    given = {name: settings.pop(name) for name in ("train", "validation") if _is_table(settings.get(name))}
    plain = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in settings.items()}
    spec = make_spec({**plain, "test": "none", "out": "", "tune": 0})
    named = between_commas(label_columns) if isinstance(label_columns, str) else label_columns
    columns: Sequence[str | None] = named or [spec.label_column]
    wanted = [read_data(spec.model_copy(update={"label_column": name}), given) for name in columns]
    progress.begin("loading the model")
    machine = this_machine(spec.device, spec.precision)
    first = wanted[0].task
    pretrained = load_pretrained(
        spec.model,
        labels=first.labels,
        problem_type=first.problem_type,
        revision=spec.revision,
        trust_remote_code=spec.trust_remote_code,
        device=machine.device,
    )
    progress.begin("encoding the texts")
    max_length = length_limit(spec, pretrained)
    encoded = [encode_splits(spec, splits_of(data), max_length, pretrained) for data in wanted]
    parts = [tokens for splits in encoded for tokens in splits.values()]
    ends = np.cumsum([len(part) for part in parts])
    rows = iter([np.arange(end - len(part), end) for part, end in zip(parts, ends, strict=True)])
    if folder is not None:
        make_folder(folder)
    states = _states(spec, pretrained, machine, Tokens.join(parts), progress)
    found = []
    for data, splits in zip(wanted, encoded, strict=True):
        progress.begin(f"probing for {data.task.columns.label}")
        metric = check_metric(spec.metric, data.task.problem_type, len(data.task.labels))
        own = {name: next(rows) for name in splits}
        found.append(probe_states(data, states, own, pretrained, machine, metric, max_length, kind))
    if folder is not None:
        write(folder, found)
    return found


def write(folder: Path, found: Sequence[Probed]) -> Path:
    """Write page, table and figure into ``folder``, and the best probe of each column of labels; gives the page's path."""
    from frostline.report.pages.probes import write_probes

    for one, own in zip(found, probe_folders(folder, found), strict=True):
        one.save(own)
    return write_probes(folder, [one.facts for one in found])


def probe_folders(folder: Path, found: Sequence[Probed]) -> list[Path]:
    """Where within ``folder`` the best probe of each column of labels is."""
    from frostline.report.pages.probes import suffixes

    return [folder / f"probe{suffix}" for suffix in suffixes([one.facts for one in found])]


def _room(out: str | Path | None) -> Path | None:
    """The folder to write into: empty, not there yet, or with the probes of an earlier call."""
    folder = None if out is None else Path(out).expanduser()
    if folder is not None and folder.exists() and not (folder.is_dir() and _ours(folder)):
        raise FrostlineError(f"{folder} exists and holds no probes: choose another --out, or an empty folder.")
    return folder


def _ours(folder: Path) -> bool:
    """Whether it was written here, perhaps by a call that was stopped meanwhile, or is empty."""
    own = (path.name in WRITTEN or path.name.startswith(("probe_", ".")) for path in folder.iterdir())
    return (folder / "probes.json").exists() or all(own)


def _is_table(source: Any) -> bool:
    return source is not None and not isinstance(source, str | Path)


def _states(
    spec: SweepSpec, pretrained: Pretrained, machine: Machine, tokens: Tokens, progress: Progress
) -> HiddenStates:
    """The vectors of all texts after every layer."""
    anatomy = pretrained.anatomy
    need = Need((), head=False, pooled=tuple(range(anatomy.count + 1)))
    rows = np.arange(len(tokens))
    made_by = vectors_of(pretrained, machine, need)
    recipe = recipe_of(pretrained, machine, made_by)
    different = len(not_kept(tokens, rows, need, recipe))
    size = need.bytes(different, 0, anatomy.width)
    room = free_bytes(existing(cache_folder())) - RESERVE
    if size > room:
        raise FrostlineError(
            f"The vectors of {different:,} texts take {size / 1e9:.1f} GB, and {max(0, room) / 1e9:.1f} GB are free in "
            f"{cache_folder()}: make room (`frostline cache rm`), or read fewer with --first-rows."
        )
    progress.begin("one pass over the texts")
    progress.start(0, len(rows))
    passed = 0

    def advance(more: int) -> None:
        nonlocal passed
        passed += more
        progress.advance(passed)

    with ready_for_pass(pretrained.model, machine):
        states = keep(made_by, tokens, rows, recipe, progress=advance, warn=progress.note)
    progress.finish(len(rows))
    return states


def places(layers: int) -> list[Place]:
    """Where probes of one layer are fitted, in a model of so many layers."""
    return [Place((n,), pooled) for n in range(layers + 1) for pooled in POOLED]


def together(layers: int, pooled: str) -> list[Place]:
    """The last layers as one, of which there must be two: many features, of which the solution takes longest."""
    last = tuple(range(max(1, layers - LAST + 1), layers + 1))
    return [Place(last, pooled)] * (len(last) > 1)


def probe_states(
    data: Data,
    states: HiddenStates,
    rows: Mapping[str, Rows],
    pretrained: Pretrained,
    machine: Machine,
    metric: str,
    max_length: int,
    kind: str = "ridge",
) -> Probed:
    """Probes for one column of labels, from hidden states that are at hand; ``rows`` say where those of train and
    validation are among them."""
    task = data.task
    train = Labelled(data.train.targets, task.problem_type, task.labels, metric)
    validation = Labelled(data.validation.targets, task.problem_type, task.labels, metric)

    def score(split: Labelled, values: Any) -> float:
        return split.score(values, np.arange(len(split.targets)))

    def vectors(split: str) -> Callable[[int], Any]:
        kept, lock = lru_cache(LAST)(lambda layer: states.pooled(layer, rows[split]).numpy()), Lock()

        def of(layer: int) -> Any:
            with lock:  # else those that want the same layer at the same time read it once each
                return kept(layer)

        return of

    seen, unseen = vectors("train"), vectors("validation")

    def read(place: Place) -> Reading:
        features = place.features(seen)
        fitted = FITS[kind](features, data.train.targets, len(task.labels))
        values = fitted.values(place.features(unseen))
        # where all texts look alike, what is left out alone tells a guess from the others', and always the wrong one
        own = score(train, fitted.unseen) if np.ptp(features, 0).any() else np.nan
        return Reading(place, fitted, own, score(validation, values), values)

    layers = pretrained.anatomy.count
    cores = torch.get_num_threads()
    abreast = min(ABREAST, cores)
    with threadpool_limits(cores // abreast, "blas"), ThreadPoolExecutor(abreast) as pool:
        readings = list(pool.map(read, places(layers)))
    vector = max(readings, key=_rank).place.pooled
    readings += [read(place) for place in together(layers, vector)]
    best = max(readings, key=_rank)
    scored = Predictions(validation, {"best": best.values}.__getitem__).alone("best")
    facts = {
        "model": pretrained.name,
        "revision": pretrained.revision,
        "task": task.name,
        "kind": kind,
        "columns": asdict(task.columns),
        "problem_type": task.problem_type,
        "labels": task.labels,
        "metric": metric,
        "max_length": max_length,
        "layers": layers,
        "train_rows": len(data.train),
        "validation_rows": len(data.validation),
        "chance": validation.chance,
        "words": _words(data, validation),
        "probes": [
            {
                "layers": reading.place.layers,
                "vector": reading.place.pooled,
                "unseen": defined(reading.unseen),
                "validation": defined(reading.validation),
                "strength": reading.probe.strength,
            }
            for reading in readings
        ],
        "best": {
            "layers": best.place.layers,
            "vector": best.place.pooled,
            **{name: defined(value) for name, value in scored.items()},
        },
        "notes": [note for note in data.notes if note != NO_TEST_SET],
    }
    return Probed({**facts, "sentence": sentence(facts)}, best, pretrained, machine)


def _rank(reading: Reading) -> tuple[float, int, int]:
    """By the score of unseen rows; of equals the one that needs fewer layers."""
    score = -np.inf if np.isnan(reading.unseen) else reading.unseen
    return score, -reading.place.layers[-1], -len(reading.place.layers)


def _words(data: Data, validation: Labelled) -> float | None:
    """What words and pairs of words reach without any model; None where the texts hold no words, or where it is not
    defined."""
    number = not data.task.labels
    model = Ridge(1.0, solver="sparse_cg") if number else LogisticRegression(max_iter=1000)
    chain = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\w+"), model)
    if not any(any(c.isalnum() for c in text) for text in _joined(data.train)):
        return None
    chain.fit(list(_joined(data.train)), data.train.targets)
    predicted = chain.predict(list(_joined(data.validation)))
    values = predicted[:, None] if number else np.eye(len(data.task.labels))[predicted]
    return defined(validation.score(values, np.arange(len(predicted))))


def _joined(examples: Examples) -> Iterator[str]:
    for n, text in enumerate(examples.texts):
        yield text if examples.pairs is None else f"{text}\n{examples.pairs[n]}"


def sentence(facts: Mapping[str, Any]) -> str:
    """What the probes say, in words."""
    best, metric = facts["best"], facts["metric"].replace("_", " ")
    if best["score"] is None or best["low"] is None or best["high"] is None:
        return (
            f"No probe has a {metric} that is defined: it predicts the same for every text, or there are too few "
            "validation rows."
        )
    rows = f"{facts['validation_rows']:,} validation {'row' if facts['validation_rows'] == 1 else 'rows'}"
    where = formatting.layers(best["layers"])
    vector = {"first": "the first token", "mean": "the mean of all tokens", "last": "the last token"}[best["vector"]]
    interval = f"95 % interval {best['low']:.3f} to {best['high']:.3f}"
    words = "" if facts["words"] is None else f", words alone {facts['words']:.3f}"
    layers = "layers" if len(best["layers"]) > 1 else "layer"
    reads = f"probe on {vector} after {layers} {where} of {facts['layers']}"
    guessing = f"guessing reaches {facts['chance']:.3f}{words}"
    if not best["low"] > facts["chance"]:
        return (
            f"With {rows} it cannot be told that frozen features are better than guessing. The best, a {facts['kind']} {reads}, "
            f"reaches {metric} {best['score']:.3f} ({interval}); {guessing}."
        )
    return (
        f"A {facts['kind']} {reads} reaches {metric} {best['score']:.3f} without training a layer. With {rows} that is surely "
        f"more than guessing ({interval}); {guessing}."
    )
