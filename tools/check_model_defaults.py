#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares how orthant and transformers read config.json, and what orthant writes.

Each case is a small config.json: every family with all keys left to their defaults, public shapes,
both spellings of rotary parameters, windows. transformers reads it; orthant reads it and prints its
meaning as a config.json, which transformers reads as well. Both must agree. The presets must have as
many parameters as transformers' own modules.

  tools/check_model_defaults.py [build/orthant]      needs transformers and torch; not part of `check`
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parent.parent
ORTHANT = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build" / "orthant")
TRANSFORMERS_4 = int(transformers.__version__.split(".")[0]) < 5

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
YARN = {"type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
        "mscale_all_dim": 0.7, "original_max_position_embeddings": 64}
# Families that transformers has under another name only.
CLASS_OF = {"kimi_k2": "deepseek_v3"}
SMALL = {"num_hidden_layers": 7, "hidden_size": 60, "num_attention_heads": 6,
         "num_key_value_heads": 2, "intermediate_size": 88, "vocab_size": 301}
CASES = [{"model_type": t} for t in
         ("gpt2", "llama", "qwen2", "qwen3", "olmo2", "mistral", "ministral", "gemma2",
          "gemma3_text", "mixtral", "qwen3_moe", "olmoe", "deepseek_v3", "smollm3", "phi3",
          "qwen2_moe", "olmo3", "gpt_oss")]
CASES += [
    {"model_type": "gpt2", "n_embd": 48, "n_head": 3, "n_layer": 2, "n_inner": 100},
    {"model_type": "gpt2", "scale_attn_weights": False, "activation_function": "relu"},
    {"model_type": "gpt2", "resid_pdrop": 0.0, "attn_pdrop": 0.2, "embd_pdrop": 0.3},
    {"model_type": "llama", **SMALL, "tie_word_embeddings": True, "attention_bias": True,
     "mlp_bias": True, "rope_theta": 5e5, "eos_token_id": [3, 4], "bos_token_id": None},
    {"model_type": "llama", **SMALL, "max_position_embeddings": 131072, "rope_theta": 5e5,
     "rope_scaling": LLAMA3},
    {"model_type": "llama", **SMALL, "max_position_embeddings": 131072,
     "rope_parameters": {**LLAMA3, "rope_theta": 5e5}},
    {"model_type": "llama", **SMALL, "rope_scaling": {"type": "linear", "factor": 2.0}},
    {"model_type": "llama", **SMALL, "head_dim": 16, "num_key_value_heads": None},
    {"model_type": "qwen2", **SMALL, "use_sliding_window": True, "sliding_window": 16,
     "max_window_layers": 3},
    {"model_type": "qwen3", **SMALL, "head_dim": 20, "use_sliding_window": True,
     "sliding_window": 16, "layer_types": ["full_attention", "sliding_attention"] * 3
     + ["full_attention"]},
    {"model_type": "olmo2", **SMALL, "rope_theta": 5e5, "rms_norm_eps": 1e-6},
    {"model_type": "olmo3", **SMALL, "sliding_window": 16, "rope_scaling": {
        "rope_type": "yarn", "factor": 8.0, "attention_factor": 1.2079441541679836,
        "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 256}},
    {"model_type": "olmo3", **SMALL, "sliding_window": 16, "attention_bias": True,
     "layer_types": ["full_attention", "sliding_attention"] * 3 + ["full_attention"],
     "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}},
    {"model_type": "mistral", **SMALL, "sliding_window": None},
    {"model_type": "mistral", **SMALL, "sliding_window": 32},
    {"model_type": "mistral", **SMALL, "sliding_window": 32,
     "layer_types": ["sliding_attention"] * 4 + ["full_attention"] * 3},
    {"model_type": "gemma2", **SMALL, "head_dim": 20, "sliding_window": 16,
     "query_pre_attn_scalar": 168, "attn_logit_softcapping": None, "final_logit_softcapping": 9.5},
    {"model_type": "gemma2", **SMALL, "layer_types": ["full_attention"] * 6 + ["sliding_attention"]},
    {"model_type": "gemma3_text", **SMALL, "head_dim": 20, "sliding_window_pattern": 3,
     "sliding_window": 16, "rope_theta": 2e6, "rope_local_base_freq": 3e4,
     "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "query_pre_attn_scalar": 168},
    {"model_type": "gemma3_text", **SMALL, "head_dim": 20, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}},
    {"model_type": "mixtral", **SMALL, "num_local_experts": 6, "sliding_window": 16},
    {"model_type": "qwen3_moe", **SMALL, "head_dim": 20, "num_experts": 10, "mlp_only_layers": [2],
     "decoder_sparse_step": 2, "norm_topk_prob": True, "moe_intermediate_size": 24},
    {"model_type": "qwen3_moe", **SMALL, "head_dim": 20, "num_local_experts": 10},
    {"model_type": "qwen2_moe", **SMALL, "num_experts": 10, "mlp_only_layers": [3],
     "decoder_sparse_step": 2, "use_sliding_window": True, "sliding_window": 16,
     "max_window_layers": 5, "qkv_bias": False, "shared_expert_intermediate_size": 24},
    {"model_type": "phi3", **SMALL, "sliding_window": 16, "resid_pdrop": 0.2, "rope_theta": 5e5,
     "attention_dropout": 0.1, "pad_token_id": 3},
    {"model_type": "smollm3", **SMALL, "no_rope_layer_interval": 3, "use_sliding_window": True,
     "sliding_window": 16},
    {"model_type": "smollm3", **SMALL, "no_rope_layers": [1, 0, 0, 1, 1, 0, 1], "mlp_bias": True,
     "layer_types": ["full_attention", "sliding_attention"] * 3 + ["full_attention"],
     "use_sliding_window": True, "sliding_window": 16},
    {"model_type": "gpt_oss", **SMALL, "head_dim": 20, "sliding_window": 16, "num_local_experts": 10,
     "swiglu_limit": 5.0, "swiglu_alpha": 1.5, "attention_bias": False},
    {"model_type": "gpt_oss", **SMALL, "rope_parameters": {"rope_type": "default",
                                                           "rope_theta": 5e5}},
    {"model_type": "olmoe", **SMALL, "num_experts": 10, "num_experts_per_tok": 3},
    {"model_type": "glm4_moe", "head_dim": 128},  # the default is no integer
    {"model_type": "glm4_moe", **SMALL, "head_dim": 20, "use_qk_norm": True, "attention_bias": True,
     "n_group": 2, "partial_rotary_factor": 0.3, "rope_theta": 5e5, "n_shared_experts": 2},
    {"model_type": "glm4_moe", **SMALL, "head_dim": 20, "rope_parameters": {
        "rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.7}},
    {"model_type": "deepseek_v3", **{**SMALL, "num_key_value_heads": 6}, "n_routed_experts": 8,
     "n_group": 2, "topk_group": 1, "num_experts_per_tok": 3, "q_lora_rank": None,
     "max_position_embeddings": 256, "rope_scaling": YARN},
]
KEYS = ["vocab_size", "hidden_size", "intermediate_size", "n_inner", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings",
        "rms_norm_eps", "layer_norm_epsilon", "initializer_range", "tie_word_embeddings",
        "attention_bias", "mlp_bias", "scale_attn_weights", "query_pre_attn_scalar",
        "attn_logit_softcapping", "final_logit_softcapping", "rope_parameters", "layer_types",
        "no_rope_layers", "attention_dropout", "attn_pdrop", "embd_pdrop",
        "resid_pdrop", "bos_token_id", "eos_token_id", "pad_token_id", "num_experts_per_tok",
        "num_local_experts", "moe_intermediate_size", "mlp_only_layers", "norm_topk_prob",
        "router_aux_loss_coef", "n_shared_experts", "qkv_bias", "shared_expert_intermediate_size",
         "first_k_dense_replace", "routed_scaling_factor", "swiglu_alpha", "swiglu_limit",
        "n_group", "topk_group", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim",
        "qk_rope_head_dim", "v_head_dim", "rope_interleave", "use_qk_norm"]
ACTIVATIONS = {"gelu_new": "gelu_pytorch_tanh", "swish": "silu"}


def old_rope(config):
    """rope_parameters as transformers 5 would write what transformers 4 read."""
    scaling = dict(getattr(config, "rope_scaling", None) or {})
    one = {"rope_type": scaling.pop("rope_type", scaling.pop("type", "default")),
           "rope_theta": config.rope_theta, **scaling}
    one.pop("type", None)
    if config.model_type != "gemma3_text":
        return one
    local = {"rope_type": "default", "rope_theta": config.rope_local_base_freq}
    return {"full_attention": one, "sliding_attention": local}


def effective(config):
    """The values of a configuration that the modules use, in one spelling."""
    values = {key: getattr(config, key, None) for key in KEYS}
    for key in ("hidden_act", "hidden_activation", "activation_function"):
        if hasattr(config, key):
            values["activation"] = ACTIVATIONS.get(getattr(config, key), getattr(config, key))
    if config.model_type == "gpt2":
        values["n_inner"] = config.n_inner or 4 * config.n_embd
        values["rope_parameters"] = None
    else:
        values["head_dim"] = values["head_dim"] or config.hidden_size // config.num_attention_heads
        if TRANSFORMERS_4:
            values["rope_parameters"] = old_rope(config)
    if config.model_type in ("qwen2_moe", "qwen3_moe"):
        dense = values["mlp_only_layers"] or []
        values["mlp_only_layers"] = [i for i in range(config.num_hidden_layers) if i in dense
                                     or (i + 1) % config.decoder_sparse_step != 0]
    window = getattr(config, "sliding_window", None)
    types = values.pop("layer_types") or ["sliding_attention"] * config.num_hidden_layers
    values["windows"] = [window if t == "sliding_attention" else None for t in types]
    for rope in (values["rope_parameters"], *(values["rope_parameters"] or {}).values()):
        if isinstance(rope, dict):
            rope.pop("type", None)
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):  # defaults of a family beyond a small vocabulary
        ids = values[key] if isinstance(values[key], list) else [values[key]]
        if any(i is not None and i >= config.vocab_size for i in ids):
            values[key] = None
    return values


def through_orthant(path):
    done = subprocess.run([ORTHANT, "presets", str(path), "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{path.read_text()}\n{done.stderr}")
    return json.loads(done.stdout)


def of_transformers(config):
    """A configuration under the name that transformers has for its family."""
    return {**config, "model_type": CLASS_OF.get(config["model_type"], config["model_type"])}


def load(directory, config):
    (directory / "config.json").write_text(json.dumps(of_transformers(config)))
    return AutoConfig.from_pretrained(directory)


def compare(name, config, directory):
    theirs = load(directory, config)
    (directory / "config.json").write_text(json.dumps(config))
    ours = load(directory, through_orthant(directory / "config.json")["config"])
    a, b = effective(theirs), effective(ours)
    wrong = [f"{key}: transformers {a[key]!r}, orthant {b[key]!r}" for key in a if a[key] != b.get(key)]
    # orthant must also read the output of transformers.
    theirs.save_pretrained(directory)
    again = effective(load(directory, through_orthant(directory / "config.json")["config"]))
    wrong += [f"saved {key}: {a[key]!r}, orthant {again[key]!r}" for key in a if a[key] != again[key]]
    print(("wrong " if wrong else "ok    ") + name + "".join("\n      " + w for w in wrong))
    return len(wrong)


def count(path):
    config = of_transformers(json.loads(path.read_text()))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    theirs = sum(p.numel() for p in model.parameters())
    ours = through_orthant(path)["parameters"]
    print(("ok    " if ours == theirs else "wrong ") + f"{path.stem}: {theirs} {ours}")
    return ours != theirs


def main():
    wrong = 0
    presets = sorted((ROOT / "presets" / "models").glob("*.json"))
    with tempfile.TemporaryDirectory() as folder:
        directory = pathlib.Path(folder)
        for case in CASES:
            if TRANSFORMERS_4 and "rope_parameters" in case:
                continue  # it does not read them
            wrong += compare(json.dumps(case), case, directory)
        for path in presets:
            wrong += compare(path.stem, json.loads(path.read_text()), directory)
    for path in presets:
        wrong += count(path)
    print(f"{wrong} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
