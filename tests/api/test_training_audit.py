"""Audits of trainings that frostline does not run: on models of many types, in transformers' Trainer, and of two checkpoints."""

import logging
import shutil
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import Trainer, TrainingArguments

import frostline
from frostline.api.training_audit import parts_of
from small_models import REASONS, small_batch, small_model
from small_models import TYPES as EVERY

PECULIAR = {  # what is found of types that train otherwise if their lower half is frozen
    "ibert": ("statistics moved", True),  # the ranges of its quantization
    "mra": ("backward for nothing", False),  # without its CUDA kernel, attention returns zeros that require gradients
    "reformer": ("no gradient", True),  # its layers are one function, which needs an input that requires gradients
}
TYPES = ("bert", "distilbert", "albert", "mpnet", "gpt2", "llama", "xlnet", "t5")


def steps(model, batch, count=2, optimizer=None):
    """Some steps of training, which are watched."""
    optimizer = optimizer or torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    model.train()
    with frostline.audit(model) as watch:
        for _ in range(count):
            model(**batch, labels=torch.arange(len(batch["input_ids"])) % 3).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return watch.result


def kinds(result):
    return {(finding.kind, finding.wrong) for finding in result.findings}


def frozen_below(model_type, trained):
    """A small model of which only these parts are trained."""
    model = small_model(model_type)
    place = parts_of(dict(model.named_parameters()))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(place[name] in trained)
    return model


@pytest.mark.parametrize(
    "model_type",
    [*TYPES, *(pytest.param(n, marks=pytest.mark.every) for n in sorted({*EVERY} - {*TYPES, *REASONS, *PECULIAR}))],
)
def test_what_moves_and_what_lies_below_is_right_on_every_type(model_type):
    """Nothing frozen, the first half of the parts frozen, and all but the last part frozen."""
    model = small_model(model_type)
    batch = small_batch(model)
    whole = steps(model, batch)
    assert whole.ok, whole
    assert not whole.below
    # A part that is not called, as the relative positions of DeBERTa, may act on every layer. It stays frozen below.
    names = [part.name for part in whole.parts if part.parameters and part.moved and part.seconds]
    for first in (len(names) // 2, len(names) - 1):
        model = frozen_below(model_type, names[first:])
        found = steps(model, batch)
        assert found.ok, found
        assert [part.name for part in found.parts if part.moved] == names[first:]
        assert {part.name for part in found.parts if part.trained} == {part.name for part in found.parts if part.held}
        assert set(names[:first]) <= set(found.below), found  # parts without parameters may lie below, too
        assert sum(part.parameters for part in found.parts) == sum(p.numel() for p in model.parameters())
        assert "frozen" not in found.verdict and "to the bit" in found.verdict
        usual = {"frozen dropout", "no gradient", "tied"}
        if model_type in ("big_bird", "canine"):  # the head does not use the output of their last part
            usual |= {"low parameter"}
        assert {kind for kind, _ in kinds(found)} <= usual, found


@pytest.mark.parametrize("model_type", PECULIAR)
def test_a_type_that_trains_otherwise_than_it_is_told_is_reported(model_type):
    upper = [part.name for part in steps(small_model(model_type), small_batch(small_model(model_type))).parts][3:]
    model = frozen_below(model_type, upper)
    found = steps(model, small_batch(model))
    assert PECULIAR[model_type] in kinds(found), found


def checkpointed(forward, hidden, *args, **given):
    return checkpoint(partial(forward, **given), hidden, *args, use_reentrant=True)


class Old(torch.optim.SGD):
    """An optimizer that keeps gradients as zeros, as many loops do."""

    def zero_grad(self, set_to_none=False):
        super().zero_grad(set_to_none=False)


def trap(name):
    """The findings on a small BERT in which one thing is wrong."""
    model = small_model("bert", layers=3)
    batch, layers = small_batch(model), model.bert.encoder.layer
    everything = list(model.parameters())
    optimizer = None
    for parameter in [*model.bert.embeddings.parameters(), *layers[0].parameters()]:
        parameter.requires_grad_(False)
    if name == "unfrozen too late":
        optimizer = torch.optim.AdamW([p for p in everything if p.requires_grad])
        layers[0].requires_grad_(True)
    elif name == "frozen too late":
        model.requires_grad_(True)
        optimizer = Old(everything, lr=1e-3, momentum=0.9)
        steps(model, batch, optimizer=optimizer)
        layers[0].requires_grad_(False)
    elif name == "low parameter":
        model.bert.embeddings.LayerNorm.weight.requires_grad_(True)
    elif name == "inputs require gradients":
        model.enable_input_require_grads()
    elif name == "rate of zero":
        optimizer = torch.optim.AdamW([p for p in everything if p.requires_grad], lr=1e-3)
        optimizer.param_groups.append({**optimizer.param_groups[0], "params": [model.classifier.bias], "lr": 0.0})
        others = [p for p in optimizer.param_groups[0]["params"] if p is not model.classifier.bias]
        optimizer.param_groups[0]["params"] = others
    elif name == "warm-up":
        optimizer = torch.optim.AdamW([p for p in everything if p.requires_grad], lr=0.0)
    elif name == "rounding":
        model.to(torch.bfloat16)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-12)
    elif name == "nothing trained":
        model.requires_grad_(False)
        model.enable_input_require_grads()
        optimizer = torch.optim.AdamW(everything)
    elif name == "no step":
        optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(1))])
    elif name == "checkpoints":
        for layer in layers:
            layer.forward = partial(checkpointed, layer.forward)
    elif name == "statistics":
        model.bert.embeddings.norm = nn.BatchNorm1d(64, affine=False)
        model.bert.embeddings.register_forward_hook(lambda module, _, out: module.norm(out.flatten(0, 1)).view_as(out))
    elif name == "tied":
        model.bert.pooler.dense.weight = layers[0].attention.self.query.weight
    elif name == "detached":
        layers[2].register_forward_pre_hook(lambda _, given: (given[0].detach(), *given[1:]))
    elif name == "branch":
        model.bert.aside = nn.Linear(64, 64)
        layers[2].register_forward_pre_hook(lambda _, given: (model.bert.aside(given[0]), None)[1])
    elif name == "unused":
        model.register_parameter("spare", nn.Parameter(torch.zeros(3)))
    return kinds(steps(model, batch, optimizer=optimizer))


DROPOUT = ("frozen dropout", False)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("none", {DROPOUT}),
        ("unfrozen too late", {("not in the optimizer", True), ("backward for nothing", False), DROPOUT}),
        (
            "frozen too late",
            {("moved though frozen", True), ("did not move", False), ("low parameter", False), DROPOUT},
        ),  # a bias of keys
        ("low parameter", {("low parameter", False), DROPOUT}),
        ("inputs require gradients", {("backward for nothing", False), DROPOUT}),
        ("rate of zero", {("did not move", False), DROPOUT}),
        ("warm-up", {("did not move", False), DROPOUT}),
        ("rounding", {("did not move", True), ("backward for nothing", False), DROPOUT}),
        ("nothing trained", {("nothing trained", True), ("backward for nothing", False), DROPOUT}),
        ("no step", {("no step", True)}),
        ("statistics", {("statistics moved", True), DROPOUT}),
        ("tied", {("tied", False), DROPOUT}),
        ("detached", {("no gradient", True), ("backward for nothing", False), DROPOUT}),
        ("branch", {("no gradient", False), DROPOUT}),
        ("unused", {("no gradient", False), DROPOUT}),
    ],
)
def test_each_trap_is_found_and_nothing_else(name, expected):
    assert trap(name) == expected


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
def test_reentrant_checkpoints_that_give_no_gradient_are_found():
    assert ("no gradient", True) in trap("checkpoints")


@pytest.mark.parametrize("model_type", ["bert", "albert", "t5"])
def test_a_plain_trainer_raises_no_alarm(model_type, tmp_path, caplog):
    model = small_model(model_type)
    batch = small_batch(model)
    rows = [{"labels": n % 3, **{name: values[n] for name, values in batch.items()}} for n in range(4)]
    arguments = TrainingArguments(tmp_path, max_steps=3, use_cpu=True, report_to="none", disable_tqdm=True)
    watch = frostline.AuditCallback(steps=2)
    with caplog.at_level(logging.INFO, "frostline"):
        Trainer(model, arguments, train_dataset=rows, callbacks=[watch]).train()
    assert watch.result is not None and watch.result.ok and watch.result.steps == 2, watch.result
    assert all(part.moved for part in watch.result.parts if part.trained == part.parameters and part.backward)
    assert not [line for line in caplog.records if line.levelno >= logging.WARNING]
    assert watch.result.verdict in caplog.messages


def test_a_step_that_computes_gradients_itself_and_passes_after_the_last_step():
    model, batch = small_model("bert", layers=2), small_batch(small_model("bert", layers=2))
    model.bert.requires_grad_(False)
    optimizer = torch.optim.LBFGS([p for p in model.parameters() if p.requires_grad], max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = model(**batch, labels=torch.arange(4) % 3).loss
        loss.backward()
        return loss

    model.train()
    with frostline.audit(model) as watch:
        for _ in range(2):
            optimizer.step(closure)
        optimizer.zero_grad()
        for _ in range(20):
            model(**batch)
    share = watch.result.verdict.split("training would take")[1].split("%")[0]
    assert watch.result.ok and "-" not in share, watch.result
    with pytest.raises(frostline.FrostlineError, match="An audit watches one training"), watch:
        pass


def test_a_step_of_each_of_several_optimizers_counts_as_one():
    model, batch = small_model("bert", layers=2), small_batch(small_model("bert", layers=2))
    parts = (model.bert, model.classifier)
    optimizers = [torch.optim.SGD(part.parameters(), lr=1e-2) for part in parts]
    model.train()
    with frostline.audit(model) as watch:
        for _ in range(3):
            model(**batch, labels=torch.arange(4) % 3).loss.backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    assert watch.result.steps == 3 and watch.result.verdict.startswith("After 3 steps, ")
    assert all(0 < part.moved_first <= part.moved for part in watch.result.parts if part.backward)


def test_an_audit_is_no_part_of_the_training():
    """The same steps give the same bytes, and no hook stays."""
    weights = []
    for watched in (True, False):
        model = small_model("bert", layers=2)
        torch.manual_seed(0)
        if watched:
            steps(model, small_batch(model))
        else:
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            model.train()
            for _ in range(2):
                model(**small_batch(model), labels=torch.arange(4) % 3).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
        weights.append(model.state_dict())
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    with pytest.raises(frostline.FrostlineError, match="Identity has no parameter"):
        frostline.audit(nn.Identity())


class Prompted(nn.Module):
    """A frozen model whose inputs a trained vector changes, which belongs to no module that is called."""

    def __init__(self):
        super().__init__()
        self.prompt = nn.Parameter(torch.ones(8))
        self.layers = nn.ModuleList(nn.Linear(8, 8).requires_grad_(False) for _ in range(2))
        self.head = nn.Linear(8, 3)

    def forward(self, input_ids, labels):
        x = nn.functional.one_hot(input_ids[:, 0] % 8, 8) * self.prompt
        for layer in self.layers:
            x = layer(x)
        return SimpleNamespace(loss=nn.functional.cross_entropy(self.head(x), labels))


def test_layers_above_a_trained_vector_do_not_run_backward_for_nothing():
    found = steps(Prompted(), {"input_ids": torch.arange(8)[:, None]})
    assert kinds(found) == {("low parameter", False)}, found
    assert "though frozen, because the model itself moved, whose place is not known" in str(found.findings[0])


def test_a_head_that_is_nothing_but_the_embeddings_is_tied():
    """Only the head of a GPT-2 for generation is to be trained."""
    model = small_model("gpt2")
    model.score.weight = model.transformer.wte.weight
    model.num_labels = model.config.num_labels = len(model.score.weight)
    model.requires_grad_(False)
    model.score.weight.requires_grad_(True)
    (found,) = (finding for finding in steps(model, small_batch(model)).findings if finding.kind == "tied")
    assert set(found.names) == {"transformer.wte.weight", "score.weight"}


@pytest.mark.parametrize("runs_before", [False, True])
def test_a_compiled_model_stays_whole_and_says_that_no_forward_pass_was_seen(runs_before):
    torch._dynamo.reset()
    model = frozen_below("bert", {"classifier"})
    batch = small_batch(model)
    model.compile(backend="eager", fullgraph=True)
    model.train()
    if runs_before:
        model(**batch, labels=torch.arange(4) % 3)
    found = steps(model, batch)
    assert found.ok and "classifier moved" in found.verdict, found
    assert "No forward pass of a part was seen" in found.verdict and "can be cached" not in found.verdict, found


def test_two_checkpoints(tmp_path, frostline):
    """A model without a head, with one, of an old version, and trained: what moved is named, and the exit code says it."""
    model = small_model("bert", layers=3)
    model.save_pretrained(tmp_path / "before")
    model.bert.save_pretrained(tmp_path / "base")
    with torch.no_grad():
        model.bert.encoder.layer[2].output.dense.bias[3] += 0.5
        model.classifier.weight += 0.25
    model.save_pretrained(tmp_path / "after")
    small_model("bert", layers=2).save_pretrained(tmp_path / "other")
    old = load_file(tmp_path / "before" / "model.safetensors")
    old = {key.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): old[key] for key in old}
    shutil.copytree(tmp_path / "before", tmp_path / "old")
    save_file(old | {"bert.embeddings.position_ids": torch.arange(40)}, tmp_path / "old" / "model.safetensors")
    for before in ("before", "base", "old"):
        done = frostline("audit", tmp_path / before, tmp_path / "after", "--frozen", "embeddings,layer.1")
        assert done.code == 0, done
        layer = next(line.split() for line in done.out.splitlines() if line.startswith("bert.encoder.layer.2"))
        assert layer[1:] == ["16", "1", "0.5000", "0", "0"], done.out
        moved = "layer 2. Not in both: classifier." if before == "base" else "layer 2 and classifier."
        equal = "Equal to the bit: bert.embeddings, layers 0 and 1 and bert.pooler."
        assert f"Moved: {moved} {equal}" in done.out, done.out
    half = {name: value.half() for name, value in old.items() if "layer.0" in name}
    for name, own in (("half", half), ("float", {one: value.float() for one, value in half.items()})):
        shutil.copytree(tmp_path / "before", tmp_path / name)
        save_file(old | own, tmp_path / name / "model.safetensors")
    retyped = frostline("audit", tmp_path / "half", tmp_path / "float", "--frozen", "layer.0")
    assert retyped.code == 0 and "Nothing moved. The same numbers in another type: layer 0." in retyped.out, retyped
    wider = small_model("bert", layers=3)
    wider.load_state_dict(model.state_dict())
    wider.classifier = nn.Linear(model.config.hidden_size, 7)
    wider.save_pretrained(tmp_path / "wider")
    reshaped = frostline("audit", tmp_path / "before", tmp_path / "wider").out
    assert "Moved: layer 2. Of another shape: classifier. Equal to the bit: bert.embeddings" in reshaped, reshaped
    wrong = frostline("audit", tmp_path / "before", tmp_path / "after", "--frozen", "layer.2")
    assert (wrong.code, wrong.out.splitlines()[-1]) == (
        1,
        "Should be frozen, but moved, of another shape or not in both: bert.encoder.layer.2.output.dense.bias.",
    )
    assert frostline("audit", tmp_path / "before", tmp_path / "after", "--frozen", "layer.2.attention").code == 0
    missing = frostline("audit", tmp_path / "before", tmp_path / "base", "--frozen", "classifier")
    assert missing.code == 1
    (tmp_path / "probe").mkdir()
    (tmp_path / "probe" / "estimator.json").write_text("{}")
    for arguments, message in (
        (("before", "after", "--frozen", "layer.7"), "but no module is called so (did you mean 'layer.2'?)"),
        (("before", "nowhere"), "nowhere"),
        (("before", "probe"), "holds a probe or another model without layers of its own"),
        (("before", "other", "--frozen", "layer.9"), "--frozen names layer.9"),
    ):
        refused = frostline("audit", tmp_path / arguments[0], tmp_path / arguments[1], *arguments[2:])
        assert refused.code == 2 and message in refused.err, refused


def test_parts_are_layers_and_the_largest_modules_beside_them():
    names = {
        "bert.embeddings.word.weight": "bert.embeddings",
        "bert.encoder.layer.0.attention.self.weight": "bert.encoder.layer.0",
        "bert.encoder.layer.11.experts.3.weight": "bert.encoder.layer.11",
        "bert.encoder.blocks.1.0.attention.weight": "bert.encoder.blocks.1.0",
        "bert.encoder.bias": "bert.encoder",
        "head.weight": "head",
        "scale": "the model itself",
    }
    assert parts_of(names) == names
