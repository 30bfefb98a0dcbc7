"""``frostline.probe``: fit linear probes on the frozen features of a model, and write a folder with the results."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from frostline import FrostlineError
from frostline.api.keywords import ModelAndData, require_known, split_off_tables, takes
from frostline.data.files import make_folder, new_folder
from frostline.data.load import Data, load_data
from frostline.data.wording import comma_separated, listed
from frostline.model.model_files import local_folder, model_folder
from frostline.statistics.metrics import check_metric
from frostline.sweeps.progress import Progress
from frostline.sweeps.settings import Settings, make_settings

if TYPE_CHECKING:
    from frostline.search.probing import Probed

KINDS = ("ridge", "logistic")  # as FITS of training/linear_models.py, which imports scikit-learn
# What is written into the folder. With several label columns, each has a probe_<column>.
WRITTEN = ("probe", "figures", "tables", "report.html", "probes.json")


@takes(ModelAndData)
def probe(
    *,
    label_columns: str | Sequence[str] | None = None,
    kind: str = "ridge",
    out: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Unpack[ModelAndData],
) -> "list[Probed]":
    """Fit probes on the first, mean and last token after every layer, and on the last four layers together.

    For tags of words, a probe reads the first token of each word.

    The penalty of each probe and the best probe are selected on the training examples. The validation examples are only used
    to report scores. One forward pass over the examples serves all label columns. Of pairs, each text is
    also read alone, for each label column.

    Args:
        label_columns: The label columns, as a list or separated by commas. By default the label column is found by its name.
        kind: ``ridge`` or ``logistic``.
        out: The folder for the report, tables, figures and the best probe of each label column. By default nothing is written.
        progress: Shows progress; by default nothing is shown.
        **settings: The settings of :class:`frostline.Settings` for model and data. ``train`` and ``validation`` may also be a
            ``datasets.Dataset``, a ``DataFrame`` or a ``pyarrow.Table``.

    Returns:
        The probes of each label column.

    Raises:
        FrostlineError: A setting, the data or the model is unusable; the message says what to do.
    """
    progress = progress or Progress()
    if kind not in KINDS:
        raise FrostlineError(f"There is no kind of probe {kind!r}: give {' or '.join(KINDS)}.")
    folder = None if out is None else Path(out).expanduser()
    _require_free(folder)
    require_known(settings, probe)
    tables, plain = split_off_tables(settings)
    spec = make_settings({**plain, "test": "none", "out": "", "tune": 0})
    named = comma_separated(label_columns) if isinstance(label_columns, str) else label_columns
    columns: Sequence[str | None] = named or [spec.label_column]
    local_folder(spec.model, spec.revision)  # the data come before a download
    data = [
        load_data(spec.model_copy(update={"label_column": name}), tables, data_seed=spec.data_seed) for name in columns
    ]
    metrics = [check_metric(spec.metric, one.task.task_type, len(one.task.labels), one.task.labels) for one in data]
    model_folder(spec.model, spec.revision, ["config.json"])
    from frostline.report.probe_report import write_probes  # a mistake is answered before these import torch

    if kind != "ridge" and any(one.train.has_label_sets or not one.task.labels for one in data):
        raise FrostlineError(
            f"{data[0].task.name}: --kind {kind} is for one label for each text; leave it out, and ridge fits labels and numbers."
        )
    found = _fitted(spec, data, metrics, kind, folder, progress)
    if folder is not None:
        for probed, target in zip(found, probe_folders(folder, found), strict=True):
            with new_folder(target, inside=folder, replace=True) as aside:
                probed.save(aside, embed=spec.embed)
        write_probes(folder, [one.report for one in found])
    return found


def _fitted(
    spec: Settings, data: Sequence[Data], metrics: Sequence[str], kind: str, folder: Path | None, progress: Progress
) -> "list[Probed]":
    """The probes of each label column, from one forward pass. Their ``folder`` is made when nothing can be refused any more."""
    from frostline.model.device import this_machine
    from frostline.search.probing import probe_layers
    from frostline.sweeps.execution.execute import load_hidden_states
    from frostline.sweeps.prepare import encode_splits, length_limit, load_model, make_experiment
    from frostline.training.estimators import fit_words
    from frostline.training.probes import features_after, probe_forward_pass

    progress.begin("loading the model")
    machine = this_machine(spec.device, spec.precision)
    pretrained = load_model(spec, data[0].task, machine)
    progress.begin("encoding the examples")
    max_length = length_limit(spec, pretrained, pairs=data[0].splits["train"].pairs is not None)
    encoded = [encode_splits(spec, one, max_length, pretrained) for one in data]
    if folder is not None:
        make_folder(folder, inside=folder)
    found = []
    for one, tokens, metric in zip(data, encoded, metrics, strict=True):
        experiment = make_experiment(spec, pretrained, machine, one, tokens, metric)
        every_layer = features_after(range(pretrained.anatomy.count + 1), of_words=experiment.tokens.of_words)
        forward_pass, count = probe_forward_pass(pretrained, machine, every_layer), len(experiment.tokens)
        progress.start(0, count)
        load_hidden_states(experiment, forward_pass, np.arange(count), progress, count)
        progress.begin(f"fitting probes for {listed(one.task.columns.of_labels)}")
        rows = experiment.splits["train"], experiment.splits["validation"]
        words = fit_words(experiment, rows[0])
        found.append(probe_layers(experiment, one, *rows, max_length=max_length, words=words, kind=kind))
    return found


def _require_free(folder: Path | None) -> None:
    """Refuse a folder with anything but probes."""
    if folder is None or not folder.exists():
        return
    files = [path.name for path in folder.iterdir()] if folder.is_dir() else ["a file"]
    own = [name in WRITTEN or name.startswith(("probe_", ".")) for name in files]
    if "probes.json" not in files and not all(own):  # an earlier call may have been interrupted
        raise FrostlineError(f"{folder} exists and contains no probes: choose another --out, or an empty folder.")


def probe_folders(folder: Path, found: "Sequence[Probed]") -> list[Path]:
    """The folder of the best probe of each label column, within ``folder``."""
    from frostline.report.probe_report import suffixes

    return [folder / f"probe{suffix}" for suffix in suffixes([one.report for one in found])]
