"""Runs of a tiny BERT: pure functions of their specification, with or without kept states, and honest in their audit."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import frostline.training.run
from frostline.fast import embedding as lookup
from frostline.fast.gradients import hand_in
from frostline.frozen import forward_pass as passing
from frostline.frozen.check import head_reads, need_for
from frostline.frozen.hidden_states import Recipe, keep
from frostline.model.anatomy import HEAD, POOLER, probe_batch
from frostline.model.device import Machine
from frostline.model.pretrained import load_pretrained
from frostline.model.tokens import encode
from frostline.training.loop import Problem
from frostline.training.run import Bench, generator_seed, run, train_rows
from frostline.training.specification import RunSpec
from tiny import GOOD, sentences

CLASSES = "single_label_classification"
SIZES = {"train": 48, "validation": 24, "test": 24}
EVERY_CUT = (3, 2, 1)
COST = ("cost", "provenance")


def bench_of(folder, *, packed=True, precision="float32", regression=False):
    """A bench with nothing kept."""
    pretrained = load_pretrained(
        str(folder),
        labels=() if regression else ("negative", "positive"),
        problem_type="regression" if regression else CLASSES,
    )
    rows = sentences(sum(SIZES.values()))
    encoded = encode(pretrained.tokenizer, [row["text"] for row in rows], None, 32)
    splits, start = {}, 0
    for name, size in SIZES.items():
        splits[name] = np.arange(start, start + size)
        start += size
    targets = np.array([row["label"] == "positive" for row in rows], np.int64)
    problem = Problem(CLASSES, targets, encoded.lengths, None, "accuracy")
    if regression:
        scores = np.array([sum(word in GOOD for word in row["text"].split()) for row in rows], np.float64)
        problem = Problem("regression", scores, encoded.lengths, None, "pearson")
    machine = Machine(torch.device("cpu"), precision)
    reads = head_reads(pretrained.model, pretrained.anatomy, probe_batch(pretrained.model))
    return Bench(pretrained, machine, problem, encoded, splits, reads, packed)


def with_states(bench, folder, cuts=EVERY_CUT):
    """The bench with hidden states kept after these layers."""
    bench.pretrained.release()
    rows = np.arange(len(bench.tokens))
    recipe = Recipe("", "", bench.machine.precision, "", "", 1, "", "", "", head_reads=bench.reads)
    need = need_for(cuts, bench.pretrained.anatomy, bench.reads)
    return replace(bench, states=keep(bench.pass_for(need), bench.tokens, rows, recipe, folder=folder))


@pytest.fixture(scope="module")
def plain(tiny_bert):
    return bench_of(tiny_bert)


@pytest.fixture(scope="module")
def bench(plain, tmp_path_factory):
    return with_states(plain, tmp_path_factory.mktemp("kept"))


def spec_of(tune=1, **more):
    values = {
        "weights": "w",
        "vocabulary": "v",
        "data": "d",
        "seed": 0,
        "train_size": 32,
        "learning_rate": 3e-3,
        "num_train_epochs": 2,
        "per_device_train_batch_size": 8,
        "precision": "float32",
    }
    return RunSpec(tune=tune, **values | more)


def outcome(result):
    """All that a run leaves but what it cost, to the last bit."""
    facts = {name: value for name, value in result.facts.items() if name not in COST}
    logits = {name: value.tobytes() for name, value in result.logits.items()}
    test = None if result.test_logits is None else result.test_logits.tobytes()
    return json.dumps(facts, sort_keys=True), logits, result.test_facts, test


def weights_of(bench):
    return {name: p.detach().clone() for name, p in bench.pretrained.model.named_parameters()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in other)


def losses(result):
    return {(s["split"], s["epoch"]): s["value"] for s in result.facts["scores"] if s["metric"] == "loss"}


def furthest(one, other):
    """The largest relative difference of the losses and logits of two runs."""
    gaps = [abs(a - losses(other)[key]) / abs(a) for key, a in losses(one).items()]
    for name, value in one.logits.items():
        gaps.append(np.abs(value - other.logits[name]).max() / np.abs(value).max())
    return max(gaps)


@pytest.mark.parametrize("tune", [0, 1, 2, 3, "all"])
def test_the_same_run_twice_is_the_same_to_the_last_bit(bench, tune):
    first = run(spec_of(tune), bench)
    weights = weights_of(bench)
    assert first.facts["outcome"] in ("ok", "degenerate") and first.facts["status"] == "done"
    again = run(spec_of(tune), bench)
    assert outcome(again) == outcome(first) and same(weights_of(bench), weights)
    other = run(spec_of(tune, seed=1), bench)
    assert outcome(other)[1] != outcome(first)[1]


def test_no_run_sees_another(bench):
    """Neither the runs before it nor their order leave a trace."""
    specs = [
        spec_of(1),
        spec_of("all", learning_rate=1e-2),
        spec_of(0),
        spec_of(3, seed=1),
        spec_of(2, tune_pooler=False),
    ]
    forwards = [outcome(run(spec, bench)) for spec in specs]
    backwards = [outcome(run(spec, bench)) for spec in specs[::-1]]
    assert backwards[::-1] == forwards
    torch.manual_seed(99)
    assert outcome(run(specs[0], bench)) == forwards[0]


def test_a_run_leaves_the_generator_of_others_alone(bench):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    run(spec_of(1), bench)
    assert torch.equal(torch.get_rng_state(), before)


def test_subset_head_and_order_are_the_same_for_every_k(bench, monkeypatch):
    seen = {}

    def spy(forward, learners, *others, **more):
        (one,) = learners
        head = {n: p.detach().clone() for n, p in one.parameters.items() if bench.pretrained.anatomy.places[n] == HEAD}
        seen[k] = one.rows.tolist(), torch.randperm(9, generator=one.order).tolist(), torch.rand(3).tolist(), head
        raise StopIteration

    monkeypatch.setattr(frostline.training.run, "train", spy)
    for k in (0, 1, 2, 3, "all"):
        with pytest.raises(StopIteration):
            run(spec_of(k, seed=4), bench)
    first = seen[0]
    for k, other in seen.items():
        assert other[:3] == first[:3] and same(other[3], first[3]), k
    k = "other"
    with pytest.raises(StopIteration):
        run(spec_of(0, seed=5), bench)
    assert all(seen["other"][n] != first[n] for n in range(3)) and not same(seen["other"][3], first[3])


def test_subsets_are_nested_stratified_and_follow_the_seed(bench):
    for subset in ("per-seed", "fixed"):
        rows = [train_rows(bench, spec_of(train_size=size, subset=subset)) for size in (4, 16, 32, 48)]
        for smaller, larger in pairwise(rows):
            assert set(smaller) < set(larger) <= set(bench.splits["train"])
        for part in rows:
            assert abs(bench.problem.targets[part].sum() - len(part) / 2) <= 1
    first = train_rows(bench, spec_of(train_size=16))
    assert set(first) != set(train_rows(bench, spec_of(train_size=16, seed=1)))
    assert set(first) == set(train_rows(bench, spec_of(train_size=16, data_seed=1)))
    fixed = [
        train_rows(bench, spec_of(train_size=16, subset="fixed", seed=s, data_seed=d))
        for s, d in ((0, 0), (1, 0), (0, 1))
    ]
    assert set(fixed[0]) == set(fixed[1]) != set(fixed[2])


def test_every_purpose_has_a_seed_of_its_own():
    seeds = {generator_seed(seed, purpose) for seed in range(50) for purpose in ("head", "order", "dropout", "subset")}
    assert len(seeds) == 200 and all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("k", [0, 1, 2])
def test_kept_states_give_what_computing_them_each_time_gives(tiny_bert, tmp_path, k, packed):
    """The pass batches otherwise than a run, so the last bits differ; two epochs of steps do not make more of them."""
    without = bench_of(tiny_bert, packed=packed)
    kept = with_states(without, tmp_path)
    one, other = run(spec_of(k), kept), run(spec_of(k), without)
    assert (one.facts["provenance"]["cut"], other.facts["provenance"]["cut"]) == (3 - k, None)
    assert one.facts["validation_best"] == other.facts["validation_best"]
    assert furthest(one, other) < 1e-3
    assert one.facts["audit"] == other.facts["audit"]


@pytest.mark.parametrize(
    "kept, cuts", [((3, 2, 1), {0: 3, 1: 2, 2: 1}), ((3, 1), {0: 3, 1: 1, 2: 1}), ((1,), {0: 1, 1: 1, 2: 1})]
)
def test_a_cache_that_keeps_only_some_cuts(plain, bench, tmp_path, kept, cuts):
    some = with_states(plain, tmp_path, kept)
    for k, cut in cuts.items():
        one, whole = run(spec_of(k), some), run(spec_of(k), bench)
        assert one.facts["provenance"]["cut"] == cut
        assert one.facts["validation_best"] == whole.facts["validation_best"]
        assert furthest(one, whole) < 1e-3
        if cut == 3 - k:
            assert outcome(one) == outcome(whole)


def test_nothing_kept_is_used_above_every_cut(bench, plain):
    """k = L begins after the embeddings, full before them."""
    for tune in (3, "all"):
        one = run(spec_of(tune), bench)
        assert one.facts["provenance"]["cut"] is None and one.facts["cost"]["pass_seconds"] == 0
        assert outcome(one) == outcome(run(spec_of(tune), plain))


def test_frozen_dropout_keeps_nothing_and_leaves_dropout_on(bench, plain):
    modes = []
    embeddings = bench.pretrained.model.bert.embeddings
    hook = embeddings.register_forward_hook(lambda module, args, out: modes.append(module.dropout.training))
    try:
        one = run(spec_of(1, frozen_dropout=True), bench)
    finally:
        hook.remove()
    assert one.facts["provenance"]["cut"] is None
    assert modes.count(True) == one.facts["cost"]["steps"]
    assert one.facts["audit"]["frozen_in_eval_mode"] is False
    assert one.facts["audit"]["frozen_bytes_unchanged"] is True
    assert outcome(one)[1] != outcome(run(spec_of(1), plain))[1]


@pytest.mark.parametrize("tune_pooler", [True, False])
@pytest.mark.parametrize("tune", [0, 1, 3, "all"])
def test_the_audit_is_true(bench, tune, tune_pooler):
    model, anatomy = bench.pretrained.model, bench.pretrained.anatomy
    bench.pretrained.start(frozenset(), 0)
    before = weights_of(bench)
    result = run(spec_of(tune, tune_pooler=tune_pooler), bench)
    audit, after = result.facts["audit"], weights_of(bench)
    names = anatomy.tuned(None if tune == "all" else tune, tune_pooler=tune_pooler)
    moved = {name for name in after if not torch.equal(before[name], after[name])}
    assert moved <= names and {n for n in names if not n.endswith("key.bias")} - moved <= {
        "bert.embeddings.position_embeddings.weight"
    }
    assert audit["trainable_parameters"] == sum(p.numel() for n, p in model.named_parameters() if n in names)
    assert audit["parameters"] == sum(p.numel() for p in model.parameters())
    assert sum(place["trained"] for place in audit["by_place"].values()) == audit["trainable_parameters"]
    assert (
        sum(place["frozen"] for place in audit["by_place"].values())
        == audit["parameters"] - audit["trainable_parameters"]
    )
    assert audit["by_place"]["pooler"]["trained"] == (32 * 32 + 32) * tune_pooler
    assert audit["clipped_parameters"] == len(names)
    for fact in (
        "optimizer_holds_exactly_the_trained",
        "each_parameter_in_one_place",
        "frozen_bytes_unchanged",
        "frozen_gradients_none",
        "frozen_in_eval_mode",
    ):
        assert audit[fact] is True


def test_an_audit_that_fails_is_no_result(bench, monkeypatch):
    model = bench.pretrained.model
    frozen = model.bert.embeddings.word_embeddings.weight

    def nudge(step, total):
        with torch.no_grad():
            frozen[0, 0] += 1e-3

    with pytest.raises(AssertionError, match=r"audit: \['frozen_bytes_unchanged'\]"):
        run(spec_of(1), bench, on_step=nudge)
    with torch.no_grad():
        frozen[0, 0] = 0  # the padding token's
    monkeypatch.setattr(frostline.training.run, "set_train_mode", lambda model, anatomy, names: model.train())
    with pytest.raises(AssertionError, match=r"audit: \['frozen_in_eval_mode'\]"):
        run(spec_of(1), bench)
    monkeypatch.undo()

    def one_too_few(parameters, head, settings, rate, head_rate):
        return [{"params": list(parameters.values())[1:], "lr": rate}]

    monkeypatch.setattr(frostline.training.run, "parameter_groups", one_too_few)
    with pytest.raises(AssertionError, match="optimizer_holds_exactly_the_trained"):
        run(spec_of(1), bench)


def test_the_result_is_plain_facts(bench):
    result = run(spec_of(2), bench)
    facts = json.loads(json.dumps(result.facts, allow_nan=False))
    assert facts["digest"] == spec_of(2).digest and facts["schema_version"] == 1
    assert RunSpec.model_validate(facts["spec"]) == spec_of(2)
    accuracy = {(s["split"], s["epoch"]): s["value"] for s in facts["scores"] if s["metric"] == "accuracy"}
    assert set(accuracy) == {
        ("validation", 1),
        ("validation", 2),
        ("train_running", 1),
        ("train_running", 2),
        ("train", 2),
    }
    best = result.logits["validation_best"]
    targets = bench.problem.targets[bench.splits["validation"]]
    assert (
        facts["validation_best"] == (best.argmax(1) == targets).mean() == max(accuracy["validation", e] for e in (1, 2))
    )
    assert facts["validation_last"] == accuracy["validation", 2] and facts["train_last"] == accuracy["train", 2]
    assert facts["cost"]["steps"] == 8 and facts["cost"]["peak_memory_bytes"] > 0
    test = (result.test_logits.argmax(1) == bench.problem.targets[bench.splits["test"]]).mean()
    assert result.test_facts["scores"]["accuracy"] == test and "test" not in json.dumps(facts["scores"])


def test_the_model_is_left_at_the_best_epoch(bench):
    result = run(spec_of(2), bench)
    rows = bench.splits["validation"]
    with torch.no_grad():
        logits = bench.pretrained.model.eval()(**bench.tokens.batch(rows)).logits.numpy()
    assert np.abs(logits - result.logits["validation_best"]).max() < 1e-4


@pytest.mark.parametrize("k", [2, "all"])
def test_long_texts_are_scored_in_parts(bench, monkeypatch, k):
    """As many tokens at a time as there is room for; training batches stay whole."""
    spec, seen, upper = spec_of(k), [], frostline.training.run.Upper.__call__

    def watched(self, batch, *args, **more):
        seen.append((torch.is_grad_enabled(), batch["input_ids"].numel()))
        return upper(self, batch, *args, **more)

    monkeypatch.setattr(frostline.training.run.Upper, "__call__", watched)
    whole = run(spec, bench)
    trained, scored = ([size for learns, size in seen if learns is kind] for kind in (True, False))
    seen.clear()
    monkeypatch.setitem(passing.BUDGET, "cpu", 2 * (max(scored) // 3))
    parts = run(spec, bench)
    assert [size for learns, size in seen if learns] == trained
    again = [size for learns, size in seen if not learns]
    assert len(again) > len(scored) and max(again) <= max(scored) // 3
    for name, logits in whole.logits.items():
        np.testing.assert_allclose(parts.logits[name], logits, atol=1e-5)


@pytest.mark.parametrize("evaluations", [0, 1])
def test_rows_of_tables_that_wait_change_nothing_but_the_time(plain, monkeypatch, evaluations):
    """Words that are in validation texts and not in those of training are read with the decay that they waited for."""
    spec = spec_of("all", train_size=8, num_train_epochs=4, weight_decay=2.0, evaluations_per_epoch=evaluations)
    whole, after = run(spec, plain), weights_of(plain)
    monkeypatch.setattr(lookup, "LARGE", 8)
    met, meet = [], lookup.Table.meet
    monkeypatch.setattr(lookup.Table, "meet", lambda self, ids: [meet(self, ids), met.append((self, len(self.rows)))])
    few = run(spec, plain)
    words, known = max((len(table.place_of), rows) for table, rows in met)
    assert 0 < known < words  # others wait
    for name, logits in whole.logits.items():
        np.testing.assert_allclose(few.logits[name], logits, atol=2e-5)
    for name, value in weights_of(plain).items():
        torch.testing.assert_close(value, after[name], rtol=1e-4, atol=1e-5)
    for name, value in few.learned.items():
        torch.testing.assert_close(value, whole.learned[name], rtol=1e-4, atol=1e-5)


def test_the_audit_sees_gradients_in_whatever_form(plain, monkeypatch):
    train = frostline.training.run.train

    def leaking(*args, **kwargs):
        frozen = next(p for p in plain.pretrained.model.parameters() if not p.requires_grad and p.dim() > 1)
        hand_in(frozen, torch.ones_like(frozen))
        return train(*args, **kwargs)

    monkeypatch.setattr(frostline.training.run, "train", leaking)
    with pytest.raises(AssertionError, match="frozen_gradients_none"):
        run(spec_of(1), plain)


def test_a_run_learns(bench):
    result = run(spec_of("all", num_train_epochs=10, train_size=48), bench)
    assert losses(result)["train", 10] < losses(result)["train_running", 1] - 0.2


def test_states_are_of_the_pretrained_weights_whatever_ran_before(plain, bench, tmp_path):
    run(spec_of("all"), plain)
    later = with_states(plain, tmp_path)
    rows = np.arange(len(plain.tokens))
    for cut in (1, 2):
        assert torch.equal(later.states.tokens(cut, rows), bench.states.tokens(cut, rows))


def test_a_run_that_diverges_is_a_result(bench):
    spec = spec_of(1, learning_rate=1e30, head_learning_rate=1e30, max_grad_norm=0, warmup_steps=0)
    result = run(spec, bench)
    assert result.facts["outcome"] == "diverged" and "not finite" in result.facts["reason"]
    json.dumps(result.facts, allow_nan=False)
    assert result.test_facts is None
    assert run(spec_of(1), bench).facts["outcome"] != "diverged"  # the next one is not harmed


def test_regression(tiny_bert, tmp_path):
    bench = with_states(bench_of(tiny_bert, regression=True), tmp_path)
    result = run(spec_of(1), bench)
    assert {s["metric"] for s in result.facts["scores"]} == {"pearson", "spearmanr", "r2", "loss"}
    assert result.logits["validation_best"].shape == (24, 1)
    assert outcome(run(spec_of(1), bench)) == outcome(result)


def test_bfloat16(tiny_bert, bench, tmp_path):
    abilities = torch.cpu.get_capabilities()
    if not (abilities.get("avx512_bf16") or abilities.get("amx_bf16")):
        pytest.skip("this processor does not multiply in bfloat16")
    without = bench_of(tiny_bert, precision="bfloat16")
    kept = with_states(without, tmp_path)
    for k in (0, 2, "all"):
        spec = spec_of(k, precision="bfloat16")
        one = run(spec, kept)
        assert outcome(run(spec, kept)) == outcome(one)
        assert furthest(one, run(spec, without)) < 0.05
        assert outcome(one)[1] != outcome(run(spec_of(k), bench))[1]
        assert {p.dtype for p in kept.pretrained.model.parameters()} == {torch.float32}


def test_texts_that_end_as_padding_begins(tmp_path):
    """A tokenizer that ends each text with what also pads: the kept state is that of the token the model looks at."""
    words = Tokenizer(
        models.WordLevel({"<end>": 0, "<unknown>": 1, **{w: n for n, w in enumerate(GOOD, 2)}}, "<unknown>")
    )
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(single="$A <end>", special_tokens=[("<end>", 0)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unknown>", eos_token="<end>", model_max_length=32
    )
    fast.save_pretrained(tmp_path / "model")
    sizes = {
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 2,
        "n_positions": 32,
        "vocab_size": 8,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        GPT2LMHeadModel(GPT2Config(**sizes, initializer_range=0.2)).save_pretrained(tmp_path / "model")
    without = bench_of(tmp_path / "model")
    assert without.reads == "last" and (without.tokens.inputs["input_ids"][without.tokens.offsets[1:] - 1] == 0).all()
    kept = with_states(without, tmp_path / "kept")
    for k in (0, 1):
        assert furthest(run(spec_of(k), kept), run(spec_of(k), without)) < 1e-3


def test_head_and_pooler_have_a_rate_of_their_own(bench):
    spec = spec_of(1, learning_rate=1e-12, head_learning_rate=1e-2)
    bench.pretrained.start(frozenset(), generator_seed(spec.seed, "head"))
    before = weights_of(bench)
    run(spec, bench)
    places = bench.pretrained.anatomy.places
    for name, value in weights_of(bench).items():
        if (value - before[name]).abs().max() > 1e-6:
            assert places[name] in (HEAD, POOLER)


def named_spec(*modules, **more):
    return spec_of("named", tune_modules=modules, **more)


def outcome_but_for_the_name(result):
    facts, logits, test_facts, test = outcome(result)
    facts = {name: value for name, value in json.loads(facts).items() if name not in ("digest", "spec")}
    return facts, logits, test_facts["scores"], test


@pytest.mark.parametrize("keeps", [True, False])
def test_the_last_layers_by_name_are_the_last_layers_to_the_last_bit(plain, bench, keeps):
    used = bench if keeps else plain
    by_number = run(spec_of(2), used)
    weights = weights_of(used)
    by_name = run(named_spec("encoder.layer.1", "layer.2", "pooler", "classifier"), used)
    assert outcome_but_for_the_name(by_name) == outcome_but_for_the_name(by_number)
    assert losses(by_name) == losses(by_number) and same(weights_of(used), weights)
    assert by_name.facts["provenance"]["cut"] == by_number.facts["provenance"]["cut"] == (1 if keeps else None)


MODULES = [  # and the cut
    (("pooler",), 3),
    (("layer.1",), 1),
    (("layer.1.output", "layer.2.attention"), 1),
    (("attention.self.query",), None),
    (("layer.0",), None),
    (("word_embeddings", "layer.1"), None),
]


@pytest.mark.parametrize("modules, cut", MODULES, ids=lambda value: "+".join(value) if isinstance(value, tuple) else "")
def test_named_parts_with_kept_states_and_without(plain, bench, modules, cut):
    one, other = run(named_spec(*modules), bench), run(named_spec(*modules), plain)
    assert (one.facts["provenance"]["cut"], other.facts["provenance"]["cut"]) == (cut, None)
    assert one.facts["validation_best"] == other.facts["validation_best"]
    assert furthest(one, other) < 1e-3
    assert one.facts["audit"] == other.facts["audit"]
    assert outcome(run(named_spec(*modules), bench)) == outcome(one)


@pytest.mark.parametrize("modules, cut", MODULES, ids=lambda value: "+".join(value) if isinstance(value, tuple) else "")
def test_just_the_named_parts_move(bench, modules, cut):
    anatomy = bench.pretrained.anatomy
    bench.pretrained.start(frozenset(), 0)
    before = weights_of(bench)
    audit = run(named_spec(*modules), bench).facts["audit"]
    moved = {name for name, value in weights_of(bench).items() if not torch.equal(before[name], value)}
    wanted = {
        name
        for name, place in anatomy.places.items()
        if place == HEAD or any(f".{part}." in f".{name}" for part in modules)
    }
    assert moved <= wanted and {name for name in wanted - moved if not name.endswith("key.bias")} == set()
    assert audit["trainable_parameters"] == sum(before[name].numel() for name in wanted)
    assert audit["clipped_parameters"] == len(wanted)
    assert not [name for name, value in audit.items() if value is False]


def test_a_frozen_layer_above_the_named_part_has_no_dropout(bench):
    modes = {}
    layers = bench.pretrained.anatomy.layers(bench.pretrained.model)
    hooks = [
        layer.register_forward_hook(
            lambda layer, args, out, n=n: modes.setdefault(n, set()).add(layer.output.dropout.training)
        )
        for n, layer in enumerate(layers)
    ]
    try:
        run(named_spec("layer.1"), bench)
    finally:
        for hook in hooks:
            hook.remove()
    assert modes == {0: {False}, 1: {True, False}, 2: {False}}  # in training and in evaluation
