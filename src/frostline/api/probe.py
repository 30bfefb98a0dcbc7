"""``frostline.probe``: fit linear probes on the frozen features of a model, and write a folder with the results."""

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from frostline import FrostlineError
from frostline.api.keywords import ModelAndData, require_known, split_off_tables, takes
from frostline.data.files import make_folder, new_folder
from frostline.data.load import Data, load_data
from frostline.data.wording import listed
from frostline.model.model_files import local_folder, model_folder
from frostline.statistics.metrics import check_metric
from frostline.sweeps.progress import Progress
from frostline.sweeps.settings import Settings, make_settings

if TYPE_CHECKING:
    from frostline.search.probing import Probed

KINDS = ("ridge", "logistic")  # as FITS of training/linear_models.py, which imports scikit-learn
WRITTEN = ("probe", "figures", "tables", "report.html", "probes.json")  # into the folder


@takes(ModelAndData)
def probe(
    *,
    kind: str = "ridge",
    out: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Unpack[ModelAndData],
) -> "Probed":
    """Fit probes on the first, mean and last token after every layer, and on the last four layers together.

    For tags of words, a probe reads the first token of each word.

    The penalty of each probe and the best probe are selected on the training examples. The validation examples are only used
    to report scores. Hidden states are cached, so a call with another label column needs no forward pass. Of pairs, each text
    is also read alone.

    Args:
        kind: ``ridge`` or ``logistic``.
        out: The folder for the report, table, figure and the best probe. By default nothing is written.
        progress: Shows progress; by default nothing is shown.
        **settings: The settings of :class:`frostline.Settings` for model and data. ``train`` and ``validation`` may also be a
            ``datasets.Dataset``, a ``DataFrame`` or a ``pyarrow.Table``.

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
    local_folder(spec.model, spec.revision)  # the data come before a download
    data = load_data(spec, tables, data_seed=spec.data_seed)
    task = data.task
    metric = check_metric(spec.metric, task.task_type, len(task.labels), task.labels)
    model_folder(spec.model, spec.revision, ["config.json"])
    from frostline.report.probe_report import write_probes  # a mistake is answered before these import torch

    if kind != "ridge" and (data.train.has_label_sets or not task.labels):
        raise FrostlineError(
            f"{task.name}: --kind {kind} is for one label for each text; leave it out, and ridge fits labels and numbers."
        )
    found = _fitted(spec, data, metric, kind, folder, progress)
    if folder is not None:
        with new_folder(folder / "probe", inside=folder, replace=True) as aside:
            found.save(aside, embed=spec.embed)
        write_probes(folder, found.report)
    return found


def _fitted(spec: Settings, data: Data, metric: str, kind: str, folder: Path | None, progress: Progress) -> "Probed":
    """The probes, from one forward pass. Their ``folder`` is made when nothing can be refused any more."""
    from frostline.model.device import this_machine
    from frostline.search.probing import probe_layers
    from frostline.sweeps.execution.execute import load_hidden_states
    from frostline.sweeps.prepare import encode_splits, length_limit, load_model, make_experiment
    from frostline.training.estimators import fit_words
    from frostline.training.probes import features_after, probe_forward_pass

    progress.begin("loading the model")
    machine = this_machine(spec.device, spec.precision)
    pretrained = load_model(spec, data.task, machine)
    progress.begin("encoding the examples")
    max_length = length_limit(spec, pretrained, pairs=data.train.pairs is not None)
    tokens = encode_splits(spec, data, max_length, pretrained)
    if folder is not None:
        make_folder(folder, inside=folder)
    experiment = make_experiment(spec, pretrained, machine, data, tokens, metric)
    every_layer = features_after(range(pretrained.anatomy.count + 1), of_words=experiment.tokens.of_words)
    forward_pass, count = probe_forward_pass(pretrained, machine, every_layer), len(experiment.tokens)
    progress.start(0, count)
    load_hidden_states(experiment, forward_pass, np.arange(count), progress, count)
    progress.begin(f"fitting probes for {listed(data.task.columns.of_labels)}")
    rows = experiment.splits["train"], experiment.splits["validation"]
    words = fit_words(experiment, rows[0])
    return probe_layers(experiment, data, *rows, max_length=max_length, words=words, kind=kind)


def _require_free(folder: Path | None) -> None:
    """Refuse a folder with anything but probes."""
    if folder is None or not folder.exists():
        return
    files = [path.name for path in folder.iterdir()] if folder.is_dir() else ["a file"]
    own = [name in WRITTEN or name.startswith(".") for name in files]
    if "probes.json" not in files and not all(own):  # an earlier call may have been interrupted
        raise FrostlineError(f"{folder} exists and contains no probes: choose another --out, or an empty folder.")
