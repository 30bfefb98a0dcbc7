"""The training loop on models of a few numbers: against a loop written out, and against what must not happen."""

import math
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import get_linear_schedule_with_warmup

from frostline.model.packing import packable
from frostline.model.pretrained import load_pretrained, set_train_mode
from frostline.model.tokens import encode
from frostline.training.loop import Learner, Problem, evaluation_steps, parameter_groups, train
from frostline.training.specification import Settings
from tiny import sentences

CLASSES = "single_label_classification"
ROWS = np.arange(40)
TRAIN, VALIDATION = ROWS[:24], ROWS[24:]


def problem_of(targets, *, problem_type=CLASSES, weights=None, metric="accuracy"):
    return Problem(problem_type, np.asarray(targets), np.ones(len(targets), np.int64), weights, metric)


class Line:
    """Two classes told apart by a line: ``forward`` and the parameters that it learns."""

    def __init__(self, seed=0):
        draw = torch.Generator().manual_seed(seed)
        self.x = torch.randn(40, 3, generator=draw)
        self.targets = (self.x[:, 0] > 0).long().numpy()
        weight, bias = torch.randn(2, 3, generator=draw), torch.randn(2, generator=draw)
        self.parameters = {"weight": nn.Parameter(weight), "bias": nn.Parameter(bias)}
        self.calls = []

    def forward(self, rows):
        self.calls.append(rows.tolist())
        return self.x[rows] @ self.parameters["weight"].T + self.parameters["bias"]

    def values(self):
        return {name: p.detach().clone() for name, p in self.parameters.items()}


def fit(line, settings, *, forward=None, problem=None, seed=0, rate=0.05, after=lambda step: None, modes=None):
    groups, order = parameter_groups(line.parameters, frozenset(), settings, rate), torch.Generator().manual_seed(seed)
    (trained,) = train(
        lambda rows: (forward or line.forward)(rows[0])[None],
        [Learner(line.parameters, groups, TRAIN, order)],
        problem or problem_of(line.targets),
        VALIDATION,
        settings,
        set_mode=(modes if modes is not None else []).append,
        on_step=lambda step, total: after(step),
    )
    return trained


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in other)


def test_when_it_has_stepped_nothing_of_the_graph_is_held():
    """What a node of the graph keeps (masks of dropout, copies of weights) would lie beside the next batch's."""
    kept = []

    class Through(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.own = torch.ones(3)
            kept.append(weakref.ref(ctx.own))
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.own.mean()

    def after(step):
        assert len(kept) == step and [one() for one in kept] == [None] * step

    line = Line()
    settings = Settings(num_train_epochs=1, per_device_train_batch_size=10, evaluations_per_epoch=0)
    fit(line, settings, forward=lambda rows: Through.apply(line.forward(rows)), after=after)
    assert len(kept) > 3  # training and scoring


def test_the_loop_is_the_one_written_out():
    settings = Settings(num_train_epochs=3, per_device_train_batch_size=10, max_grad_norm=0.5, warmup_steps=0.25)
    line, other = Line(), Line()
    order = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(
        [
            {"params": [other.parameters["weight"]], "weight_decay": 0.01},
            {"params": [other.parameters["bias"]], "weight_decay": 0.0},
        ],
        lr=0.05,
    )
    schedule = get_linear_schedule_with_warmup(optimizer, 3, 9)  # 3 steps an epoch: 10, 10, 4 rows
    after = []
    for _ in range(3):
        rows = TRAIN[torch.randperm(24, generator=order).numpy()]
        for n in range(0, 24, 10):
            batch = rows[n : n + 10]
            F.cross_entropy(other.forward(batch), torch.from_numpy(other.targets[batch])).backward()
            nn.utils.clip_grad_norm_(other.parameters.values(), 0.5)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            after.append(other.values())
    steps = []
    trained = fit(line, settings, after=lambda step: steps.append(line.values()))
    assert trained.steps == 9 and [e.step for e in trained.evaluations] == [3, 6, 9]
    assert [e.epoch for e in trained.evaluations] == [1, 2, 3]
    for mine, theirs in zip(steps, after, strict=True):
        for name, value in theirs.items():
            assert (mine[name] - value).abs().max() < 1e-6


def test_scores_are_those_of_the_model_at_that_step():
    settings = Settings(num_train_epochs=2, per_device_train_batch_size=8, per_device_eval_batch_size=5, warmup_steps=0)
    line, steps = Line(), []
    trained = fit(line, settings, after=lambda step: steps.append(line.values()))
    for evaluation in trained.evaluations:
        at = steps[evaluation.step - 1]
        logits = line.x[VALIDATION] @ at["weight"].T + at["bias"]
        targets = torch.from_numpy(line.targets[VALIDATION])
        assert np.allclose(evaluation.logits, logits.numpy(), atol=1e-6)
        assert evaluation.validation["accuracy"] == pytest.approx(float((logits.argmax(1) == targets).float().mean()))
        assert evaluation.validation["loss"] == pytest.approx(float(F.cross_entropy(logits, targets)), abs=1e-6)
        assert 0 <= evaluation.train["accuracy"] <= 1
    last = line.x[TRAIN] @ steps[-1]["weight"].T + steps[-1]["bias"]
    expected = float(F.cross_entropy(last, torch.from_numpy(line.targets[TRAIN])))
    assert trained.train_last["loss"] == pytest.approx(expected, abs=1e-6)


def test_logits_come_back_in_the_order_of_the_rows():
    """They are computed sorted by length."""
    lengths = np.random.default_rng(0).integers(1, 9, 40)
    problem = Problem(CLASSES, np.zeros(40, np.int64), lengths, None, "accuracy")
    seen = []

    def forward(rows):
        seen.extend(lengths[rows])
        return torch.from_numpy(rows[:, None] * np.ones(2))

    rows = np.random.default_rng(1).permutation(40)[:23]
    assert np.array_equal(problem.logits(forward, rows, 4)[:, 0], rows)
    assert seen == sorted(seen)


def test_the_order_follows_its_generator():
    settings = Settings(num_train_epochs=2, per_device_train_batch_size=8)
    orders = []
    for seed in (0, 0, 1):
        line = Line()
        fit(line, settings, seed=seed)
        orders.append([call for call in line.calls if set(call) <= set(TRAIN)][:6])
    assert orders[0] == orders[1] != orders[2]
    first, second = (np.concatenate(part).tolist() for part in (orders[0][:3], orders[0][3:]))
    assert sorted(first) == sorted(second) == TRAIN.tolist() and first != second  # each epoch is shuffled anew


@given(st.integers(1, 50), st.integers(1, 20), st.fractions(0, 6).filter(bool))
def test_evaluation_steps(per_epoch, times, epochs):
    total = max(1, math.ceil(epochs * per_epoch))
    steps = evaluation_steps(total, per_epoch, times)
    assert steps == sorted(set(steps)) and steps[0] >= 1 and steps[-1] == total
    assert {epoch * per_epoch for epoch in range(1, total // per_epoch + 1)} <= set(steps)
    gaps = np.diff([0, *steps])
    assert gaps.max() <= math.ceil(per_epoch / times)
    if total % per_epoch == 0:
        assert len(steps) == min(times, per_epoch) * (total // per_epoch)


@pytest.mark.parametrize(
    "arguments, steps",
    [
        ((9, 3, 1), [3, 6, 9]),
        ((8, 4, 2), [2, 4, 6, 8]),
        ((2, 5, 1), [2]),
        ((7, 5, 1), [5, 7]),
        ((4, 2, 5), [1, 2, 3, 4]),
        ((9, 3, 0), [9]),
    ],
)
def test_evaluation_steps_by_hand(arguments, steps):
    assert evaluation_steps(*arguments) == steps


def test_parameter_groups():
    parameters = {
        "layer.weight": nn.Parameter(torch.ones(2, 2)),
        "layer.bias": nn.Parameter(torch.ones(2)),
        "norm.weight": nn.Parameter(torch.ones(2)),
        "head.weight": nn.Parameter(torch.ones(3, 2)),
        "head.bias": nn.Parameter(torch.ones(3)),
    }
    head = frozenset({"head.weight", "head.bias"})
    groups = parameter_groups(parameters, head, Settings(weight_decay=0.1), 0.2, 0.5)
    names = {id(p): name for name, p in parameters.items()}
    found = {tuple(names[id(p)] for p in g["params"]): (g["lr"], g["weight_decay"]) for g in groups}
    assert found == {
        ("layer.weight",): (0.2, 0.1),
        ("layer.bias", "norm.weight"): (0.2, 0.0),
        ("head.weight",): (0.5, 0.1),
        ("head.bias",): (0.5, 0.0),
    }
    assert {g["lr"] for g in parameter_groups(parameters, head, Settings(), 0.2)} == {0.2}
    only_head = {name: p for name, p in parameters.items() if name in head}
    assert len(parameter_groups(only_head, head, Settings(), 0.2)) == 2


ONE_EPOCH = Settings(num_train_epochs=1, per_device_train_batch_size=4, warmup_steps=0)


def test_a_loss_that_is_not_finite_stops_before_the_step():
    line, steps = Line(), []
    bad = torch.randperm(24, generator=torch.Generator().manual_seed(0))[14]  # comes in the fourth of six batches
    line.x[bad] = float("nan")
    trained = fit(line, ONE_EPOCH, after=lambda step: steps.append(line.values()))
    assert (trained.outcome, trained.steps, len(steps)) == ("diverged", 3, 3)
    assert trained.reason == "the loss of step 4 of 6 is not finite"
    assert not trained.evaluations and not trained.train_last
    assert same(line.values(), steps[-1])


def test_a_gradient_that_is_not_finite_stops_before_the_step():
    line, steps = Line(), []

    def forward(rows):
        logits = line.forward(rows)
        if len(steps) == 2:  # its value is 0, its slope has no bound
            logits = logits + (line.parameters["bias"] * 0).sqrt().sum()
        return logits

    trained = fit(line, ONE_EPOCH, forward=forward, after=lambda step: steps.append(line.values()))
    assert (trained.outcome, trained.steps) == ("diverged", 2)
    assert trained.reason == "the gradient of step 3 of 6 is not finite"
    assert same(line.values(), steps[-1])
    assert all(value.isfinite().all() for value in line.values().values())


def test_a_run_that_diverges_late_leaves_its_best_epoch():
    line, steps = Line(), []

    def forward(rows):
        return line.forward(rows) * (float("inf") if len(steps) == 8 else 1.0)

    settings = Settings(num_train_epochs=2, per_device_train_batch_size=4, warmup_steps=0)
    trained = fit(line, settings, forward=forward, after=lambda step: steps.append(line.values()))
    assert (trained.outcome, trained.steps, len(trained.evaluations)) == ("diverged", 8, 1)
    assert same(line.values(), steps[5]) and not same(line.values(), steps[-1])


def scripted(line, scores):
    """Validation logits that are right for the given share of rows, one share an evaluation."""
    shares = iter(scores)

    def forward(rows):
        if rows[0] in TRAIN:
            return line.forward(rows)
        share = next(shares)
        if math.isnan(share):
            return torch.zeros(len(rows), 1)
        right = np.arange(len(rows)) < round(share * len(rows))
        picks = np.where(right, line.targets[rows], 1 - line.targets[rows])
        return F.one_hot(torch.from_numpy(picks), 2).float()

    return forward


@pytest.mark.parametrize(
    "scores, best",
    [([0.5, 0.75, 0.5], 1), ([0.5, 0.75, 0.75], 1), ([1, 0.5, 1], 0), ([0.25, 0.5, 0.75], 2), ([0.5] * 3, 0)],
)
def test_the_best_epoch_is_restored_and_a_tie_keeps_the_earlier(scores, best):
    settings = Settings(num_train_epochs=3, per_device_train_batch_size=8, warmup_steps=0)
    line, steps = Line(), []
    trained = fit(line, settings, forward=scripted(line, scores), after=lambda step: steps.append(line.values()))
    assert [e.validation["accuracy"] for e in trained.evaluations] == scores
    assert trained.best == best and trained.outcome == "ok"
    assert same(line.values(), steps[trained.evaluations[best].step - 1])
    assert not same(steps[2], steps[5])


def test_the_last_epoch_stays_where_the_best_is_not_asked_for():
    settings = Settings(num_train_epochs=3, per_device_train_batch_size=8, warmup_steps=0, load_best_model_at_end=False)
    line, steps = Line(), []
    scores = [0.5, 0.75, 0.25]
    trained = fit(line, settings, forward=scripted(line, scores), after=lambda step: steps.append(line.values()))
    assert trained.best == 2 and same(line.values(), steps[-1]) and not same(line.values(), steps[5])


def test_an_undefined_score_is_beaten_by_any_other():
    """The correlation of a constant is not defined."""
    settings = Settings(num_train_epochs=2, per_device_train_batch_size=8)
    line = Line()
    problem = problem_of(line.x[:, 0].numpy().astype(float), problem_type="regression", metric="pearson")
    outputs = iter([torch.zeros(16, 1), -line.x[VALIDATION, :1], torch.zeros(24, 1)])
    calls = []

    def forward(rows):
        calls.append(len(rows))
        return line.forward(rows)[:, :1] if len(rows) == 8 else next(outputs)[: len(rows)]

    trained = fit(line, settings, forward=forward, problem=problem)
    first, second = (e.validation["pearson"] for e in trained.evaluations)
    assert math.isnan(first) and second == pytest.approx(-1, abs=1e-6) and trained.best == 1


def test_a_constant_prediction_is_degenerate():
    line = Line()

    def forward(rows):
        return line.forward(rows) * (1 if rows[0] in TRAIN else 0) + torch.tensor([0.0, 1.0])

    trained = fit(line, ONE_EPOCH, forward=forward)
    assert (trained.outcome, trained.reason) == ("degenerate", "it predicts the same for every validation row")


def test_the_same_for_every_row_is_right_where_all_rows_are_of_one_class():
    line = Line()
    targets = line.targets.copy()
    targets[VALIDATION] = 1

    def forward(rows):
        return line.forward(rows) * (1 if rows[0] in TRAIN else 0) + torch.tensor([0.0, 1.0])

    trained = fit(line, ONE_EPOCH, forward=forward, problem=problem_of(targets))
    assert trained.outcome == "ok" and trained.evaluations[0].validation["accuracy"] == 1


def test_validation_logits_that_are_not_finite_are_diverged():
    line = Line()
    trained = fit(line, ONE_EPOCH, forward=lambda rows: line.forward(rows) * (1 if rows[0] in TRAIN else math.nan))
    assert trained.outcome == "diverged" and math.isnan(trained.evaluations[0].validation["accuracy"])


def test_class_weights_change_the_loss_as_in_torch():
    targets = np.array([0, 1, 1, 2])
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    weights = torch.tensor([1.0, 0.25, 3.0])
    plain = problem_of(targets).loss(logits, np.arange(4))
    weighted = problem_of(targets, weights=weights).loss(logits, np.arange(4))
    each = -logits.log_softmax(1)[range(4), targets]
    assert plain.item() == pytest.approx(each.mean().item(), rel=1e-6)
    by_hand = (weights[targets] * each).sum() / weights[targets].sum()
    assert weighted.item() == pytest.approx(by_hand.item(), rel=1e-6)
    assert weighted.item() != pytest.approx(plain.item(), rel=1e-3)
    assert torch.equal(weighted, F.cross_entropy(logits, torch.from_numpy(targets), weight=weights))


def test_the_loss_of_a_regression_is_the_mean_squared_error():
    targets = np.array([0.5, 2.0, -1.0, 7.0])
    logits = torch.tensor([[1.0], [2.0], [0.0]])
    problem = problem_of(targets, problem_type="regression", metric="pearson")
    assert problem.loss(logits, np.arange(3)).item() == pytest.approx((0.25 + 0 + 1) / 3)


def test_losses_are_in_fp32_under_autocast():
    logits = torch.randn(4, 2, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert problem_of(np.zeros(4, np.int64)).loss(logits, np.arange(4)).dtype == torch.float32


@pytest.mark.parametrize(
    "field, value", [("max_grad_norm", 0.0), ("weight_decay", 0.5), ("warmup_steps", 3), ("adam_beta1", 0.5)]
)
def test_settings_matter(field, value):
    base = {"num_train_epochs": 2, "per_device_train_batch_size": 8, "max_grad_norm": 0.1, "warmup_steps": 0}
    results = []
    for settings in (Settings(**base), Settings(**base | {field: value})):
        line = Line()
        fit(line, settings)
        results.append(line.values())
    assert not torch.equal(results[0]["weight"], results[1]["weight"])


def test_modes_are_set_around_every_evaluation():
    modes = []
    fit(Line(), Settings(num_train_epochs=2, per_device_train_batch_size=8), modes=modes)
    assert modes == [True, False, True, False, True, False]


def test_half_an_epoch():
    trained = fit(Line(), Settings(num_train_epochs=0.5, per_device_train_batch_size=4))
    assert trained.steps == 3 and [e.epoch for e in trained.evaluations] == [0.5]


@pytest.mark.parametrize("tune_pooler", [True, False])
@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_one_optimizer_step_leaves_every_frozen_byte(tiny_bert, k, tune_pooler):
    pretrained = load_pretrained(str(tiny_bert), labels=("no", "yes"), problem_type=CLASSES)
    model, anatomy = pretrained.model, pretrained.anatomy
    texts = sentences(40)
    tokens = encode(pretrained.tokenizer, [row["text"] for row in texts], None, 32)
    targets = np.array([row["label"] == "positive" for row in texts], np.int64)
    names = anatomy.tuned(k, tune_pooler=tune_pooler)
    parameters = pretrained.start(names, 0)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    settings = Settings(num_train_epochs=1, per_device_train_batch_size=24, warmup_steps=0, weight_decay=0.5)
    with packable(model), torch.random.fork_rng():
        groups = parameter_groups(parameters, frozenset(), settings, 1e-2)
        (trained,) = train(
            lambda rows: model(**tokens.batch(rows[0])).logits[None],
            [Learner(parameters, groups, TRAIN, torch.Generator())],
            Problem(CLASSES, targets, tokens.lengths, None, "accuracy"),
            VALIDATION,
            settings,
            set_mode=lambda on: set_train_mode(model, anatomy, names) if on else model.eval(),
        )
    assert trained.steps == 1
    for name, value in model.state_dict().items():
        same_bytes = value.numpy().tobytes() == before[name].numpy().tobytes()
        # A bias of keys shifts all scores of a query alike: its gradient is 0 but for rounding.
        assert same_bytes == (name not in names) or name.endswith("key.bias"), name
    frozen = [p for name, p in model.named_parameters() if name not in names]
    assert all(p.grad is None and not p.requires_grad for p in frozen)


TOGETHER = Settings(
    num_train_epochs=3, per_device_train_batch_size=8, max_grad_norm=0.2, warmup_steps=2, evaluations_per_epoch=2
)


def fit_together(lines, settings, seeds, rates, rows, *, forward=None):
    learners = [
        Learner(
            line.parameters,
            parameter_groups(line.parameters, frozenset(), settings, rate),
            own,
            torch.Generator().manual_seed(seed),
        )
        for line, seed, rate, own in zip(lines, seeds, rates, rows, strict=True)
    ]
    forwards = forward or [line.forward for line in lines]
    return train(
        lambda rows: torch.stack([one(own) for one, own in zip(forwards, rows, strict=True)]),
        learners,
        problem_of(lines[0].targets),
        VALIDATION,
        settings,
        set_mode=lambda training: None,
    )


def facts(trained):
    points = [(e.epoch, e.step, e.validation, e.train, e.logits.tobytes()) for e in trained.evaluations]
    return trained.outcome, trained.reason, trained.best, trained.steps, trained.train_last, points


def test_several_are_trained_as_each_alone():
    """Each with its own rows, their order, rate, schedule, clipping, scores and best values: to the last bit."""
    seeds, rates = (0, 1, 2), (0.5, 0.05, 0.005)
    rows = [TRAIN[:20], TRAIN[4:], TRAIN[2:22]]
    alone, values = [], []
    for n in range(3):
        line = Line()
        alone += fit_together([line], TOGETHER, seeds[n : n + 1], rates[n : n + 1], rows[n : n + 1])
        values.append(line.values())
    lines = [Line(), Line(), Line()]
    together = fit_together(lines, TOGETHER, seeds, rates, rows)
    assert [facts(one) for one in together] == [facts(one) for one in alone]
    assert all(same(line.values(), one) for line, one in zip(lines, values, strict=True))
    assert not same(values[0], values[1])
    assert len({one.train_seconds for one in together}) == 1


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_one_that_diverges_stops_and_the_others_do_not_notice(what):
    def forward_of(line, bad):
        def forward(rows):
            logits = line.forward(rows)
            if len(line.calls) == 6 and bad:  # its value is 0, or not a number; its slope has no bound
                logits = logits + (line.parameters["bias"] * 0).sqrt().sum() * (1 if what == "gradient" else math.nan)
            return logits

        return forward

    found = []
    for bad in (False, True):
        lines = [Line(), Line(), Line()]
        forwards = [forward_of(line, bad and n == 1) for n, line in enumerate(lines)]
        trained = fit_together(lines, TOGETHER, (0, 1, 2), [0.05] * 3, [TRAIN] * 3, forward=forwards)
        found.append([(facts(one), line.values()) for one, line in zip(trained, lines, strict=True)])
    beside, among = found
    for n in (0, 2):
        assert among[n][0] == beside[n][0] and same(among[n][1], beside[n][1])
    (outcome, reason, _, steps, train_last, points), values = among[1]
    assert (outcome, steps, train_last, len(points)) == ("diverged", 3, {}, 2)
    assert reason == f"the {what} of step 4 of 9 is not finite"
    assert all(value.isfinite().all() for value in values.values())
