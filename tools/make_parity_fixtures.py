#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/fixtures/parity: small random models run by transformers and PyTorch.

Each case holds a config.json and model.safetensors as transformers saves them and the logits, loss
and every parameter gradient of one micro-batch, in float32 and in float64. The tests of this
project read these files and need neither Python nor PyTorch; conventions are in the README.md that
this script writes next to the cases.

    python3 tools/make_parity_fixtures.py [--check] [CASE...]

--check computes everything and compares with the existing files instead of writing them.

How float64 is made exact. Transformers' modules round to float32 inside, whatever the type of the
model. The float64 model is built and run inside `Widen`, which answers every request for float32 (a
dtype argument, `.float()`) with float64, and inside `RefuseNarrow`, which fails if any operation,
forward or backward, still returns a narrower floating-point type. CASTS_REMOVED lists the requests
there are; one that is not listed, or listed and not found, is an error.
"""

import argparse
import contextlib
import json
import math
import re
import sys
import zlib
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "parity"

# The float32 casts inside transformers that the float64 references omit: their place (module file and
# function), the call, the value that they round.
CASTS_REMOVED = [
    (r"modeling_(llama|qwen2|qwen3|olmo2|mistral|mixtral|qwen3_moe|olmoe|deepseek_v3|"
     r"smollm3|phi3|qwen2_moe|olmo3|gpt_oss|glm4_moe)\.py \w+RMSNorm\.forward", "to",
     "RMSNorm: the rows, before their mean square"),
    (r"modeling_gemma(2|3)\.py Gemma(2|3)RMSNorm\.forward", "float",
     "RMSNorm of Gemma: the rows and the weight"),
    (r"modeling_\w+\.py \w+RotaryEmbedding\.compute_default_rope_parameters", "arange",
     "rotary embedding: the inverse frequencies"),
    (r"modeling_rope_utils\.py _compute_(linear_scaling|llama3|yarn)(_rope)?_parameters", "to",
     "rotary embedding: the scaled inverse frequencies"),
    (r"modeling_rope_utils\.py _compute_yarn_parameters\.<locals>\.linear_ramp_factor", "arange",
     "rotary embedding: the ramp of yarn"),
    (r"modeling_\w+\.py \w+RotaryEmbedding\.forward", "float",
     "rotary embedding: the positions, hence the angles, cosines and sines"),
    (r"modeling_\w+\.py \w+RotaryEmbedding\.forward", "to",
     "rotary embedding: the inverse frequencies again"),
    (r"modeling_\w+\.py eager_attention_forward", "softmax",
     "attention: softmax and its result (all families but GPT-2, which has no such cast)"),
    (r"modeling_(qwen2_moe|qwen3_moe|olmoe)\.py \w+TopKRouter\.forward", "softmax",
     "router: the probabilities"),
    (r"modeling_(deepseek_v3|glm4_moe)\.py \w+TopkRouter\.forward", "type",
     "router of DeepSeek-V3 and GLM-4.5: the rows and the weight"),
    (r"modeling_glm4_moe\.py \w+TopkRouter\.__init__", "zeros",
     "router of GLM-4.5: the bias by which experts are chosen"),
    (r"modeling_mixtral\.py MixtralTopKRouter\.forward", "float",
     "router of Mixtral: the logits"),
    (r"loss_utils\.py ForCausalLMLoss", "float",
     "loss: the logits"),
]
# Families that transformers has under another name only; config.json then gets their own.
CLASS_OF = {"kimi_k2": "deepseek_v3"}
# Made in the default type, which is float64 in those runs: Gemma's embedding scale.

B, MASKED = 2, -1
# Of the first few draws, the one whose worst float32 rounding error is smallest: a bound of 1e-5 on
# float32 results should measure the program under test, not the condition of the example.
SALT = 2


# ---- Cases -----------------------------------------------------------------------------------

def rope(theta, kind="default", **scaling):
    return dict(rope_type=kind, rope_theta=theta, **scaling)


def cases():
    """name -> (config, T, document lengths of each row or None, AdamW fixture?)."""
    common = dict(pad_token_id=None, bos_token_id=None, eos_token_id=None)
    gpt2 = dict(model_type="gpt2", vocab_size=61, n_positions=24, n_embd=18, n_layer=2, n_head=3,
                n_inner=28, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **common)
    small = dict(vocab_size=61, hidden_size=18, intermediate_size=22, num_hidden_layers=2,
                 num_attention_heads=3, num_key_value_heads=1, rms_norm_eps=1e-6,
                 max_position_embeddings=64, **common)
    llama = dict(small, model_type="llama", rope_parameters=rope(1e4))
    qwen3 = dict(small, model_type="qwen3", rope_parameters=rope(1e6))
    qwen3_sliding = dict(qwen3, hidden_size=20, num_attention_heads=5, head_dim=6,
                         use_sliding_window=True, sliding_window=7,
                         layer_types=["sliding_attention", "full_attention"])
    gemma2 = dict(small, model_type="gemma2", hidden_size=20, num_hidden_layers=3,
                  num_attention_heads=5, head_dim=6, sliding_window=5, query_pre_attn_scalar=11,
                  attn_logit_softcapping=2.0, final_logit_softcapping=4.0, rope_parameters=rope(1e4))
    gemma3 = dict(small, model_type="gemma3_text", hidden_size=15, num_hidden_layers=3,
                  num_attention_heads=5, head_dim=6, sliding_window=5, query_pre_attn_scalar=11,
                  layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                  rope_parameters=dict(full_attention=rope(1e6, "linear", factor=8.0),
                                       sliding_attention=rope(1e4)))
    mixtral = dict(small, model_type="mixtral", num_local_experts=5, num_experts_per_tok=2,
                   sliding_window=None, rope_parameters=rope(1e6))
    qwen3_moe = dict(small, model_type="qwen3_moe", head_dim=6, num_experts=9,
                     num_experts_per_tok=3, moe_intermediate_size=10, norm_topk_prob=True,
                     num_hidden_layers=3, mlp_only_layers=[1], rope_parameters=rope(1e6))
    olmoe = dict(small, model_type="olmoe", num_key_value_heads=3, num_experts=8,
                 num_experts_per_tok=3, intermediate_size=10, rope_parameters=rope(1e4))
    gpt_oss = dict(small, model_type="gpt_oss", hidden_size=20, num_attention_heads=6,
                   num_key_value_heads=2, head_dim=6, sliding_window=5, num_local_experts=8,
                   num_experts_per_tok=2, intermediate_size=10, swiglu_alpha=1.3, swiglu_limit=4.0,
                   rope_parameters=rope(1e4, "yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0,
                                        truncate=False, original_max_position_embeddings=16))
    deepseek = dict(small, model_type="deepseek_v3", num_key_value_heads=3, n_routed_experts=8,
                    n_group=4, topk_group=2, num_experts_per_tok=3, n_shared_experts=2,
                    moe_intermediate_size=10, first_k_dense_replace=1, q_lora_rank=7,
                    kv_lora_rank=9, qk_rope_head_dim=4, qk_nope_head_dim=5, v_head_dim=6,
                    rope_parameters=rope(1e4))
    latent = dict(deepseek, vocab_size=31, num_hidden_layers=1)
    glm4_moe = dict(small, model_type="glm4_moe", num_attention_heads=6, num_key_value_heads=2,
                    head_dim=8, attention_bias=True, use_qk_norm=True, n_routed_experts=8,
                    n_group=2, topk_group=1, num_experts_per_tok=3, n_shared_experts=2,
                    moe_intermediate_size=10, first_k_dense_replace=1, routed_scaling_factor=2.5,
                    rope_parameters=rope(1e4, partial_rotary_factor=0.5))
    documents = [[5, 1, 9, 4], [11, 8]]
    return {
        "gpt2": (gpt2, 19, None, True),
        "gpt2-packed": (gpt2, 19, documents, False),
        "gpt2-untied": (dict(gpt2, vocab_size=53, n_embd=15, n_head=5, n_inner=None,
                             activation_function="gelu", layer_norm_epsilon=1e-6,
                             tie_word_embeddings=False), 23, None, False),
        "llama": (llama, 19, None, True),
        "llama-packed": (llama, 19, documents, False),
        "llama-tied-bias": (dict(llama, vocab_size=67, hidden_size=40, intermediate_size=17,
                                 num_hidden_layers=1, num_attention_heads=5,
                                 num_key_value_heads=5, attention_bias=True, mlp_bias=True,
                                 tie_word_embeddings=True), 23, None, False),
        "llama3.1": (dict(llama, head_dim=8, rope_parameters=rope(
            500.0, "llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=32)), 23, None, False),
        "llama-linear": (dict(llama, rope_parameters=rope(1e4, "linear", factor=4.0)),
                         19, None, False),
        "qwen2-sliding": (dict(small, model_type="qwen2", use_sliding_window=True,
                               sliding_window=5, max_window_layers=1,
                               rope_parameters=rope(1e6)), 19, None, False),
        "qwen3": (dict(qwen3, vocab_size=97, num_attention_heads=6, num_key_value_heads=2,
                       head_dim=4, tie_word_embeddings=True), 23, None, False),
        "qwen3-sliding": (qwen3_sliding, 19, None, False),
        "qwen3-sliding-packed": (qwen3_sliding, 29, [[3, 17, 9], [1, 28]], False),
        "olmo2": (dict(small, model_type="olmo2", rope_parameters=rope(5e5)), 19, None, False),
        "mistral": (dict(small, model_type="mistral", head_dim=10, sliding_window=6,
                         rope_parameters=rope(1e4)), 19, None, False),
        "gemma2": (gemma2, 19, None, False),
        "gemma2-packed": (gemma2, 29, [[8, 2, 19], [16, 13]], False),
        "gemma3": (gemma3, 19, None, False),
        "gemma3-packed": (gemma3, 29, [[8, 2, 19], [16, 13]], False),
        "mixtral": (mixtral, 19, None, False),
        "mixtral-packed": (dict(mixtral, sliding_window=6), 19, documents, False),
        # The balance loss as transformers weighs it; the other cases have none.
        "mixtral-balanced": (dict(mixtral, vocab_size=31, num_local_experts=8,
                                  router_aux_loss_coef=0.3, moe_aux_loss_scale="transformers"),
                             19, None, False),
        "qwen3-moe": (qwen3_moe, 23, None, True),
        "olmoe": (olmoe, 19, None, False),
        "gpt-oss": (gpt_oss, 19, None, False),
        "gpt-oss-packed": (gpt_oss, 13, [[5, 1, 7], [9, 4]], False),
        "deepseek-v3": (deepseek, 19, None, False),
        "phi3": (dict(small, model_type="phi3", sliding_window=6, rope_parameters=rope(1e4)),
                 19, documents, False),
        "qwen2-moe": (dict(small, model_type="qwen2_moe", num_experts=5, num_experts_per_tok=2,
                           moe_intermediate_size=10, shared_expert_intermediate_size=14,
                           num_hidden_layers=3, mlp_only_layers=[1], use_sliding_window=True,
                           sliding_window=7, rope_parameters=rope(1e6)), 19, documents, False),
        "olmo3": (dict(small, model_type="olmo3", num_hidden_layers=3, sliding_window=5,
                       layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                       rope_parameters=dict(
                           full_attention=rope(
                               5e5, "yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0,
                               original_max_position_embeddings=16,
                               attention_factor=0.1 * math.log(4.0) + 1),
                           sliding_attention=rope(5e5))), 19, documents, False),
        # The layer without rope has the window.
        "smollm3": (dict(small, model_type="smollm3", num_hidden_layers=3, no_rope_layers=[1, 0, 1],
                         use_sliding_window=True, sliding_window=6,
                         tie_word_embeddings=True, rope_parameters=rope(2e6)),
                    19, documents, False),
        # Attention Residuals: blocks end after MLPs and leave a rest; after attention, too; and
        # each sub-layer is a block, with experts in one layer of two.
        "llama-residuals": (dict(llama, num_hidden_layers=3, attention_residuals="block",
                                 attention_residual_block_size=4), 19, None, False),
        "gemma3-odd-residuals": (dict(gemma3, attention_residuals="block",
                                      attention_residual_block_size=3), 29, None, False),
        "qwen3-moe-residuals": (dict(qwen3_moe, num_hidden_layers=2, attention_residuals="block",
                                     attention_residual_block_size=1), 23, None, False),
        "deepseek-v3-yarn": (dict(
            deepseek, q_lora_rank=None, rope_interleave=False, rope_parameters=rope(
                1e4, "yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, mscale=0.8,
                mscale_all_dim=0.7, original_max_position_embeddings=16)), 19, documents, False),
        # The norms of latents have an epsilon of their own, whatever rms_norm_eps says.
        "deepseek-v3-epsilon": (dict(latent, rms_norm_eps=1e-5), 19, None, False),
        "deepseek-v3-large-epsilon": (dict(latent, rms_norm_eps=1e-3, q_lora_rank=None),
                                      19, None, False),
        # As published, yarn has no frequencies between those that stay and those that are stretched.
        "kimi-k2": (dict(
            deepseek, model_type="kimi_k2", n_group=1, topk_group=1, routed_scaling_factor=2.827,
            rope_parameters=rope(5e4, "yarn", factor=4.0, beta_fast=1.0, beta_slow=1.0, mscale=1.0,
                                 mscale_all_dim=1.0, original_max_position_embeddings=16)),
                    19, documents, False),
        "glm4-moe": (glm4_moe, 19, documents, False),
        # As GLM-4.5-Air: no norms, so that rotation is an op of its own.
        "glm4-moe-plain": (dict(glm4_moe, use_qk_norm=False, n_group=1, routed_scaling_factor=1.0,
                              rope_parameters=rope(1e4, partial_rotary_factor=0.25)),
                         19, None, False),
    }


def class_of(family):
    """The model_type of the class that transformers has for a family."""
    return CLASS_OF.get(family, family)


def v4_config(saved):
    """The same model in the key spellings of transformers 4."""
    old = dict(saved, torch_dtype=saved["dtype"], transformers_version="4.44.0")
    family, rope = old["model_type"], old.pop("rope_parameters", None)
    absent = ["dtype", "_sliding_window_pattern"]
    if family == "gemma3_text":
        full, local = rope["full_attention"], rope["sliding_attention"]
        old.update(rope_theta=full["rope_theta"], rope_local_base_freq=local["rope_theta"],
                   rope_scaling=dict(rope_type=full["rope_type"], factor=full["factor"]),
                   sliding_window_pattern=2)
    elif family == "olmo3":
        full = rope["full_attention"]
        old.update(rope_theta=full["rope_theta"],
                   rope_scaling={k: v for k, v in full.items() if k != "rope_theta"})
    elif rope:
        scaling = {k: v for k, v in rope.items()
                   if k not in ("rope_theta", "partial_rotary_factor")}
        if scaling["rope_type"] == "linear":  # the oldest spelling
            scaling["type"] = scaling.pop("rope_type")
        default = scaling == dict(rope_type="default")
        old.update(rope_theta=rope["rope_theta"], rope_scaling=None if default else scaling)
        if rope.get("partial_rotary_factor", 1.0) != 1.0:
            old.update(partial_rotary_factor=rope["partial_rotary_factor"])
    if family in ("qwen2", "gemma2", "gemma3_text"):  # it follows from other keys
        absent.append("layer_types")
    if family in ("gpt2", "gemma2", "gemma3_text") and old["tie_word_embeddings"]:  # their default
        absent.append("tie_word_embeddings")
    if family == "gpt2":
        old["n_ctx"] = old["n_positions"]
        absent += [k for k in ("reorder_and_upcast_attn", "scale_attn_weights") if k in old]
    absent += [k for k in ("attention_bias", "mlp_bias") if old.get(k) is False]
    if family == "llama" and old["head_dim"] * old["num_attention_heads"] == old["hidden_size"]:
        absent.append("head_dim")
    return {key: value for key, value in old.items() if key not in absent}


# ---- Batch and weights -----------------------------------------------------------------------

def generator(name):
    return np.random.Generator(np.random.PCG64(zlib.crc32(f"{SALT}/{name}".encode())))


def make_batch(name, vocabulary, T, documents):
    random = generator(name + "/batch")
    tokens = random.integers(0, vocabulary, (B, T))
    targets = np.concatenate([tokens[:, 1:], random.integers(0, vocabulary, (B, 1))], axis=1)
    targets[random.random((B, T)) < 0.15] = MASKED
    start = np.zeros((B, T), dtype=np.int64)
    for row, lengths in enumerate(documents or []):
        assert sum(lengths) == T
        ends = np.cumsum(lengths)
        start[row] = np.repeat(ends - lengths, lengths)
        targets[row, ends[:-1] - 1] = MASKED  # what follows belongs to another document
    assert (targets == MASKED).any() and (targets != MASKED).sum() > T
    batch = dict(tokens=tokens, targets=targets, positions=np.arange(T) - start, doc_start=start)
    return {key: torch.from_numpy(value.astype(np.int64)) for key, value in batch.items()}


def make_weights(name, model):
    """float32 values that leave no parameter without influence (unlike HF's initialisation)."""
    random = generator(name.removesuffix("-packed") + "/weights")
    zero_centred = model.config.model_type.startswith("gemma")
    for parameter_name, parameter in model.named_parameters():
        value = random.standard_normal(tuple(parameter.shape))
        if parameter_name.endswith("bias"):
            value *= 0.2
            # Some units are clamped for every token, the others for none: a token near the edge
            # would spoil the differences.
            if parameter_name.endswith("gate_up_proj_bias"):
                value += np.where(np.arange(value.shape[-1]) % 5 == 0, 9.0, 0.0)
                value -= np.where(np.arange(value.shape[-1]) % 10 == 5, 18.0, 0.0)
        elif parameter.dim() >= 2:
            embedding = any(part in parameter_name for part in ("wte", "wpe", "embed_tokens"))
            transposed = model.config.model_type == "gpt2" or parameter.dim() == 3 and stacked(model)
            fan_in = parameter.shape[-2 if transposed and not embedding else -1]  # [in, out]
            value *= 0.7 if embedding else 1.1 / math.sqrt(fan_in)
        elif "residual" in parameter_name:
            value *= 0.3
        else:
            value = value * 0.3 + (0.0 if zero_centred else 1.0)
        parameter.data.copy_(torch.from_numpy(value.astype(np.float32)))
    for buffer_name, buffer in saved_buffers(model).items():
        value = 0.1 * random.standard_normal(tuple(buffer.shape))
        buffer.copy_(torch.from_numpy(value.astype(np.float32)))


def saved_buffers(model):
    """The biases that choose experts."""
    return {n: b for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")}


def stacked(model):
    """Whether files have the matrices of all experts in one tensor, each [in, out]."""
    return model.config.model_type == "gpt_oss"


def as_saved(model, tensors):
    """Tensors by parameter name as save_pretrained writes them: each matrix of an expert apart."""
    if stacked(model):
        return dict(tensors)
    mixtral = model.config.model_type == "mixtral"
    names = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    result = {}
    for name, tensor in tensors.items():
        if mixtral:
            name = name.replace(".mlp.", ".block_sparse_moe.")
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            result[name] = tensor
            continue
        prefix, kind = name.rsplit(".", 1)
        for expert, matrix in enumerate(tensor):
            parts = zip(names, matrix.chunk(2)) if kind == "gate_up_proj" else [(names[2], matrix)]
            result |= {f"{prefix}.{expert}.{part}.weight": value for part, value in parts}
    return result


# ---- Exact float64 ---------------------------------------------------------------------------

class Widen(TorchFunctionMode):
    """Turns every request for float32 into float64 and records its origin."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.float:
            self.note(function)
            return args[0].double()
        if any(a is torch.float32 for a in (*args, kwargs.get("dtype"))):
            self.note(function)
            args = [torch.float64 if a is torch.float32 else a for a in args]
            if kwargs.get("dtype") is torch.float32:
                kwargs["dtype"] = torch.float64
        return function(*args, **kwargs)

    def note(self, function):
        frame = sys._getframe()
        while frame and "/transformers/" not in frame.f_code.co_filename:
            frame = frame.f_back
        assert frame, f"float32 asked for outside transformers: {function}"
        where = f"{Path(frame.f_code.co_filename).name} {frame.f_code.co_qualname}"
        self.found.add((where, function.__name__))


class RefuseNarrow(TorchDispatchMode):
    """Fails when an operation returns a floating-point type narrower than float64."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                assert value.dtype is torch.float64, f"{function} returned {value.dtype}"
        return result


@contextlib.contextmanager
def precision(dtype):
    torch.set_default_dtype(dtype)
    widen = Widen()
    try:
        if dtype is torch.float64:
            with widen, RefuseNarrow():
                yield widen
        else:
            yield widen
    finally:
        torch.set_default_dtype(torch.float32)


# ---- The references --------------------------------------------------------------------------

def build(config):
    experts = dict(experts_implementation="eager") if hasattr(config, "num_experts_per_tok") else {}
    model = AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", dtype=torch.get_default_dtype(), **experts)
    if getattr(config, "attention_residuals", "none") == "block":
        add_residuals(model, config.attention_residual_block_size)
    return model.eval()


class Query(torch.nn.Module):
    """The learned query of one mix."""

    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(size))


class Residuals:
    """Attention Residuals, block form (arXiv 2603.15031), which transformers has not. Sub-layers
    read a softmax mix of the embedding, the sums of finished blocks and the sum so far of their own
    block; scores are the product of a query with the source divided by its root mean square."""

    def __init__(self, block_size, epsilon):
        self.block_size, self.epsilon = block_size, epsilon

    def begin(self, embedded):
        self.finished, self.sum, self.count = [embedded], None, 0

    def read(self, query):
        if query is None:  # nothing to choose from
            return self.finished[0]
        sources = torch.stack(self.finished + ([] if self.sum is None else [self.sum]))
        rms = (sources.square().mean(-1, keepdim=True) + self.epsilon).sqrt()
        weights = ((sources / rms) @ query.weight).softmax(0)
        return (weights[..., None] * sources).sum(0)

    def add(self, made):
        self.sum = made if self.sum is None else self.sum + made
        self.count += 1
        if self.count % self.block_size == 0:
            self.finished, self.sum = self.finished + [self.sum], None


def add_residuals(model, block_size):
    """Puts the residuals into a model of transformers, around its own attention and MLPs."""
    decoder, size = model.model, model.config.hidden_size
    residuals = Residuals(block_size, model.config.rms_norm_eps)
    sandwich = hasattr(decoder.layers[0], "pre_feedforward_layernorm")

    def forward_of(layer, index):
        def forward(hidden_states, **arguments):
            if index == 0:
                residuals.begin(hidden_states)
            x = layer.input_layernorm(residuals.read(layer.attention_residual))
            y = layer.self_attn(hidden_states=x, **arguments)[0]
            residuals.add(layer.post_attention_layernorm(y) if sandwich else y)
            before = layer.pre_feedforward_layernorm if sandwich else layer.post_attention_layernorm
            y = layer.mlp(before(residuals.read(layer.mlp_residual)))
            residuals.add(layer.post_feedforward_layernorm(y) if sandwich else y)
            return hidden_states
        return forward

    for index, layer in enumerate(decoder.layers):
        layer.attention_residual = Query(size) if index > 0 else None
        layer.mlp_residual = Query(size)
        layer.forward = forward_of(layer, index)
    decoder.residual = Query(size)
    norm = decoder.norm.forward
    decoder.norm.forward = lambda hidden_states: norm(residuals.read(decoder.residual))


def copy_weights(model, saved):
    """Fills the model from tensors as save_pretrained writes them."""
    views = as_saved(model, {name: p.data for name, p in model.named_parameters()})
    views |= saved_buffers(model)
    assert set(views) == set(saved)
    for name, view in views.items():
        view.copy_(saved[name].data)


def visible(batch, window):
    """[B, T, T] true where query t may see key s: same document, s <= t, t - s < window."""
    t = torch.arange(batch["tokens"].shape[1])
    distance = t[:, None] - t[None, :]
    seen = (distance >= 0) & (t[None, None, :] >= batch["doc_start"][:, :, None])
    return seen & (distance < window) if window else seen


def explicit_mask(config, batch):
    """The intended mask, given to transformers instead of the one that it would derive."""
    def additive(window):
        value = torch.zeros(visible(batch, window).shape)
        value.masked_fill_(~visible(batch, window), -math.inf)
        return value[:, None]

    window = getattr(config, "sliding_window", None)
    if config.model_type in ("mistral", "mixtral", "phi3"):
        return additive(window)
    if getattr(config, "layer_types", None):
        return dict(full_attention=additive(None), sliding_attention=additive(window))
    return additive(None)


def logits_of(model, batch, attention_mask=None):
    return model(input_ids=batch["tokens"], position_ids=batch["positions"], use_cache=False,
                 attention_mask=attention_mask).logits


def loss_of(model, batch, attention_mask=None):
    """Logits, transformers' own loss, and the differentiated loss, which includes the balance loss if
    the case has one. transformers shifts labels by default; ours are shifted already."""
    labels = batch["targets"].masked_fill(batch["targets"] == MASKED, -100)
    with routed(model) as router_logits:
        out = model(input_ids=batch["tokens"], position_ids=batch["positions"], use_cache=False,
                    attention_mask=attention_mask)
    loss = model.loss_function(logits=out.logits, labels=None, shift_labels=labels,
                               vocab_size=model.config.vocab_size)
    if getattr(model.config, "moe_aux_loss_scale", "layers") != "transformers":
        return out.logits, loss, loss
    balance = model.config.router_aux_loss_coef * balance_of(model, router_logits)
    return out.logits, loss, loss + balance


@contextlib.contextmanager
def routed(model):
    """A list to which forward passes append the logits of each router."""
    found = []
    handles = [module.register_forward_hook(lambda m, i, outputs: found.append(outputs[0]))
               for module in model.modules() if type(module).__name__.endswith("TopKRouter")]
    yield found
    for handle in handles:
        handle.remove()


def balance_of(model, router_logits):
    """The mean over sequences and layers of transformers' balance loss of each."""
    theirs = sys.modules[type(model).__module__].load_balancing_loss_func
    k, losses = model.config.num_experts_per_tok, []
    for logits in (sequence for layer in router_logits for sequence in layer.chunk(B)):
        probabilities = logits.softmax(-1)
        chosen = torch.zeros_like(logits).scatter(-1, logits.topk(k).indices, 1)
        losses.append(logits.shape[-1] * (chosen.mean(0) * probabilities.mean(0)).sum())
        if logits.dtype is torch.float32:
            torch.testing.assert_close(losses[-1], theirs((logits,), logits.shape[-1], k))
    return torch.stack(losses).mean()


def same_mask(config, batch):
    """GPT-OSS derives no documents from positions; documents run alone are the proof there."""
    return config.model_type != "gpt_oss" or not batch["doc_start"].any()


def reference(model, batch):
    """logits, loss and gradients; the mask that transformers derives must be the intended one."""
    model.zero_grad(set_to_none=True)
    mask = explicit_mask(model.config, batch)
    loads = {}
    with counted(model, loads):
        logits, loss, objective = loss_of(model, batch, mask)
    objective.backward()
    with torch.no_grad():
        if same_mask(model.config, batch):
            assert torch.equal(logits, logits_of(model, batch)), "mask differs from transformers' own"
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    return logits.detach(), loss.detach().reshape(1), gradients | loads


@contextlib.contextmanager
def counted(model, loads):
    """Fills `loads` with the slots that chose each expert, by name of the bias of its router."""
    def hook(name):
        def count(module, inputs, outputs):
            slots = torch.bincount(outputs[2].flatten(), minlength=module.num_experts)
            loads[name] = slots.to(outputs[0].dtype)
        return count

    handles = [model.get_submodule(name.rsplit(".", 1)[0]).register_forward_hook(hook(name))
               for name in saved_buffers(model)]
    yield
    for handle in handles:
        handle.remove()


def adamw_steps(model, batch, steps=2):
    """Parameters after steps of AdamW (decay on matrices and stacks of them only) with clipping to norm 1."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [dict(params=matrices, weight_decay=0.1), dict(params=others, weight_decay=0.0)],
        lr=1e-3, betas=(0.9, 0.95), eps=1e-8, foreach=False)
    norms = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, batch, explicit_mask(model.config, batch))[2].backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False))
        optimizer.step()
    assert all(norm > 1.0 for norm in norms), "clipping must matter"
    after = as_saved(model, {name: p.detach().clone() for name, p in model.named_parameters()})
    after = {f"after.{name}": value for name, value in after.items()}
    return dict(after, grad_norm=torch.stack(norms).detach())


# ---- Checks of the float64 reference itself --------------------------------------------------

def error(a, b, gradient_rms=0.0):
    """The error of a tensor, as everywhere in this project."""
    scale = max(b.abs().max().item(), 1e-3 * gradient_rms)
    return (a.double() - b.double()).abs().max().item() / scale


def root_mean_square(gradients):
    weights = [g for n, g in gradients.items() if not n.endswith("e_score_correction_bias")]
    total = sum(g.double().square().sum().item() for g in weights)
    return math.sqrt(total / sum(g.numel() for g in weights))


def difference_check(model, batch, gradients):
    """Largest error of a directional derivative against Richardson's central difference."""
    mask, random, worst = explicit_mask(model.config, batch), generator("directions"), 0.0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            direction = torch.from_numpy(random.standard_normal(tuple(parameter.shape)))
            origin = parameter.detach().clone()

            def slope(h):
                parameter.copy_(origin + h * direction)
                above = loss_of(model, batch, mask)[2]
                parameter.copy_(origin - h * direction)
                return (above - loss_of(model, batch, mask)[2]) / (2 * h)

            h = 4e-4 / max(1.0, direction.norm().item() / 8)
            wide, middle, narrow = slope(h), slope(h / 2), slope(h / 4)
            first, second = (4 * middle - wide) / 3, (4 * narrow - middle) / 3
            estimate = (16 * second - first) / 15
            parameter.copy_(origin)
            exact = (gradients[name] * direction).sum()
            size = gradients[name].norm() * direction.norm()
            worst = max(worst, ((estimate - exact).abs() / size).item())
    return worst


def tiny_change_check(model, batch):
    """How far the change of the logits by a step of 1e-12 is from linear (float32 would show 1)."""
    mask, parameter = explicit_mask(model.config, batch), next(model.parameters())
    token = batch["tokens"][0, 0]
    with torch.no_grad():
        origin, base = parameter.detach().clone(), logits_of(model, batch, mask)

        def change(h):
            parameter[token, 0] += h
            result = (logits_of(model, batch, mask) - base) / h
            parameter.copy_(origin)
            return result

        slope = change(1e-7)
        return ((change(1e-12) - slope).abs().max() / slope.abs().max()).item()


def documents_alone_check(model, batch):
    """Error of the packed logits against every document run by itself, without any mask."""
    worst = 0.0
    with torch.no_grad():
        packed = logits_of(model, batch, explicit_mask(model.config, batch))
        for row in range(B):
            starts = sorted(set(batch["doc_start"][row].tolist()))
            for begin, end in zip(starts, starts[1:] + [packed.shape[1]]):
                alone = model(input_ids=batch["tokens"][row:row + 1, begin:end],
                              use_cache=False).logits
                worst = max(worst, error(packed[row:row + 1, begin:end], alone))
    return worst


# ---- Files -----------------------------------------------------------------------------------

def same_model(folder, config_file, model, batch):
    """The float64 logits of the model that transformers reads from these files."""
    saved = json.loads((folder / config_file).read_text())
    config = AutoConfig.for_model(class_of(saved.pop("model_type")), **saved)
    with precision(torch.float64):
        read = build(config)
    copy_weights(read, load_file(folder / "model.safetensors"))
    with precision(torch.float64), torch.no_grad():
        return torch.equal(logits_of(model, batch), logits_of(read, batch))


def write_or_compare(path, tensors, check):
    if not check:
        save_file({k: v.contiguous() for k, v in tensors.items()}, path, metadata={"format": "pt"})
        return 0.0
    with safe_open(path, "pt") as stored:
        assert set(stored.keys()) == set(tensors), path
        pairs = [(stored.get_tensor(k), tensors[k], k) for k in tensors]
    assert all(a.dtype == b.dtype and a.shape == b.shape for a, b, _ in pairs), path
    return max(error(b, a.double(), 1e-30) for a, b, k in pairs if ".f32" not in k)


def make_case(name, case, check):
    settings, T, documents, with_optimizer = case
    folder = FIXTURES / name
    folder.mkdir(parents=True, exist_ok=True)
    family = settings["model_type"]
    config = AutoConfig.for_model(**dict(settings, model_type=class_of(family)))
    batch = make_batch(name, config.vocab_size, T, documents)

    model = build(config)
    make_weights(name, model)
    if not check:
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
    logits, loss, gradients = reference(model, batch)
    tensors = {key: value.to(torch.int32) for key, value in batch.items()}
    tensors |= {"logits.f32": logits, "loss.f32": loss}
    tensors |= {f"grad.f32.{n}": g for n, g in as_saved(model, gradients).items()}

    with precision(torch.float64) as widen:
        exact = build(config)
    copy_weights(exact, as_saved(model, dict(model.named_parameters())) | saved_buffers(model))
    with precision(torch.float64) as widen_run:
        logits64, loss64, gradients64 = reference(exact, batch)
        report = dict(difference=difference_check(exact, batch, gradients64),
                      tiny=tiny_change_check(exact, batch))
        if documents:
            report["alone"] = documents_alone_check(exact, batch)
    tensors |= {"logits.f64": logits64, "loss.f64": loss64}
    tensors |= {f"grad.f64.{n}": g for n, g in as_saved(model, gradients64).items()}
    rms = root_mean_square(gradients64)
    report["f32"] = max(error(logits, logits64), error(loss, loss64),
                        *(error(gradients[n], gradients64[n], rms) for n in gradients))

    config_file = "config.json"
    if not check:
        saved = dict(json.loads((folder / config_file).read_text()), model_type=family)
        if class_of(family) != family:
            (folder / config_file).write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")
        text = json.dumps(v4_config(saved), indent=2, sort_keys=True) + "\n"
        (folder / "config_v4.json").write_text(text)
    for config_file in ("config.json", "config_v4.json"):
        assert same_model(folder, config_file, exact, batch), f"{name}: {config_file}"
    if with_optimizer:
        with precision(torch.float64):
            tensors |= adamw_steps(exact, batch)
    assert report["difference"] < 1e-9 and report["tiny"] < 0.05, report
    assert report.get("alone", 0.0) < 1e-14 and report["f32"] < 5e-6, report
    report["stored"] = write_or_compare(folder / "reference.safetensors", tensors, check)
    return report, widen.found | widen_run.found


def check_casts(found, all_cases):
    used = set()
    for where, call in found:
        rules = [i for i, (pattern, name, _) in enumerate(CASTS_REMOVED)
                 if name == call and re.fullmatch(pattern, where)]
        assert rules, f"a float32 cast that CASTS_REMOVED does not list: {where} ({call})"
        used.update(rules)
    assert not all_cases or len(used) == len(CASTS_REMOVED), "CASTS_REMOVED lists too many"


def write_readme(rows):
    casts = "\n".join(f"- {what} (`{where}`, `{call}`)" for where, call, what in CASTS_REMOVED)
    table = "\n".join(f"| {name} | {r['difference']:.0e} | {r['tiny']:.0e} | "
                      f"{r.get('alone', math.nan):.0e} | {r['f32']:.1e} |".replace("nan", "")
                      for name, r in rows)
    text = README.format(casts=casts, table=table, torch=torch.__version__.split("+")[0],
                         transformers=transformers.__version__)
    (FIXTURES / "README.md").write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    rows, found = [], set()
    for name, case in cases().items():
        if arguments.cases and name not in arguments.cases:
            continue
        report, casts = make_case(name, case, arguments.check)
        rows.append((name, report))
        found |= casts
        print(f"{name:22}" + "".join(f"  {key} {value:.1e}" for key, value in report.items()))
    check_casts(found, not arguments.cases)
    if not arguments.check and not arguments.cases:
        write_readme(rows)
    if arguments.check:
        assert all(report["stored"] < 1e-13 for _, report in rows), "the stored files differ"


README = """<!-- Written by tools/make_parity_fixtures.py; edit it there. -->
# Parity fixtures

Random models of every family, run by transformers {transformers} on PyTorch {torch} (CPU, eager
attention, dropout 0). `python3 tools/make_parity_fixtures.py` writes them, `--check` computes them
again and compares. Nothing that reads them needs Python.

## Files of a case

- `config.json`, `model.safetensors`: what `save_pretrained` writes, float32 values. GPT-2's
  matrices are `Conv1D` weights: [inputs, outputs], the transpose of the usual layout. A tied head
  has no tensor of its own.
- `config_v4.json`: the same model in the spellings of transformers 4 (`torch_dtype`, `rope_theta`,
  `rope_scaling` with `rope_type` or the older `type`, `rope_local_base_freq`,
  `sliding_window_pattern`; keys that have their default value, and `layer_types` where it follows
  from other keys, are absent). Transformers reads both to the same float64 logits, bit for bit.
- `reference.safetensors`:

| tensor | shape | meaning |
|---|---|---|
| `tokens` | I32 [B, T] | input ids |
| `targets` | I32 [B, T] | the id that position t predicts (already shifted); -1: not counted |
| `positions` | I32 [B, T] | position in the document, from 0 |
| `doc_start` | I32 [B, T] | index in the row of the first token of this token's document |
| `logits.f64`, `logits.f32` | [B, T, V] | |
| `loss.f64`, `loss.f32` | [1] | mean of -ln p(target) over the counted targets of both rows, nats |
| `grad.f64.NAME`, `grad.f32.NAME` | as `NAME` | gradient of that loss by each tensor NAME of model.safetensors; a tied embedding has the sum of both uses; of the bias of a router: slots that chose each expert |
| `after.NAME` | F64, as `NAME` | the tensor after two AdamW steps on this batch (gpt2, llama, qwen3-moe only) |
| `grad_norm` | F64 [2] | global gradient norm before clipping in each of these steps |

`.f64` tensors are F64, `.f32` tensors F32; the f32 ones come from the unchanged float32 modules.

## Conventions

- A query t sees a key s when s <= t, s >= doc_start[t] and, in a layer with window w, t - s < w (w
  counts the query itself). In `-packed` cases rows hold several documents (some of one token); the
  last target of a document that is followed by another is -1, some others too.
- Error of a tensor: max|a - b| / max(max|b|, 1e-3 x rms of all gradients of the case).
- AdamW: lr 1e-3, betas 0.9 0.95, eps 1e-8, weight decay 0.1 on all 2-D tensors (embeddings too) and
  0 on the others, p -= lr * decay * p first; gradients times min(1, 1 / (norm + 1e-6)) before each
  step; float64 state. Both steps clip.
- `mixtral-balanced`: gradients are those of the loss plus 0.3 times the balance of experts, the
  mean over sequences and layers of transformers' `load_balancing_loss_func` of each.
- `-residuals` cases: transformers' modules with Attention Residuals around them, which
  transformers does not know; the queries of the mixes are the tensors with `residual` in their names.
- `pad_token_id` is null: with one, PyTorch would keep that token's embedding gradient at zero.

## The float64 references

float32 casts inside the modules that these runs omit (the script intercepts them and fails if one
is not listed):

{casts}
- Gemma's embedding scale is sqrt(hidden_size) in float64, not rounded to float32

Every operation, forward and backward, was checked to return float64 only. Measured, per case:
*difference*: largest error of a directional derivative per parameter, against a central difference
extrapolated twice, relative to the lengths of gradient and direction; *tiny*: how far the answer of
the logits to a change of 1e-12 is from linear (with float32 inside it is 1 or more); *alone*: packed
logits against each document run by itself without a mask; *f32*: largest error of the float32
tensors.

| case | difference | tiny | alone | f32 |
|---|---|---|---|---|
{table}
"""

if __name__ == "__main__":
    main()
