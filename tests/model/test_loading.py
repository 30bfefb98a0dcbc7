"""Loading a model: unusable folders, hub names, tokenizers, length limits."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    ByT5Tokenizer,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
    pipeline,
)
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from frostline import FrostlineError
from frostline.data.examples import Texts
from frostline.frozen.exactness import difference_from_transformers
from frostline.frozen.logits import logits_of_texts
from frostline.model.anatomy import position_limit, probe_batch, text_limit
from frostline.model.classifier import load_classifier, save_files
from frostline.model.loading import MODEL_CLASSES, NUMBER_MATTERS, load_tokenizer
from frostline.model.terms import OUTPUT_KEYS
from frostline.model.tokens import encode, suited
from frostline.sweeps.prepare import length_limit
from frostline.sweeps.settings import make_settings
from frozen.test_exactness import REFUSED
from model.test_anatomy import FOUND, SAMPLE, sampled
from model.test_anatomy import REFUSED as NO_LAYERS
from small_models import (
    REASONS,
    TAG_TYPES,
    TYPES,
    bare_tokenizer,
    edit_config,
    edit_weights,
    load,
    small_config,
    small_model,
    write_base,
)
from tiny import tiny_tokenizer

CANNOT_CLASSIFY = "transformers cannot load it for classification ("
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + 64 * "0" + "\nsize 268\n"
OF_LFS = "is a pointer of Git LFS instead of the file. Get"
ADAPTER = {"peft_type": "LORA", "task_type": "SEQ_CLS", "base_model_name_or_path": "org/base"}
CONFIG, WEIGHTS, INDEX, TOKENIZER = "config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json"
ONE_SHARD = {"weight_map": {"a": "one.safetensors"}}
OF_ADAPTER, BERT = {"adapter_config.json": ADAPTER}, {"model_type": "bert"}
OWN_TOKENIZER = {"auto_map": {"AutoTokenizer": ["own.Own", None]}, "tokenizer_class": "Own"}
PARTS = {"modules.json": [], "0_Transformer/config.json": BERT, "1_Pooling/config.json": {"pooling": 1}}
# Files to remove, files to write, and what the message says.
FILES = {
    "no configuration": ([CONFIG], {}, "is not a model: it has no config.json. Give a folder"),
    "no tokenizer": (["tokenizer*"], {}, "has no tokenizer: tokenizer.json or a vocabulary file belongs beside"),
    "no weights": ([WEIGHTS], {}, "has no weights in safetensors. It has no others either: copy or download them"),
    "no safetensors": ([], {WEIGHTS: 100 * "?"}, f"{CANNOT_CLASSIFY}SafetensorError"),
    "garbage for a configuration": ([], {CONFIG: "{garbage"}, "its config.json cannot be used"),
    "a list for a configuration": ([], {CONFIG: [1]}, "its config.json cannot be used"),
    "garbage for a tokenizer": ([], {TOKENIZER: {}}, "its tokenizer cannot be loaded"),
    "an adapter": ([CONFIG, WEIGHTS], OF_ADAPTER, "holds only an adapter of org/base: merge it into that model"),
    "an adapter and a configuration": ([WEIGHTS], OF_ADAPTER, "It holds only an adapter of org/base: merge"),
    "an adapter of another library": ([CONFIG, WEIGHTS], {"adapter_config.json": {"model_name": "b"}}, "only an adapter of b"),
    "an adapter beside a model": ([], OF_ADAPTER, "has an adapter beside its weights, which transformers would load"),
    "a pointer for weights": ([], {WEIGHTS: POINTER}, f"model.safetensors {OF_LFS}"),
    "a pointer for a tokenizer": ([], {TOKENIZER: POINTER}, f"tokenizer.json {OF_LFS}"),
    "a pointer for a vocabulary": ([TOKENIZER], {"vocab.txt": POINTER}, f"vocab.txt {OF_LFS}"),
    "a pointer for a configuration": ([], {CONFIG: POINTER}, f"config.json {OF_LFS}"),
    "a pointer for an index": ([WEIGHTS], {INDEX: POINTER}, f"index.json {OF_LFS}"),
    "a pointer for a shard": ([WEIGHTS], {INDEX: ONE_SHARD, "one.safetensors": POINTER}, f"one.safetensors {OF_LFS}"),
    "a web page": ([], {WEIGHTS: "\n<!DOCTYPE html><p>"}, "model.safetensors is a web page. Download"),
    "nothing": ([], {WEIGHTS: ""}, "model.safetensors is empty. Download"),
    "a shard is absent": ([WEIGHTS], {INDEX: ONE_SHARD}, "lacks 1 of 1 files that model.safetensors.index.json names"),
    "a damaged index": ([WEIGHTS], {INDEX: {}}, "index.json cannot be read (KeyError"),
    "GGUF": ([CONFIG, WEIGHTS], {"m.gguf": "GGUF"}, "weights are only in m.gguf; convert them with transformers"),
    "ONNX": ([WEIGHTS], {"onnx/model.onnx": "x"}, "only in model.onnx; they were exported to run, not to be trained"),
    "Flax": ([WEIGHTS], {"flax_model.msgpack": "x"}, "only in flax_model.msgpack; convert them with transformers"),
    "PyTorch": (
        [WEIGHTS],
        {"pytorch_model.bin": "x", "training_args.bin": "x"},
        "Its weights are only in pytorch_model.bin; convert them: python",
    ),
    "another name": ([WEIGHTS], {"own.safetensors": "x"}, "transformers does not read own.safetensors: rename it"),
    "sentence-transformers": ([CONFIG, WEIGHTS], PARTS, "0_Transformer: give that."),
    "a folder of checkpoints": ([CONFIG, WEIGHTS], {"checkpoint-5/config.json": BERT}, "checkpoint-5: give that."),
    "code for the tokenizer": (
        [TOKENIZER],
        {"tokenizer_config.json": OWN_TOKENIZER},
        "runs Python code of its own and has none of the usual files, such as tokenizer.json. Choose",
    ),
}  # fmt: skip


def in_8_bits(weights):
    for name in [name for name in weights if name.endswith("output.dense.weight")]:
        scale = weights[name].abs().max() / 448
        weights |= {name: (weights[name] / scale).to(torch.float8_e4m3fn), f"{name}_scale": scale.reshape(1)}


# Changes of a folder, and what the message says.
CONTENTS = {
    # plain transformers cannot load this either
    "a padding token beyond the vocabulary": (
        lambda folder: edit_config(folder, pad_token_id=999),
        f"{CANNOT_CLASSIFY}AssertionError: Padding_idx must be within num_embeddings)",
    ),
    "half of the weights": (
        lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:1000]),
        f"{CANNOT_CLASSIFY}SafetensorError",
    ),
    "an unknown type": (lambda folder: edit_config(folder, model_type="frosty"), "its config.json cannot be used (ValueError"),
    "a type that cannot classify": (lambda folder: edit_config(folder, model_type="vit"), f"{CANNOT_CLASSIFY}ValueError"),
    "code from elsewhere": (
        lambda folder: edit_config(folder, model_type="own", auto_map={"AutoConfig": "own.OwnConfig"}),
        "comes with Python code of its own, which is not run unless you trust it: read it, and",
    ),
    "quantized weights of an unknown method": (
        lambda folder: (
            edit_config(folder, quantization_config={"quant_method": "modelopt"}),
            edit_weights(folder, in_8_bits),
        ),
        "are quantized (encoder.layer.0.attention.output.dense.weight), and transformers would read them without their scales",
    ),
    "quantized weights of no method": (
        lambda folder: edit_weights(folder, in_8_bits),
        "are quantized (encoder.layer.0.attention.output.dense.weight), and transformers would read them without their scales",
    ),
    "more layers than the configuration says": (
        lambda folder: edit_config(folder, num_hidden_layers=2),
        "more in their layers than its config.json describes (encoder.layer.2.attention.output.LayerNorm.weight)",
    ),
    "an adapter among the weights": (
        lambda folder: edit_weights(
            folder, lambda w: w.update({"encoder.layer.1.lora_A.default.weight": torch.ones(2, 2)})
        ),
        "more in their layers than its config.json describes (encoder.layer.1.lora_A.default.weight)",
    ),
    "too few weights": (
        lambda folder: edit_weights(folder, lambda weights: [weights.pop(n) for n in list(weights) if "layer.1." in n]),
        "The model's weights lack 16 parameters of its body (bert.encoder.layer.1.",
    ),
    "weights of another shape": (
        lambda folder: edit_config(folder, intermediate_size=48),
        "The model's weights lack 9 parameters of its body (bert.encoder.layer.0.",
    ),
}  # fmt: skip


def message_for(folder, **more):
    """The one line about a model that cannot be used."""
    with pytest.raises(FrostlineError) as error:
        load(folder, **more)
    message = str(error.value)
    assert "\n" not in message and message.endswith(".")
    return message


@pytest.mark.parametrize("case", FILES)
def test_a_folder_without_usable_files_says_what_it_is(folder, case):
    removed, written, expected = FILES[case]
    for pattern in removed:
        for file in folder.glob(pattern):
            file.unlink()
    for name, content in written.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    message = message_for(folder)
    assert expected in message and str(folder) in message


@pytest.mark.parametrize("case", CONTENTS)
def test_a_model_that_cannot_be_used_is_an_error_with_a_remedy(folder, case):
    change, expected = CONTENTS[case]
    change(folder)
    message = message_for(folder)
    assert expected in message and re.search(r"[.:;] (Download|Choose|Update|read|add) ", message)


def test_a_link_without_a_file_says_so(folder):
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to("../../blobs/0f3a")
    assert "model.safetensors is a link to ../../blobs/0f3a, which does not exist" in message_for(folder)


def test_code_that_needs_a_package_names_it(folder):
    edit_config(folder, model_type="own", auto_map={"AutoConfig": "own.OwnConfig"})
    (folder / "own.py").write_text("import a_package_that_is_not_there\n")
    message = message_for(folder, trust_remote_code=True)
    assert "a_package_that_is_not_there" in message and ". Install what it needs, or choose" in message


def test_an_adapter_in_a_model_names_the_model(folder):
    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps(ADAPTER))
    assert f"only an adapter of the model in {folder}: give that folder." in message_for(folder / "adapter")


@pytest.mark.parametrize(
    "name, more, expected",
    [
        *((name, {}, f"no model folder {name}: check") for name in ("nowhere/at/all", "./nowhere", "~nobody/model")),
        ("org/model", {"revision": "v1"}, "'org/model' (revision v1) is neither a folder nor available from the hub"),
        ("not a hub name!", {}, "is neither a folder nor available from the hub"),
        ("org/model", {"trust_remote_code": True}, "pin it with --revision COMMIT"),
    ],
)
def test_a_name_of_no_model_is_an_error(name, more, expected):
    assert expected in message_for(name, **more)


def test_a_file_is_no_model_and_a_folder_has_no_revision(folder):
    for name in (CONFIG, WEIGHTS):
        assert f"{name} is a file: give its folder, {folder}." in message_for(folder / name)
    assert "a folder has no revision 'c0ffee': leave --revision out" in message_for(folder, revision="c0ffee")
    assert load(folder, trust_remote_code=True).anatomy.count == 3


def test_a_hub_name_is_loaded_from_the_hubs_cache(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    commit = "c0ffee" * 6 + "c0de"
    cached = tmp_path / "models--org--tiny"
    shutil.copytree(tiny_bert, cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit)
    from_hub, from_folder = load("org/tiny"), load(tiny_bert)
    assert (from_hub.revision, from_folder.revision) == (commit, None)
    assert (from_hub.weights, from_hub.vocabulary) == (from_folder.weights, from_folder.vocabulary)


@pytest.mark.parametrize("limit, expected", [(20, 20), (1000, 30)])
def test_max_length_is_limited_by_positions_and_tokenizer(tmp_path, limit, expected):
    """RoBERTa numbers positions from 2 on, so 32 positions allow 30 tokens."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = RobertaConfig(vocab_size=8, max_position_embeddings=32, pad_token_id=1, **sizes)
    RobertaModel(config).save_pretrained(tmp_path)
    bare_tokenizer(tmp_path, pad_token="<unknown>", model_max_length=limit)
    pretrained = load(tmp_path)
    assert pretrained.max_length == expected and position_limit(pretrained.model) == 30
    tokens = encode(pretrained.tokenizer, ["good " * 50], None, pretrained.max_length)
    assert pretrained.model(**tokens.batch(np.array([0]))).logits.isfinite().all()
    spec = {"model": str(tmp_path), "train": "t.csv", "tune": "0", "out": "o"}
    assert length_limit(make_settings({**spec, "max_length": 30}), pretrained, pairs=False) == 30
    for wrong, pairs, least in ((31, False, 1), (1, True, 2)):  # of each text at least one token
        with pytest.raises(
            FrostlineError, match=f"max_length = {wrong} does not suit .*: give a number from {least} to 30"
        ):
            length_limit(make_settings({**spec, "max_length": wrong}), pretrained, pairs=pairs)


@pytest.mark.parametrize(
    "model_type, settings, limit",
    [
        ("roberta", {"pad_token_id": 1}, 126),
        ("roberta", {"pad_token_id": 0}, 127),
        ("roberta", {"pad_token_id": -1}, 128),
        ("ibert", {"pad_token_id": 1}, 126),
        ("mpnet", {"pad_token_id": 0}, 126),  # it numbers from 2, whatever the configuration says
        ("esm", {"pad_token_id": 1}, 128),  # rotary positions
        ("esm", {"pad_token_id": 1, "position_embedding_type": "absolute"}, 126),
        ("bert", {"pad_token_id": 5, "vocab_size": 128}, 128),  # as many tokens as positions
        ("opt", {"pad_token_id": 1}, 128),
        ("xlm-roberta-xl", {"pad_token_id": 1}, 126),
    ],
)
def test_position_limit_of_models_that_number_from_the_padding(model_type, settings, limit):
    config = small_config(model_type)
    for name, value in settings.items():
        setattr(config, name, value)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    assert position_limit(model) == limit
    ids = torch.full((1, limit + 1), 50)
    with torch.no_grad():
        assert model(input_ids=ids[:, 1:]).logits.isfinite().all()
        if model_type != "esm" or limit < 128:
            with pytest.raises((IndexError, RuntimeError)):
                model(input_ids=ids)


def test_position_limit_without_an_offset_or_positions():
    model = small_model("bert")
    for positions, limit in ((40, 40), (1, 1), (0, None), (-1, None)):
        model.config.max_position_embeddings = positions
        assert position_limit(model) == limit
    model = small_model("bloom")
    assert not hasattr(model.config, "max_position_embeddings") and position_limit(model) is None


@pytest.mark.parametrize(("of_tokenizer", "limit"), [(700, 700), (100, 100), (VERY_LARGE_INTEGER, 512)])
def test_a_model_without_positions_reads_as_many_tokens_as_its_tokenizer_allows(of_tokenizer, limit):
    """A sweep with --max-length writes it there, so predictions truncate no earlier."""
    tokenizer = tiny_tokenizer("input_ids", "attention_mask")
    tokenizer.model_max_length = of_tokenizer
    assert text_limit(small_model("bloom"), tokenizer) == limit


NUMBERS = 300  # tokens "w000" .. "w299" with these numbers


def numbered_tokenizer(folder, *, ends_with=3, **special):
    """A tokenizer of numbered words that ends each text with a token, and gives the second text of a pair type 1."""
    words = Tokenizer(models.WordLevel({f"w{n:03}": n for n in range(NUMBERS)}, unk_token="w009"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    end = "" if ends_with is None else f"w{ends_with:03}"
    known = [("w004", 4), *[(end, ends_with)] * bool(end)]
    words.post_processor = processors.TemplateProcessing(
        single=f"w004 $A {end}".split(), pair=f"w004 $A {end} $B:1 {end and end + ':1'}".split(), special_tokens=known
    )
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    names = {"unk_token": "w009", "cls_token": "w004"} | special
    PreTrainedTokenizerFast(tokenizer_object=words, model_input_names=inputs, **names).save_pretrained(folder)


def numbered_texts(*lengths):
    draw = np.random.default_rng(0)
    return [" ".join(f"w{n:03}" for n in draw.integers(30, NUMBERS, length)) for length in lengths]


def hidden_states(model, batch):
    torch.manual_seed(0)
    with torch.no_grad():
        out = model(**batch, output_hidden_states=True)
    return *(getattr(out, "hidden_states", None) or ()), out[0]


OTHERS = (*REASONS, *NO_LAYERS, "bros", "tapas")  # the last two need boxes, or types of seven kinds


@pytest.mark.parametrize("pad", [1, pytest.param(20, marks=pytest.mark.every)])
@pytest.mark.parametrize(
    "model_type", sampled([name for name in sorted({*TYPES, *TAG_TYPES}) if name not in OTHERS], (*SAMPLE, "roberta"))
)
def test_hidden_states_of_every_type_are_those_of_transformers(tmp_path, model_type, pad):
    """Configuration and tokenizer disagree on pad, eos and types. transformers reads each text by itself."""
    task = "text-classification" if model_type in TYPES else "token-classification"
    small_model(model_type, head=MODEL_CLASSES[task]).save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    config.get_text_config().pad_token_id = pad
    config.save_pretrained(tmp_path)
    numbered_tokenizer(tmp_path, pad_token="w007", eos_token="w008", sep_token="w003")
    pretrained = load(tmp_path, labels=("a", "b", "c"), task_type=task)
    first, second = numbered_texts(12, 5, 9), numbered_texts(4, 6, 2)
    tokens = suited(encode(pretrained.tokenizer, first, second, 64), pretrained.model, pretrained.tokenizer)
    together = hidden_states(pretrained.model.base_model, tokens.batch(np.arange(3)))
    reference = AutoModel.from_pretrained(tmp_path, dtype=torch.float32).eval()
    plain = AutoTokenizer.from_pretrained(tmp_path)
    types = getattr(pretrained.model.config.get_text_config(), "type_vocab_size", None)
    for n, both in enumerate(zip(first, second, strict=True)):
        given = dict(plain(*both, return_tensors="pt"))
        assert given["token_type_ids"].max() == 1
        if types == 1:
            given["token_type_ids"] *= 0
        expected = hidden_states(reference, given)
        alone = hidden_states(pretrained.model.base_model, tokens.batch(np.array([n])))
        for own, among, right in zip(alone, together, expected, strict=True):
            assert torch.equal(own, right)
            if model_type not in REFUSED or model_type == "lilt":  # else the output depends on the padding
                assert (among[n, : right.shape[1]] - right[0]).abs().max() < 1e-5 * right.abs().max()
    limit = position_limit(pretrained.model)
    if limit is not None:
        longest = probe_batch(pretrained.model, [limit])
        assert longest["input_ids"].shape == (1, limit)
        assert hidden_states(pretrained.model.base_model, longest)[-1].isfinite().all()
    assert difference_from_transformers(pretrained) == 0


def test_the_check_finds_a_model_that_loading_has_changed(tmp_path):
    small_model("roberta").save_pretrained(tmp_path)
    edit_config(tmp_path, pad_token_id=1)
    numbered_tokenizer(tmp_path, pad_token="w000")
    pretrained = load(tmp_path)
    assert difference_from_transformers(pretrained) == 0
    pretrained.model.roberta.embeddings.padding_idx = 0  # the first position is 1 instead of 2
    assert difference_from_transformers(pretrained) > 0.01
    pretrained.model.roberta.embeddings.padding_idx = 1
    with torch.no_grad():
        pretrained.model.roberta.embeddings.word_embeddings.weight[9] = torch.nan
    assert np.isnan(difference_from_transformers(pretrained))


PADDING = {  # type, pad of the configuration, tokens of the tokenizer, the token that a text ends with -> the model's pad
    "RoBERTa whose pad is another token": ("roberta", 1, {"pad_token": "w000"}, 3, 1),
    "RoBERTa whose pad is the first token": ("roberta", 0, {"pad_token": "w001"}, 3, 0),
    "RoBERTa that numbers positions from 0": ("roberta", -1, {"pad_token": "w001"}, 3, -1),
    "BERT without one": ("bert", None, {"pad_token": "w007"}, 3, 7),
    "Llama without one": ("llama", None, {"pad_token": "w007"}, 3, 7),
    "Llama without one, as its tokenizer": ("llama", None, {"eos_token": "w008"}, 3, 8),
    "Llama without one, whose texts end with the tokenizer's": ("llama", None, {"eos_token": "w003"}, 3, 4),
    "Llama without one, whose tokenizer pads with the unknown token": ("llama", None, {"pad_token": "w009"}, None, 4),
    "Llama of which it is -1": ("llama", -1, {"pad_token": "w007"}, 3, 7),
    "GPT-2 of which it is beyond the vocabulary": ("gpt2", 999, {"pad_token": "w007"}, 3, 7),
    "Llama whose texts end with it": ("llama", 3, {"pad_token": "w007", "eos_token": "w003"}, 3, 3),
    "Llama that pads with a word": ("llama", 20, {"pad_token": "w007"}, 3, 20),
    "Llama whose tokenizer pads with a token that it does not know": ("llama", None, {"pad_token": "[NEW]"}, 3, 4),
    "Llama that pads with a special token": ("llama", 8, {"pad_token": "w007", "eos_token": "w008"}, 3, 8),
}


@pytest.mark.parametrize("case", PADDING)
def test_logits_of_a_batch_are_those_of_transformers_for_each_text(tmp_path, case):
    """Also after saving, in frostline and in a pipeline."""
    model_type, pad, special, ends_with, expected = PADDING[case]
    small_model(model_type).save_pretrained(tmp_path / "base")
    edit_config(tmp_path / "base", pad_token_id=pad)
    numbered_tokenizer(tmp_path / "base", ends_with=ends_with, **special)
    pretrained = load(tmp_path / "base", labels=("a", "b", "c"))
    assert pretrained.model.config.pad_token_id == expected
    texts = [*numbered_texts(12, 5, 9), "w040 unknown"]
    tokens = suited(encode(pretrained.tokenizer, texts, None, 64), pretrained.model, pretrained.tokenizer)
    with torch.no_grad():
        logits = pretrained.model(**tokens.batch(np.arange(4))).logits
    untouched, info = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "base", output_loading_info=True, num_labels=3
    )
    assert not info["missing_keys"]
    plain = AutoTokenizer.from_pretrained(tmp_path / "base")
    for n, text in enumerate(texts):
        with torch.no_grad():
            right = untouched.eval()(**plain(text, return_tensors="pt")).logits
        assert (logits[n] - right).abs().max() < 1e-5 * right.abs().max()
    save_files(pretrained.model, tmp_path / "saved")
    pretrained.tokenizer.save_pretrained(tmp_path / "saved")
    classifier = load_classifier(tmp_path / "saved")
    given = Texts(texts=tuple(texts), pairs=None, rows=np.arange(4), name="texts")
    found = logits_of_texts(classifier, classifier.encode(given))
    assert (found - logits).abs().max() < 1e-5 * logits.abs().max()
    classify = pipeline("text-classification", str(tmp_path / "saved"), top_k=None, function_to_apply="none")
    for size in (1, 4) if expected in pretrained.tokenizer.all_special_ids or model_type != "llama" else (1,):
        for row, scores in zip(logits, classify(texts, batch_size=size), strict=True):
            by_label = {one["label"]: one["score"] for one in scores}
            assert torch.tensor([by_label[x] for x in "abc"]).allclose(row, rtol=0, atol=1e-4 * float(row.abs().max()))


TYPE_CASES = {  # type, its number of token types, types of the tokenizer's pair and its padding -> types that the model is given
    "RoBERTa": ("roberta", 1, "$A $B:1", 0, [0, 0]),
    "BERT of one type": ("bert", 1, "$A $B:1", 1, [0, 0]),
    "BERT of two types": ("bert", 2, "$A $B:1", 0, [0, 1]),
    "BERT of two types, whose tokenizer has four": ("bert", 2, "$A:1 $B:3", 3, [1, 0]),
    "ELECTRA whose padding has a type that it lacks": ("electra", 2, "$A $B:1", 3, [0, 1]),
    "DeBERTa without types": ("deberta-v2", 0, "$A $B:1", 0, [0, 1]),
    "DistilBERT, which ignores types": ("distilbert", None, "$A $B:5", 5, [0, 5]),
}


@pytest.mark.parametrize("case", TYPE_CASES)
def test_token_types_that_a_model_lacks_are_0(tmp_path, case):
    model_type, count, pair, of_padding, expected = TYPE_CASES[case]
    config = small_config(model_type)
    if count is not None:
        config.type_vocab_size = count
    AutoModel.from_config(config).save_pretrained(tmp_path)
    numbered_tokenizer(tmp_path, pad_token="w007")
    settings = json.loads((tmp_path / "tokenizer.json").read_text())
    words = Tokenizer.from_str(json.dumps({**settings, "post_processor": None}))
    words.post_processor = processors.TemplateProcessing(single="$A", pair=pair, special_tokens=[])
    words.save(str(tmp_path / "tokenizer.json"))
    pretrained = load(tmp_path)
    pretrained.tokenizer._pad_token_type_id = of_padding  # as in the tokenizer of XLNet
    tokens = encode(pretrained.tokenizer, ["w030", "w031"], ["w040", "w041 w042"], 8)
    given = suited(tokens, pretrained.model, pretrained.tokenizer)
    assert given.inputs["token_type_ids"].tolist() == [*expected, *expected, expected[1]]
    changed = given.inputs["token_type_ids"].tolist() != tokens.inputs["token_type_ids"].tolist()
    assert given.zeroed_types == changed
    with torch.no_grad():
        assert pretrained.model(**given.batch(np.arange(2))).logits.isfinite().all()


def test_a_tokenizer_that_does_not_know_words_is_refused(tmp_path):
    ByT5Tokenizer().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    assert not load_tokenizer("m", tmp_path).is_fast
    with pytest.raises(FrostlineError, match="does not say which word a token belongs to"):
        load_tokenizer("m", tmp_path, of_words=True)


@pytest.mark.parametrize("model_type", sampled(FOUND, (*SAMPLE, "minicpm3")))
def test_the_first_layers_compute_what_they_do_in_the_whole_model(model_type: str, tmp_path: Path) -> None:
    folder = write_base(tmp_path / "whole", model_type)
    whole = load(folder)
    if model_type in NUMBER_MATTERS:
        with pytest.raises(FrostlineError, match="if there are fewer of them: leave --depth out"):
            load(folder, depth=2)
        return
    first = load(folder, depth=2)
    assert first.anatomy.count == 2 and first.weights != whole.weights
    states = []

    def keep(value: Any) -> None:
        states.append(value[0] if isinstance(value, list | tuple) else value)

    of_whole, of_first = (one.model.get_submodule(one.anatomy.path) for one in (whole, first))
    of_whole[2].register_forward_pre_hook(lambda _, args, named: keep(args or named["hidden_states"]), with_kwargs=True)
    of_first[1].register_forward_hook(lambda _, args, output: keep(output))
    with torch.no_grad():
        for one in (whole, first):
            one.model(**probe_batch(one.model))
    assert torch.equal(*states)
    with torch.no_grad():
        expected = first.model(**probe_batch(first.model)).logits
        first.model.save_pretrained(tmp_path / "saved")
        again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").eval()
        assert torch.equal(again(**probe_batch(again)).logits, expected)


def test_a_model_that_was_fine_tuned_before_keeps_no_temperature_and_no_threshold(
    tiny_bert: Path, tmp_path: Path
) -> None:
    config = json.loads((shutil.copytree(tiny_bert, tmp_path / "m") / "config.json").read_bytes())
    (tmp_path / "m" / "config.json").write_text(json.dumps({**config, **dict.fromkeys(OUTPUT_KEYS, 0.2)}))
    load(tmp_path / "m").model.config.save_pretrained(tmp_path / "again")
    assert not {*OUTPUT_KEYS} & json.loads((tmp_path / "again" / "config.json").read_bytes()).keys()


def test_a_wrong_depth_is_one_sentence(tiny_bert: Path) -> None:
    with pytest.raises(FrostlineError, match=r"--depth 4 is not among the 3 layers of .*: give 1 to 3"):
        load(tiny_bert, depth=4)
