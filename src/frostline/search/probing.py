"""Probes on the frozen layers, fitted before a search trains anything: their scores, and the k that they suggest."""

from dataclasses import replace

from frostline.frozen.selection import POOLED
from frostline.report.probe_sentence import probe_sentence
from frostline.search.estimates import by_layer, by_probes, logme
from frostline.sweep.prepare import Prepared
from frostline.sweep.progress import Progress
from frostline.training.probes.fitting import Probed, fit_probes
from frostline.training.rows import train_rows, validation_rows
from frostline.training.specification import RunSpec

MAX_EXAMPLES = 5000  # training examples for the probes; more would hardly improve an estimate


def probe_frozen_layers(
    prepared: Prepared, first: RunSpec, progress: Progress
) -> tuple[Probed, dict[str, int | None]] | None:
    """Fit probes on the examples of the run ``first``.

    Returns:
        The probes, and the estimate of k by each method; None if the hidden states could not be cached.
    """
    context, identity = prepared.context, prepared.identity
    states = context.states
    if states is None or not states.selection.pooled:
        return None
    progress.begin("probing the frozen layers")
    rows = {"train": train_rows(context, first)[:MAX_EXAMPLES], "validation": validation_rows(context, first)}
    examples = prepared.data.train.take(rows["train"] - context.splits["train"][0])
    scored = prepared.data.validation.take(rows["validation"] - context.splits["validation"][0])
    probed = fit_probes(
        replace(prepared.data, train=examples, validation=scored),
        states,
        rows,
        pretrained=prepared.pretrained,
        machine=context.machine,
        metric=identity.metric,
        max_length=identity.max_length,
        describe=probe_sentence,
    )
    mean, classes = POOLED.index("mean"), len(identity.labels)
    logmes = {
        n: logme(states.pooled(n, rows["train"])[:, mean].numpy(), examples.targets, classes)
        for n in states.selection.pooled
    }
    return probed, {"probes": by_probes(probed.facts), "LogME": by_layer(logmes, 0.0)}
