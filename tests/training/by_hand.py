"""A training loop of plain PyTorch on the model of a context, as a reference for ways to tune and types of task.

The loss is that of transformers.
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from transformers import get_scheduler

from frostline.training.forward import order_generator, train_rows
from frostline.training.run import StepPlan
from frostline.training.train import start_values
from frostline.training.updates import optimizer_groups
from tiny import tiny_bert_folder
from training.runs import context_of, spec_of

# Some gradients are zero but for rounding, such as those of the biases of keys. A small epsilon would turn them into steps.
EVEN = {
    **{"head_learning_rate": 3e-3, "adam_epsilon": 1e-3},
    **{"evaluations_per_epoch": 0, "load_best_model_at_end": False, "num_train_epochs": 1},
}


def context_without_dropout(folder):
    """A context whose model has no dropout, without cached hidden states."""
    return context_of(tiny_bert_folder(folder, dropout=0.0))


def way_spec(way, **more):
    """A run in this way, with one evaluation at the end."""
    return spec_of("my-way", **{**EVEN, "way": way, **more})


def started(spec, experiment):
    """A copy of the model with the values that the run starts from, and those of its parameters that the run changes."""
    names = start_values(spec, experiment).keys()
    model = copy.deepcopy(experiment.pretrained.model).eval()
    return model, {name: p for name, p in model.named_parameters() if name in names}


def train_by_hand(model, trained, spec, experiment, *, groups=None, around=None):
    """Train the parameters ``trained`` of a model, by name, as a loop over AdamW does, and return them.

    ``groups`` are the groups of the optimizer. ``around`` is called with "before" ahead of each forward pass, and with "after"
    behind each backward pass.
    """
    around = around or (lambda moment: None)
    groups = groups or optimizer_groups(spec, experiment.pretrained.anatomy, trained)
    for p in model.parameters():
        p.requires_grad_(False)
    for p in trained.values():
        p.requires_grad_(True)
    rows, order = train_rows(experiment, spec), order_generator(spec)
    steps = StepPlan.of(spec, len(rows))
    optimizer = torch.optim.AdamW(groups, eps=spec.adam_epsilon)
    schedule = get_scheduler(spec.lr_scheduler_type, optimizer, steps.warmup, steps.total)
    upcoming = torch.zeros(0, dtype=torch.long)
    for _ in range(steps.total):
        if not len(upcoming):
            upcoming = torch.randperm(len(rows), generator=order)
        batch = rows[upcoming[: spec.per_device_train_batch_size].numpy()]
        upcoming = upcoming[spec.per_device_train_batch_size :]
        around("before")
        labels = torch.from_numpy(experiment.problem.targets[batch])
        labels = labels.float() if labels.dtype == torch.bool else labels
        output = model(**experiment.tokens.batch(batch), labels=labels)
        loss = F.cross_entropy(output.logits, labels) if output.loss is None else output.loss
        loss.backward()
        around("after")
        nn.utils.clip_grad_norm_(trained.values(), spec.max_grad_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return trained


def gap(result, trained):
    """The largest difference between what a run has learned and parameters with the same names."""
    assert result.learned.keys() == trained.keys()
    return max(float((result.learned[name] - p).detach().abs().max()) for name, p in trained.items())
