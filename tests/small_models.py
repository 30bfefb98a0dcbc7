"""A small, randomly initialised classifier of every model type that transformers can classify with, and a batch for it.

GENERIC holds what most types share: 4 layers, width 64, 4 heads (2 for keys and values), 300 words, 128 positions,
windows of 16. A type gets those of them that its configuration class has a field for, then its own row of SPECIAL,
which holds only what differs. Layers of several kinds (sliding and full attention, mamba and attention, dense and
experts) alternate up to the last layer.
A model is whatever transformers makes of its type on this machine: without its CUDA kernel, MRA attends to nothing (its
attention gives zeros); mamba and linear attention run in plain PyTorch.
Shapes: B texts in a batch, S padded length.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

TYPES: tuple[str, ...] = tuple(sorted(MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES))

REASONS: dict[str, str] = {
    "layoutlmv2": "its visual backbone needs detectron2, which is not on PyPI",
}

PAD, BOS, EOS, SEP, CLS, MASK, IMAGE = 0, 1, 2, 3, 4, 5, 6
FIRST_WORD = 10  # ids below are special, no text holds them (but for EOS, where a type looks for it)


def each(*kinds: Any) -> Callable[[int], list[Any]]:
    """The kinds in turn, one a layer, such that the last layer is of the last kind."""
    return lambda layers: [kinds[(n - layers) % len(kinds)] for n in range(layers)]


def all_layers(layers: int) -> int:
    return layers


WIDTH = dict.fromkeys(
    ("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_size", "word_embed_proj_dim"), 64
)
DEPTH = dict.fromkeys(
    (
        "num_hidden_layers",
        "n_layer",
        "n_layers",
        "num_layers",
        "encoder_layers",
        "decoder_layers",
        "num_decoder_layers",
    ),
    all_layers,
)
HEADS = dict.fromkeys(
    ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"), 4
)
HEAD = dict.fromkeys(("head_dim", "d_kv", "d_head", "kv_channels"), 16)
INNER = dict.fromkeys(
    (
        "intermediate_size",
        "hidden_dim",
        "ffn_dim",
        "encoder_ffn_dim",
        "decoder_ffn_dim",
        "d_ff",
        "d_inner",
        "dff",
        "ffn_hidden_size",
    ),
    96,
)
EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
LONGEST = dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 128)
GENERIC: dict[str, Any] = {
    **WIDTH,
    **DEPTH,
    **HEADS,
    **HEAD,
    **INNER,
    **EXPERTS,
    **LONGEST,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "sliding_window": 16,
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "sep_token_id": SEP,
    "cls_token_id": CLS,
    "mask_token_id": MASK,
    "image_token_id": IMAGE,
    "use_cache": False,
}

SLIDING_AND_FULL = {"layer_types": each("sliding_attention", "full_attention")}
# Latent attention: keys and values come from one narrow projection and have as many heads as the queries.
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
}
LINEAR_AND_FULL = {
    "layer_types": each("linear_attention", "full_attention"),
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
SIGLIP = {
    "model_type": "siglip_vision_model",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "intermediate_size": 32,
    "image_size": 32,
    "patch_size": 8,
    "vision_use_head": False,
}
# Rotary positions stretched from 16 to the 128 of GENERIC, so that a text of 40 lies beyond the first stretch.
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 16,
}
LLAMA4_YARN = {**YARN, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1}
MODERNBERT = {**SLIDING_AND_FULL, "local_attention": 16}
GROUPS = {"n_group": 2, "topk_group": 1, "n_routed_experts": 8}

SPECIAL: dict[str, dict[str, Any]] = {
    "axk1": {**LATENT, **GROUPS, "mlp_layer_types": each("dense", "sparse")},
    "axk2": {
        **LATENT,
        "mlp_layer_types": each("dense", "sparse"),
        "index_topk": 16,
        "index_head_dim": 16,
        "index_n_heads": 8,  # with few of them many scores tie at 0, and the choice of the best is by chance
        "gated_norm_rank": 4,
    },
    "big_bird": {"block_size": 4, "num_random_blocks": 1},  # block-sparse above 7 blocks = 28 tokens
    "bigbird_pegasus": {"block_size": 4, "num_random_blocks": 1},
    "canine": {"num_hash_buckets": 64, "local_transformer_stride": 16},
    "cohere_compass_text": {  # full attention knows no positions
        **SLIDING_AND_FULL,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]},
            "full_attention": None,
        },
    },
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False},
    "deberta-v2": {  # as DeBERTa v3
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
    "esm": {"position_embedding_type": "rotary", "token_dropout": True, "emb_layer_norm_before": False},  # as ESM-2
    "esmc": {"num_key_value_heads": 4},
    "exaone4": SLIDING_AND_FULL,
    "funnel": {"block_sizes": lambda layers: [layers - layers // 2, layers // 2]},
    "gemma2": SLIDING_AND_FULL,
    "gemma3": {
        "text_config": SLIDING_AND_FULL,
        "vision_config": SIGLIP,
        "image_token_index": IMAGE,
        "mm_tokens_per_image": 4,
    },
    "gemma3_text": SLIDING_AND_FULL,
    "gpt_neo": {"attention_types": lambda layers: [[each("global", "local")(layers), 1]], "window_size": 16},
    "gpt_oss": {**SLIDING_AND_FULL, "rope_parameters": YARN},
    "gptj": {"rotary_dim": 8},
    "hunyuan_v1_moe": {"moe_topk": 2},
    "jamba": {
        "attn_layer_period": 3,
        "attn_layer_offset": 2,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "mamba_dt_rank": 4,
    },
    "layoutlmv3": {"coordinate_size": 8, "shape_size": 16, "input_size": 32},
    "lilt": {"hidden_size": 48},  # a multiple of 6
    "longformer": {"attention_window": 16},
    "luke": {"entity_vocab_size": 20, "entity_emb_size": 32},
    "markuplm": {"max_depth": 8},
    "minicpm3": LATENT,
    "minimax": {"layer_types": each("linear_attention", "full_attention"), "block_size": 16},
    "ministral": SLIDING_AND_FULL,
    "ministral3": {"rope_parameters": LLAMA4_YARN},
    "mistral4": {
        **LATENT,
        "rope_parameters": {**LLAMA4_YARN, "partial_rotary_factor": 0.5},
        "first_k_dense_replace": lambda layers: layers // 2,
    },
    "mobilebert": {"intra_bottleneck_size": 32, "num_feedforward_networks": 2},
    "modernbert": MODERNBERT,
    "modernbert-decoder": MODERNBERT,
    "modernvbert": {"text_config": {"model_type": "modernbert", **MODERNBERT}, "vision_config": SIGLIP},
    "nystromformer": {"conv_kernel_size": 9},  # as released: as many landmarks as places, which is plain attention
    "olmo3": SLIDING_AND_FULL,
    "perceiver": {
        "pad_token_id": PAD,
        "num_latents": 16,
        "d_latents": 64,
        "num_self_attends_per_block": all_layers,
        "num_self_attention_heads": 4,
        "num_cross_attention_heads": 4,
    },
    "qwen2": {**SLIDING_AND_FULL, "use_sliding_window": True},
    "qwen2_moe": {**SLIDING_AND_FULL, "use_sliding_window": True, "mlp_only_layers": lambda layers: [layers - 2]},
    "qwen3": {**SLIDING_AND_FULL, "use_sliding_window": True},
    "qwen3_5": {
        "text_config": LINEAR_AND_FULL,
        "vision_config": {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "out_hidden_size": 64},
    },
    "qwen3_5_text": LINEAR_AND_FULL,
    "qwen3_moe": {"use_sliding_window": True, "mlp_only_layers": lambda layers: [layers - 2]},
    "qwen3_next": {**LINEAR_AND_FULL, "mlp_only_layers": lambda layers: [layers - 2]},
    "reformer": {
        "attn_layers": each("local", "lsh"),
        "attention_head_size": 16,
        "axial_pos_embds": False,  # else it trains on texts of one length only
        "feed_forward_size": 96,
        "local_attn_chunk_length": 8,
        "lsh_attn_chunk_length": 8,
        "num_buckets": 4,
        "hash_seed": 0,  # else each forward hashes anew
    },
    "rembert": {"input_embedding_size": 32, "output_embedding_size": 32},
    "roc_bert": {
        "pronunciation_embed_dim": 32,
        "pronunciation_vocab_size": 50,
        "shape_embed_dim": 32,
        "shape_vocab_size": 50,
    },
    "smollm3": {**SLIDING_AND_FULL, "use_sliding_window": True, "no_rope_layers": each(0, 1)},
    "t5": {"decoder_start_token_id": PAD},
    "t5gemma": {"encoder": SLIDING_AND_FULL, "decoder": SLIDING_AND_FULL},
    "t5gemma2": {"encoder": {"text_config": SLIDING_AND_FULL, "vision_config": SIGLIP}, "decoder": SLIDING_AND_FULL},
    "ultrabert": SLIDING_AND_FULL,
    "ultravbert": {"text_config": {"model_type": "ultrabert", **SLIDING_AND_FULL}, "vision_config": SIGLIP},
    "xmod": {"default_language": "en_XX"},
    # These two share the attention of all hybrid layers, and want two of them: at least four layers.
    "zamba": {"layers_block_type": each("hybrid", "linear_attention"), "mamba_dt_rank": 4},
    "zamba2": {"layers_block_type": each("hybrid", "linear_attention"), "chunk_size": 16},
}


def small_config(model_type: str, layers: int = 4) -> PreTrainedConfig:
    """The configuration of a small classifier of three classes."""
    kind = CONFIG_MAPPING[model_type]
    return kind(
        **_settings(kind, SPECIAL.get(model_type, {}), layers), num_labels=3, problem_type="single_label_classification"
    )


def small_model(model_type: str, *, seed: int = 0, layers: int = 4) -> torch.nn.Module:
    """A small classifier with random weights, none of them zero or at rest, in float32 and evaluation mode."""
    config = small_config(model_type, layers)
    kind = AutoModelForSequenceClassification._model_mapping[type(config)]
    attention = {"attn_implementation": "sdpa"} if kind._supports_sdpa else {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_config(config, **attention).float().eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.1 * torch.randn_like(weight)
    return model


def small_batch(
    model: torch.nn.Module, lengths: Sequence[int] = (40, 31, 7, 22), *, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Random texts of these lengths, padded on the right, and what else this type of model reads."""
    draw = torch.Generator().manual_seed(seed)
    config, longest = model.config, max(lengths)
    ids = torch.randint(FIRST_WORD, GENERIC["vocab_size"], (len(lengths), longest), generator=draw)  # [B, S]
    mask = (torch.arange(longest) < torch.tensor(lengths)[:, None]).long()  # [B, S]
    if config.is_encoder_decoder:  # many of them pool at the end of the text, and look for it
        ids[torch.arange(len(lengths)), torch.tensor(lengths) - 1] = EOS
    batch = {"input_ids": ids * mask, "attention_mask": mask}
    if config.model_type in EXTRA:
        batch |= EXTRA[config.model_type](ids, draw)
    return batch


def _boxes(ids: torch.Tensor, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """Where each word stands on its page: left, top, right, bottom, of 1000."""
    start = torch.randint(0, 500, (*ids.shape, 2), generator=draw)
    extent = torch.randint(1, 500, (*ids.shape, 2), generator=draw)
    return {"bbox": torch.cat([start, start + extent], dim=-1)}  # [B, S, 4]


def _segments(ids: torch.Tensor, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """Pairs of texts: each token is of the first or of the second."""
    first = torch.randint(1, 20, (len(ids), 1), generator=draw)
    return {"token_type_ids": (torch.arange(ids.shape[1]) >= first).long()}  # [B, S]


def _table(ids: torch.Tensor, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """A question and the cells of a table: segment, column, row, and four ranks that stay 0."""
    kinds = torch.zeros(*ids.shape, 7, dtype=torch.long)
    kinds[..., 0] = 1
    kinds[..., 1:3] = torch.randint(1, 4, (*ids.shape, 2), generator=draw)
    kinds[:, :5] = 0
    return {"token_type_ids": kinds}  # [B, S, 7]


def _xpaths(ids: torch.Tensor, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """Where each word stands in its web page: tags and their numbers from the root downwards."""
    names = ("xpath_tags_seq", "xpath_subs_seq")
    return {name: torch.randint(0, 200, (*ids.shape, 8), generator=draw) for name in names}  # [B, S, 8]


def _shapes_and_sounds(ids: torch.Tensor, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """The shape and the pronunciation of each Chinese character."""
    names = ("input_shape_ids", "input_pronunciation_ids")
    return {name: torch.randint(1, 50, ids.shape, generator=draw) for name in names}  # [B, S]


EXTRA: dict[str, Callable[[torch.Tensor, torch.Generator], dict[str, torch.Tensor]]] = {
    "bert": _segments,
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
    """The arguments for a configuration class: the generic ones it has a field for, and the special ones."""
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
