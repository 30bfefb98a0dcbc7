"""Small models of many types with random weights, their folders, and models that are streamed."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
)

from frostline.data.files import files_in, read_record, write_record
from frostline.model.anatomy import Anatomy, find_layers
from frostline.model.classifier import write_classifier
from frostline.model.loading import load_pretrained
from frostline.model.model_files import RECORD, quiet_loading
from frostline.model.pretrained import Pretrained
from frostline.model.terms import HeadKind
from frostline.model.ways import Way
from frostline.statistics.recipe import Recipe
from tiny import tiny_tokenizer

PAD, BOS, EOS, SEP, CLS, MASK, IMAGE = 0, 1, 2, 3, 4, 5, 6


def each(*kinds: Any) -> Callable[[int], list[Any]]:
    """From the number of layers to the kind of each layer: the kinds alternate, and the last layer has the last kind."""
    return lambda layers: [kinds[(n - layers) % len(kinds)] for n in range(layers)]


def all_layers(layers: int) -> int:
    return layers


# What types of model call the same thing.
WIDTH = "hidden_size d_model n_embd dim emb_dim embedding_size word_embed_proj_dim".split()  # noqa: SIM905
DEPTH = "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers".split()  # noqa: SIM905
HEADS = "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads".split()  # noqa: SIM905
INNER = "intermediate_size hidden_dim ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff d_inner dff ffn_hidden_size".split()  # noqa: SIM905
GENERIC: dict[str, Any] = {
    **dict.fromkeys(WIDTH, 64),
    **dict.fromkeys(DEPTH, all_layers),
    **dict.fromkeys(HEADS, 4),
    **dict.fromkeys(("head_dim", "d_kv", "d_head", "kv_channels"), 16),
    **dict.fromkeys(INNER, 96),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 128),
    **{"num_experts_per_tok": 2, "num_key_value_heads": 2, "vocab_size": 300, "sliding_window": 16, "use_cache": False},
    **{"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS, "sep_token_id": SEP, "cls_token_id": CLS},
    **{"mask_token_id": MASK, "image_token_id": IMAGE},
}

SLIDING_AND_FULL = {"layer_types": each("sliding_attention", "full_attention")}
# Latent attention: keys and values come from one low-rank projection and have as many heads as the queries.
LATENT = {
    "num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
    "v_head_dim": 16,
}  # fmt: skip
LINEAR_AND_FULL = {
    "layer_types": each("linear_attention", "full_attention"), "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4,
}  # fmt: skip
SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 32,
    "image_size": 32, "patch_size": 8, "vision_use_head": False,
}  # fmt: skip
ASR_ENCODER = {
    "model_type": "qwen3_asr_encoder", "encoder_layers": 1, "num_mel_bins": 16, "downsample_hidden_size": 8,
    "output_dim": 64,
}  # fmt: skip
# YaRN extends rotary positions from 16 to the 128 of GENERIC, so a text of 40 tokens is longer than the original limit.
YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
LLAMA4_YARN = {**YARN, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1}
MODERNBERT = {**SLIDING_AND_FULL, "local_attention": 16}
GROUPS = {"n_group": 2, "topk_group": 1, "n_routed_experts": 8}

SPECIAL: dict[str, dict[str, Any]] = {
    "apertus": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    "axk1": {**LATENT, **GROUPS, "mlp_layer_types": each("dense", "sparse")},
    "axk2": {
        **LATENT,
        "mlp_layer_types": each("dense", "sparse"),
        "index_topk": 16,
        "index_head_dim": 16,
        "index_n_heads": 8,  # with fewer heads, many scores are tied at 0, and the top k are arbitrary
        "gated_norm_rank": 4,
    },
    "beam": {**SLIDING_AND_FULL, "mlp_layer_types": each("dense", "sparse"), "n_group": 2, "topk_group": 1},
    "big_bird": {"block_size": 4, "num_random_blocks": 1},  # attention is block-sparse above 7 blocks = 28 tokens
    "bigbird_pegasus": {"block_size": 4, "num_random_blocks": 1},
    "canine": {"num_hash_buckets": 64, "local_transformer_stride": 16},
    "cohere_compass_text": {  # full attention has no position encoding
        **SLIDING_AND_FULL,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]},
            "full_attention": None,
        },
    },
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False},
    "deberta-v2": {  # the settings of DeBERTa v3
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
    },
    "deepseek_v2": {**LATENT, "first_k_dense_replace": lambda layers: layers // 2},
    "deepseek_v3": {**LATENT, **GROUPS, "first_k_dense_replace": lambda layers: layers // 2},
    "doge": {"keep_window_size": 16},
    "ernie": {"use_task_id": True},
    "esm": {
        "position_embedding_type": "rotary",
        "token_dropout": True,
        "emb_layer_norm_before": False,
    },  # the settings of ESM-2
    "esmc": {"num_key_value_heads": 4},
    "exaone4": SLIDING_AND_FULL,
    "funnel": {"block_sizes": lambda layers: [layers - layers // 2, layers // 2]},
    "gemma2": SLIDING_AND_FULL,
    "gemma3": {"text_config": SLIDING_AND_FULL, "vision_config": SIGLIP, "image_token_index": IMAGE, "mm_tokens_per_image": 4},
    "gemma3_text": SLIDING_AND_FULL,
    "gpt_neo": {"attention_types": lambda layers: [[each("global", "local")(layers), 1]], "window_size": 16},
    "gpt_oss": {**SLIDING_AND_FULL, "rope_parameters": YARN},
    "gptj": {"rotary_dim": 8},
    "hunyuan_v1_moe": {"moe_topk": 2},
    "jamba": {
        "attn_layer_period": 3, "attn_layer_offset": 2, "expert_layer_period": 2, "expert_layer_offset": 1,
        "mamba_dt_rank": 4,
    },
    "layoutlmv3": {"coordinate_size": 8, "shape_size": 16, "input_size": 32},
    "lilt": {"hidden_size": 48},  # must be a multiple of 6
    "longformer": {"attention_window": 16},
    "luke": {"entity_vocab_size": 20, "entity_emb_size": 32},
    "markuplm": {"max_depth": 8},
    "minicpm3": LATENT,
    "minimax": {"layer_types": each("linear_attention", "full_attention"), "block_size": 16},
    "ministral": SLIDING_AND_FULL,
    "ministral3": {"rope_parameters": LLAMA4_YARN},
    "mistral4": {
        **LATENT, "rope_parameters": {**LLAMA4_YARN, "partial_rotary_factor": 0.5},
        "first_k_dense_replace": lambda layers: layers // 2,
    },
    "mobilebert": {"intra_bottleneck_size": 32, "num_feedforward_networks": 2},
    "modernbert": MODERNBERT,
    "modernbert-decoder": MODERNBERT,
    "modernvbert": {"text_config": {"model_type": "modernbert", **MODERNBERT}, "vision_config": SIGLIP},
    "nystromformer": {"conv_kernel_size": 9},  # as released, there are as many landmarks as positions: plain attention
    "olmo3": SLIDING_AND_FULL,
    "openai_privacy_filter": {"rope_parameters": YARN},
    "perceiver": {
        "pad_token_id": PAD, "num_latents": 16, "d_latents": 64, "num_self_attends_per_block": all_layers,
        "num_self_attention_heads": 4, "num_cross_attention_heads": 4,
    },
    "qwen2": {**SLIDING_AND_FULL, "use_sliding_window": True},
    "qwen2_moe": {**SLIDING_AND_FULL, "use_sliding_window": True, "mlp_only_layers": lambda layers: [layers - 2]},
    "qwen3": {**SLIDING_AND_FULL, "use_sliding_window": True},
    "qwen3_5": {
        "text_config": LINEAR_AND_FULL,
        "vision_config": {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "out_hidden_size": 64},
    },
    "qwen3_5_text": LINEAR_AND_FULL,
    "qwen3_asr": {
        "text_config": {"model_type": "qwen3", **SLIDING_AND_FULL, "use_sliding_window": True},
        "audio_config": ASR_ENCODER, "audio_token_id": IMAGE, "timestamp_token_id": MASK,
    },
    "qwen3_moe": {"use_sliding_window": True, "mlp_only_layers": lambda layers: [layers - 2]},
    "qwen3_next": {**LINEAR_AND_FULL, "mlp_only_layers": lambda layers: [layers - 2]},
    "reformer": {
        "attn_layers": each("local", "lsh"),
        "attention_head_size": 16,
        "axial_pos_embds": False,  # axial positions allow only one length in training
        "feed_forward_size": 96,
        "local_attn_chunk_length": 8,
        "lsh_attn_chunk_length": 8,
        "num_buckets": 4,
        "hash_seed": 0,  # without it, every forward pass draws new hashes
    },
    "rembert": {"input_embedding_size": 32, "output_embedding_size": 32},
    "roc_bert": {"pronunciation_embed_dim": 32, "pronunciation_vocab_size": 50, "shape_embed_dim": 32, "shape_vocab_size": 50},
    "smollm3": {**SLIDING_AND_FULL, "use_sliding_window": True, "no_rope_layers": each(0, 1)},
    "t5": {"decoder_start_token_id": PAD},
    "t5gemma": {"encoder": SLIDING_AND_FULL, "decoder": SLIDING_AND_FULL},
    "t5gemma2": {"encoder": {"text_config": SLIDING_AND_FULL, "vision_config": SIGLIP}, "decoder": SLIDING_AND_FULL},
    "ultrabert": SLIDING_AND_FULL,
    "ultravbert": {"text_config": {"model_type": "ultrabert", **SLIDING_AND_FULL}, "vision_config": SIGLIP},
    "xmod": {"default_language": "en_XX"},
    # These two share the attention of all hybrid layers and need two of them, so at least four layers.
    "zamba": {"layers_block_type": each("hybrid", "linear_attention"), "mamba_dt_rank": 4},
    "zamba2": {"layers_block_type": each("hybrid", "linear_attention"), "chunk_size": 16},
}  # fmt: skip


TYPES: tuple[str, ...] = tuple(sorted(MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES))
TAG_TYPES: tuple[str, ...] = tuple(sorted(MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES))

REASONS: dict[str, str] = {
    "layoutlmv2": "its visual backbone needs detectron2, which is not on PyPI",
}

FIRST_WORD = 10  # lower ids are special tokens; texts contain none, except EOS for encoder-decoders


def small_config(model_type: str, layers: int = 4) -> PreTrainedConfig:
    """The configuration of a small classifier of three classes."""
    kind = CONFIG_MAPPING[model_type]
    return kind(
        **_settings(kind, SPECIAL.get(model_type, {}), layers), num_labels=3, problem_type="single_label_classification"
    )


def small_model(
    model_type: str, *, seed: int = 0, layers: int = 4, head: Any = AutoModelForSequenceClassification
) -> torch.nn.Module:
    """A small classifier with the head of this class, in float32 and evaluation mode."""
    config = small_config(model_type, layers)
    kind = head._model_mapping[type(config)]
    attention = {"attn_implementation": "sdpa"} if kind._supports_sdpa else {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return with_noise(head.from_config(config, **attention).float().eval())


@torch.no_grad()
def with_noise(model: torch.nn.Module) -> torch.nn.Module:
    """The model with other weights, of which none is left at its constant initial value."""
    for weight in model.parameters():
        weight += 0.1 * torch.randn_like(weight)
    return model


def small_batch(
    model: torch.nn.Module, lengths: Sequence[int] = (40, 31, 7, 22), *, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Random texts of these lengths, padded on the right, with the other inputs of this model type."""
    draw = torch.Generator().manual_seed(seed)
    config, longest = model.config, max(lengths)
    ids = torch.randint(FIRST_WORD, GENERIC["vocab_size"], (len(lengths), longest), generator=draw)  # [B, S]
    mask = (torch.arange(longest) < torch.tensor(lengths)[:, None]).long()  # [B, S]
    if config.is_encoder_decoder:  # many of them classify by the last EOS token
        ids[torch.arange(len(lengths)), torch.tensor(lengths) - 1] = EOS
    batch = {"input_ids": ids * mask, "attention_mask": mask}
    if config.model_type in EXTRA:
        batch |= EXTRA[config.model_type](ids, draw)
    return batch


def small(model_type: str, lengths: Sequence[int] = (40, 31, 7, 22)) -> tuple[Any, dict[str, torch.Tensor], Anatomy]:
    """A small classifier, a batch for it, and its layers."""
    model = small_model(model_type)
    batch = small_batch(model, lengths)
    return model, batch, find_layers(model, batch)


def _boxes(ids: torch.Tensor, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """The bounding box of each token on its page: left, top, right, bottom, each from 0 to 1000."""
    start = torch.randint(0, 500, (*ids.shape, 2), generator=draw)
    extent = torch.randint(1, 500, (*ids.shape, 2), generator=draw)
    return {"bbox": torch.cat([start, start + extent], dim=-1)}  # [B, S, 4]


def _segments(ids: torch.Tensor, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """Token types of pairs of texts: 0 for the first text, 1 for the second."""
    first = torch.randint(1, 20, (len(ids), 1), generator=draw)
    return {"token_type_ids": (torch.arange(ids.shape[1]) >= first).long()}  # [B, S]


def _table(ids: torch.Tensor, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """Token types of a question and a table: segment, column, row, and four ranks, which stay 0."""
    kinds = torch.zeros(*ids.shape, 7, dtype=torch.long)
    kinds[..., 0] = 1
    kinds[..., 1:3] = torch.randint(1, 4, (*ids.shape, 2), generator=draw)
    kinds[:, :5] = 0
    return {"token_type_ids": kinds}  # [B, S, 7]


def _xpaths(ids: torch.Tensor, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """The XPath of each token in its web page: tags and their indices, from the root downwards."""
    names = ("xpath_tags_seq", "xpath_subs_seq")
    return {name: torch.randint(0, 200, (*ids.shape, 8), generator=draw) for name in names}  # [B, S, 8]


def _shapes_and_sounds(ids: torch.Tensor, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """Ids of the shape and of the pronunciation of each Chinese character."""
    names = ("input_shape_ids", "input_pronunciation_ids")
    return {name: torch.randint(1, 50, ids.shape, generator=draw) for name in names}  # [B, S]


EXTRA: dict[str, Callable[[torch.Tensor, torch.Generator], dict[str, torch.Tensor]]] = {
    "bert": _segments,
    "bros": _boxes,
    "funnel": _segments,
    "layoutlm": _boxes,
    "layoutlmv3": _boxes,
    "lilt": _boxes,
    "markuplm": _xpaths,
    "roc_bert": _shapes_and_sounds,
    "tapas": _table,
    "xlnet": _segments,
}


def _settings(kind: type, special: dict[str, Any], layers: int) -> dict[str, Any]:
    """The arguments of a configuration class: the generic ones that it has a field for, and the special ones."""
    known = {field.name for field in dataclasses.fields(kind)}
    parts = getattr(kind, "sub_configs", {})
    settings = {name: value for name, value in GENERIC.items() if name in known} | special
    for name, value in settings.items():
        if callable(value):
            settings[name] = value(layers)
        elif name in parts and isinstance(value, dict):
            part = CONFIG_MAPPING[value["model_type"]] if "model_type" in value else parts[name]
            settings[name] = _settings(part, value, layers)
    return settings


CLASSES = {"labels": ("no", "yes"), "task_type": "text-classification"}


def load(folder, **more):
    return load_pretrained(str(folder), **(CLASSES | more))


def values(pretrained, names=None):
    return {n: p.detach().clone() for n, p in pretrained.model.named_parameters() if names is None or n in names}


def edit_config(folder, **values):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    if (record := folder / RECORD).exists():  # as whoever saves it so would
        write_record(record, read_record(record), files_in(folder).values(), inside=folder)


OWN_CODE = """
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer
class OwnConfig(BertConfig):
    model_type = "own-of-tests"
class OwnTokenizer(BertTokenizer):
    pass
class OwnForSequenceClassification(BertForSequenceClassification):
    config_class = OwnConfig
"""
OWN_CLASSES = {
    "model_type": "own-of-tests",
    "auto_map": {
        "AutoConfig": "modeling_own.OwnConfig",
        "AutoModelForSequenceClassification": "modeling_own.OwnForSequenceClassification",
    },
}


def with_own_code(folder, *, before="", after=""):
    """Let a BERT run code of its own: classes that do nothing else, with more code before and after them."""
    (folder / "modeling_own.py").write_text(f"{before}{OWN_CODE}{after}")
    edit_config(folder, **OWN_CLASSES)


def edit_weights(folder, edit):
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def bare_tokenizer(folder, **more):
    """Write a tokenizer of whole words, like GPT-2's: without special tokens around a text, and without a padding token."""
    words = Tokenizer(models.WordLevel({"<end>": 0, "<unknown>": 1, "good": 2, "film": 3}, unk_token="<unknown>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unknown>", eos_token="<end>", **more)
    fast.save_pretrained(folder)
    return fast


def write_task(
    folder: Path, base: Path, k: Recipe, *, labels: Sequence[str] = ("no", "yes"), seed: int = 0, **config: Any
) -> Path:
    """Write the model of ``base`` with other weights in its last ``k`` layers and its head. No labels: a regression."""
    task = {"num_labels": 1, "problem_type": "regression"}
    if labels:
        names = {"id2label": dict(enumerate(labels)), "label2id": {label: n for n, label in enumerate(labels)}}
        task = {"problem_type": "single_label_classification", **names}
    with quiet_loading(), torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_pretrained(base, **task, **config, ignore_mismatched_sizes=True)
        trained = Way(tune=k).parameters(find_layers(model.eval()))
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if name in trained:
                    weight += 0.05 * torch.randn_like(weight)
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return folder


def write_base(folder: Path, model_type: str, *, layers: int = 4, seed: int = 0) -> Path:
    """Write a small model of this type with random weights, and a tokenizer of the words w0, w1, ..."""
    words = {f"w{n}": n for n in range(GENERIC["vocab_size"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w7"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"w{CLS} $A w{SEP}", special_tokens=[(f"w{CLS}", CLS), (f"w{SEP}", SEP)]
    )
    marks = {"pad_token": f"w{PAD}", "eos_token": f"w{EOS}", "unk_token": "w7"}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **marks, model_max_length=64, model_input_names=["input_ids", "attention_mask"]
    )
    with quiet_loading():
        small_model(model_type, seed=seed, layers=layers).save_pretrained(folder)
        fast.save_pretrained(folder)
    return folder


def random_texts(count: int, *, seed: int = 0, longest: int = 50) -> list[str]:
    """Texts of 1 to ``longest`` words for the tokenizer of :func:`write_base`."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=draw).tolist()
    return [" ".join(f"w{n}" for n in torch.randint(10, 300, (length,), generator=draw).tolist()) for length in lengths]


def sharded(
    folder: Path,
    model_type: str,
    *,
    kind: Any = AutoModel,
    layers: int = 4,
    dtype: torch.dtype = torch.float32,
    shard: str = "100KB",
) -> Path:
    """Write a small model of this type, without a head, and a tokenizer. Layers are spread over files of this size."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = with_noise(kind.from_config(small_config(model_type, layers)).float())
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    assert shard != "100KB" or len(list(folder.glob("*.safetensors"))) > 2
    tiny_tokenizer("input_ids", "attention_mask").save_pretrained(folder)
    return folder


def sharded_classifier(folder: Path, model_type: str, *, of_words: bool = False, **options: Any) -> Path:
    """As :func:`sharded`, with a head."""
    kind = AutoModelForTokenClassification if of_words else AutoModelForSequenceClassification
    return sharded(folder, model_type, kind=kind, **options)


def write_head(pretrained: Pretrained, kind: HeadKind, folder: Path, *, max_length: int = 32) -> torch.nn.Module:
    """Write the model with a new head of this kind, and its tokenizer. Returns the model."""
    one = pretrained.with_head(kind)
    one.start_run(frozenset(one.new), 0)
    folder.mkdir(exist_ok=True)
    with quiet_loading():
        write_classifier(folder, one.model, max_length)
    one.tokenizer.save_pretrained(folder)
    return one.model


def both(folder: Path) -> tuple[Pretrained, Pretrained]:
    """The model in the folder with all weights in memory, and with streamed layers."""
    return load(folder), load(folder, streams=lambda weight_bytes: True)


def same_weights(expected: Path, found: Path) -> None:
    """Two folders of models have the same files except for shards, and the same weights; transformers opens the second."""
    first, second = (
        {path.name for path in folder.iterdir() if "safetensors" not in path.name} for folder in (expected, found)
    )
    assert first == second
    assert (expected / "config.json").read_bytes() == (found / "config.json").read_bytes()
    values = [dict(all_weights(folder)) for folder in (expected, found)]
    assert values[0] == values[1]
    _, info = AutoModelForSequenceClassification.from_pretrained(found, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]


def all_weights(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The bytes of every weight in the folder, by name."""
    for file in folder.glob("*.safetensors"):
        for name, value in load_file(file).items():
            yield name, value.view(torch.uint8).numpy().tobytes()
