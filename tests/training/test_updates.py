"""The steps that read nothing back from a device, compared on a CPU with the steps that read losses and norms."""

import math

import pytest
import torch

from frostline.training import loop, updates
from frostline.training.settings import TrainingSettings
from training.lines import TRAIN, Line, fit_together, record_facts

TOGETHER = TrainingSettings(
    num_train_epochs=3, per_device_train_batch_size=8, max_grad_norm=0.2, warmup_steps=2, evaluations_per_epoch=2
)


def forward_of(line, *, bad=None, at=6):
    """With ``bad``, logits or gradients are not finite at one call."""

    def forward(rows):
        logits = line.forward(rows)
        if len(line.calls) == at and bad:  # the value is 0 or NaN, and the gradient is infinite
            logits = logits + (line.parameters["bias"] * 0).sqrt().sum() * (1 if bad == "gradient" else math.nan)
        return logits

    return forward


def both_ways(monkeypatch, settings, bad=(None, None, None)):
    """Records and parameters of three runs, with :class:`HostUpdates` and with :class:`DeviceUpdates`."""
    found = []
    for kind in (updates.HostUpdates, updates.DeviceUpdates):
        monkeypatch.setattr(loop, "updates_of", kind)
        lines = [Line(), Line(), Line()]
        forwards = [forward_of(line, bad=what) for line, what in zip(lines, bad, strict=True)]
        records = fit_together(lines, settings, (0, 1, 2), [0.5, 0.05, 0.05], [TRAIN] * 3, forward=forwards)
        found.append([(record_facts(record), line.values()) for record, line in zip(records, lines, strict=True)])
    return zip(*found, strict=True)


@pytest.mark.parametrize("max_norm", [0.2, 100.0, 0.0])
def test_both_take_the_same_steps(monkeypatch, max_norm):
    for host, device in both_ways(monkeypatch, TOGETHER.model_copy(update={"max_grad_norm": max_norm})):
        assert host[0][:4] == device[0][:4] == ("ok", "", host[0][2], 9)
        for name, value in host[1].items():
            torch.testing.assert_close(device[1][name], value, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("evaluations", [0, 2])
@pytest.mark.parametrize("read_every", [1, 2, 32])
def test_a_diverged_run_ends_at_the_same_step_with_the_same_parameters(monkeypatch, read_every, evaluations):
    """Whenever the host asks for it: the loss of one run is not finite in step 4, the gradient of another."""
    monkeypatch.setattr(updates, "READ_EVERY", read_every)
    settings = TOGETHER.model_copy(update={"evaluations_per_epoch": evaluations})
    at = {"loss": None, "gradient": None}
    for (host, values), (device, others) in both_ways(monkeypatch, settings, ("loss", None, "gradient")):
        assert host[:2] == device[:2] and host[3] == device[3] and len(host[5]) == len(device[5])
        if host[0] == "diverged":
            at[host[1].split()[1]] = host[3]
        for name, value in values.items():
            torch.testing.assert_close(others[name], value, rtol=1e-6, atol=1e-6)
            assert value.isfinite().all()
    assert None not in at.values()
