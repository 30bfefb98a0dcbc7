"""Settings of the small models: GENERIC for most types, and SPECIAL for what a single type needs.

Most types have 4 layers, width 64, 4 heads (2 for keys and values), 300 words, 128 positions and windows of 16. A type gets the
generic settings for which its configuration class has a field, then its own row of SPECIAL. If a type has layers of several kinds
(sliding and full attention, mamba and attention, dense and experts), they alternate.
"""

from collections.abc import Callable
from typing import Any

PAD, BOS, EOS, SEP, CLS, MASK, IMAGE = 0, 1, 2, 3, 4, 5, 6


def each(*kinds: Any) -> Callable[[int], list[Any]]:
    """From the number of layers to the kind of each layer: the kinds alternate, and the last layer has the last kind."""
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
# Latent attention: keys and values come from one low-rank projection and have as many heads as the queries.
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
ASR_ENCODER = {
    "model_type": "qwen3_asr_encoder",
    "encoder_layers": 1,
    "num_mel_bins": 16,
    "downsample_hidden_size": 8,
    "output_dim": 64,
}
# YaRN extends rotary positions from 16 to the 128 of GENERIC, so a text of 40 tokens is longer than the original limit.
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
    "beam": {
        **SLIDING_AND_FULL,
        "mlp_layer_types": each("dense", "sparse"),
        "n_group": 2,
        "topk_group": 1,
    },
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
    "lilt": {"hidden_size": 48},  # must be a multiple of 6
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
    "nystromformer": {"conv_kernel_size": 9},  # as released, there are as many landmarks as positions: plain attention
    "olmo3": SLIDING_AND_FULL,
    "openai_privacy_filter": {"rope_parameters": YARN},
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
    "qwen3_asr": {
        "text_config": {"model_type": "qwen3", **SLIDING_AND_FULL, "use_sliding_window": True},
        "audio_config": ASR_ENCODER,
        "audio_token_id": IMAGE,
        "timestamp_token_id": MASK,
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
    # These two share the attention of all hybrid layers and need two of them, so at least four layers.
    "zamba": {"layers_block_type": each("hybrid", "linear_attention"), "mamba_dt_rank": 4},
    "zamba2": {"layers_block_type": each("hybrid", "linear_attention"), "chunk_size": 16},
}
