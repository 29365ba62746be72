# SPDX-License-Identifier: Apache-2.0
"""Small models of transformers, batches with documents and unequal numbers of targets, and their losses."""
import torch
from transformers import AutoConfig, AutoModelForCausalLM

IGNORED = -100
COMMON = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, head_dim=8, vocab_size=61, max_position_embeddings=128,
              initializer_range=0.06, rms_norm_eps=1e-5, attn_implementation="eager", pad_token_id=None,
              bos_token_id=None, eos_token_id=None)
EXPERTS = dict(num_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
LATENT = dict(q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8, head_dim=4,
              num_key_value_heads=4, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, n_group=2,
              topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.5, moe_intermediate_size=16,
              first_k_dense_replace=1)
FAMILIES = {
    "llama": {}, "llama-tied": dict(model_type="llama", tie_word_embeddings=True), "qwen2": {}, "qwen3": {},
    "mistral": dict(sliding_window=7), "olmo2": {}, "smollm3": {}, "phi3": {},
    "gemma2": dict(query_pre_attn_scalar=8, sliding_window=9),
    "gemma3": dict(model_type="gemma3_text", query_pre_attn_scalar=8, sliding_window=9),
    "mixtral": EXPERTS, "qwen3_moe": EXPERTS, "olmoe": EXPERTS, "deepseek_v3": LATENT,
    "gpt2": dict(n_embd=32, n_layer=2, n_head=4, n_positions=128, n_inner=48, resid_pdrop=0.0, embd_pdrop=0.0,
                 attn_pdrop=0.0),
}


def config_of(family, theta=None, **changes):
    own = dict(COMMON, **FAMILIES[family], **changes)
    kind = own.pop("model_type", family)
    if theta:
        own["rope_theta"] = theta
        own["rope_parameters"] = {"rope_type": "default", "rope_theta": theta}
    return AutoConfig.for_model(kind, **own)


def model_of(config, dtype, seed):
    """The same weights in every type: those that bf16 can hold. Norms are away from 1."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p.add_(0.1 * torch.randn_like(p))
            p.copy_(p.to(torch.bfloat16))
    return model.to(dtype)


def batches(vocabulary, seed, count=3, rows=2, tokens=24, documents=True):
    """Micro-batches, each with fewer targets than the one before; labels[t] is the id that token t predicts."""
    g = torch.Generator().manual_seed(seed)
    for i in range(count):
        ids = torch.randint(0, vocabulary, (rows, tokens), generator=g)
        ids[:, 2::3] = ids[:, 1::3]
        border = torch.randint(4, tokens - 4, (rows, 1), generator=g)
        at = torch.arange(tokens).expand(rows, tokens)
        if not documents:
            border = torch.full((rows, 1), tokens)
        labels = torch.cat([ids[:, 1:], ids[:, :1]], 1)
        labels[(at == border - 1) | (at == tokens - 1)] = IGNORED
        labels[torch.rand((rows, tokens), generator=g) < 0.6 * i / count] = IGNORED
        yield {"ids": ids, "labels": labels, "positions": torch.where(at >= border, at - border, at),
               "documents": (at >= border).long(), "at": at}


def mask_of(config, documents, dtype, layer_kind):
    length = documents.shape[1]
    ones = torch.ones(length, length, dtype=torch.bool)
    seen = (documents[:, :, None] == documents[:, None, :]) & ones.tril()
    window = getattr(config, "sliding_window", None)
    if layer_kind == "sliding_attention" and window:
        seen &= ones.triu(1 - window)
    return torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)[:, None]


def attention_mask(config, documents, dtype):
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if config.model_type == "mistral":  # transformers: one window for all layers, no layer types
        kinds = {"sliding_attention"}
    masks = {kind: mask_of(config, documents, dtype, kind) for kind in kinds | {"full_attention"}}
    return masks if len(kinds) > 1 else masks[next(iter(kinds))]


def turned(labels, by):
    return torch.roll(labels, -by, 1).masked_fill(
        (torch.arange(labels.shape[1]) == (labels.shape[1] - 1 if by > 0 else 0)), IGNORED)


def nats_of(logits, labels):
    """The sum of the losses of all targets."""
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED,
                                             reduction="sum")


def targets_in(labels):
    return (labels != IGNORED).sum().item()


def adamw(model, decay_of_vectors=0.0, rate=1e-2, beta2=0.95):
    parameters = list(model.parameters())
    return torch.optim.AdamW([{"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.1},
                              {"params": [p for p in parameters if p.ndim < 2], "weight_decay": decay_of_vectors}],
                             lr=rate, betas=(0.9, beta2), eps=1e-8, foreach=False)


def state_settings(rec):
    """What the run meant, whatever the optimizer did."""
    for group, decay in zip(rec.meta["optimizer"]["groups"], (0.1, 0.0)):
        group["settings"].update(weight_decay=decay, lr=1e-2, betas=[0.9, 0.95])
