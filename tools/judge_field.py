#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records steps of real models of transformers, sound and with planted faults, has `orthant judge` judge
each, and prints what was found:  judge_field.py ORTHANT [--seeds N] [--only WORD] [--sample N]
  --sample N   every Nth fault, and a quarter of the sound steps

Exit code 1 if a sound step has a finding, or fewer than 95 % of the faults have one, or fewer than 90 % the
right class. Needs torch, transformers and safetensors (tools/judge_field.sh installs them)."""
import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from orthant_record import Recorder  # noqa: E402

IGNORED = -100
COMMON = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, head_dim=8, vocab_size=61, max_position_embeddings=128,
              initializer_range=0.06, rms_norm_eps=1e-5, attn_implementation="eager", pad_token_id=None,
              bos_token_id=None, eos_token_id=None)
EXPERTS = dict(num_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
FAMILIES = {
    "llama": {}, "llama-tied": dict(model_type="llama", tie_word_embeddings=True), "qwen2": {}, "qwen3": {},
    "mistral": dict(sliding_window=7), "olmo2": {}, "smollm3": {}, "phi3": {},
    "gemma2": dict(query_pre_attn_scalar=8, sliding_window=9),
    "gemma3": dict(model_type="gemma3_text", query_pre_attn_scalar=8, sliding_window=9),
    "mixtral": EXPERTS, "qwen3_moe": EXPERTS, "olmoe": EXPERTS,
    "gpt2": dict(n_embd=32, n_layer=2, n_head=4, n_positions=128, n_inner=48, resid_pdrop=0.0, embd_pdrop=0.0,
                 attn_pdrop=0.0),
}
TYPES = ("float32", "bfloat16", "autocast")

# fault: the class that names it; null: none of its own
FAULTS = {
    "sound": None, "half": "factor", "micro_batches": "factor", "means": "mean_of_means",
    "documents": "documents_ignored", "packing": "packing_ignored", "shifted": "labels_shifted_again",
    "unshifted": "labels_not_shifted", "epsilon": "norm_epsilon", "theta": "rope_base", "scale": "attention_scale",
    "zero": "factor_on_some", "norms_halved": "factor_on_some", "stale": "stale_buffer", "one_use": "gradient",
    "turned": "gradient", "nan": "not_finite", "decay": "update_decay", "rate": "update_rate",
    "betas": "update_moments", "after": "update", "norm_short": "norm_lacks", "norm_twice": "norm_factor",
    "clip_apart": "clip_differs", "clip_missing": "clip",
}
EXACT = ("float32",)  # the types in which these small faults are certain to show
SMALL = {"epsilon", "theta", "scale"}


def config_of(family, theta=None):
    own = dict(COMMON, **FAMILIES[family])
    kind = own.pop("model_type", family)
    if theta:
        own["rope_theta"] = theta
        own["rope_parameters"] = {"rope_type": "default", "rope_theta": theta}
    return AutoConfig.for_model(kind, **own)


def model_of(config, dtype, seed):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p.add_(0.1 * torch.randn_like(p))
            p.copy_(p.to(torch.bfloat16))
    return model.to(dtype)


def batches(vocabulary, seed, count=3, rows=2, tokens=24):
    g = torch.Generator().manual_seed(seed)
    for i in range(count):
        ids = torch.randint(0, vocabulary, (rows, tokens), generator=g)
        ids[:, 2::3] = ids[:, 1::3]
        border = torch.randint(4, tokens - 4, (rows, 1), generator=g)
        at = torch.arange(tokens).expand(rows, tokens)
        labels = torch.cat([ids[:, 1:], ids[:, :1]], 1)
        labels[(at == border - 1) | (at == tokens - 1)] = IGNORED
        labels[torch.rand((rows, tokens), generator=g) < 0.2 * i] = IGNORED
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


def plant_in_model(fault, model):
    for module in model.modules():
        for name in ("variance_epsilon", "eps", "epsilon"):
            if fault == "epsilon" and isinstance(getattr(module, name, None), float):
                setattr(module, name, getattr(module, name) * 100)
        if fault == "scale" and isinstance(getattr(module, "scaling", None), float):
            module.scaling *= 1.2
    if fault == "one_use":
        model.get_input_embeddings().register_forward_hook(lambda m, i, o: o.detach())


def plant_in_gradients(fault, model):
    named = [(n, p) for n, p in model.named_parameters() if p.grad is not None]
    vectors = [p for _, p in named if p.ndim == 1]
    matrices = [p for n, p in named if p.ndim == 2 and ".0." in n]
    if fault == "zero":
        vectors[0].grad.zero_()
    if fault == "norms_halved":
        for p in vectors:
            p.grad.mul_(0.5)
    if fault == "stale":
        matrices[0].grad.add_(matrices[0].detach())
    if fault == "turned":
        matrices[1].grad.copy_(matrices[1].grad.flip(0))
    if fault == "nan":
        matrices[0].grad[0, 0] = float("nan")


def clip(fault, model, limit):
    grads = [(n, p.grad) for n, p in model.named_parameters() if p.grad is not None]
    square = sum(g.double().square().sum().item() for _, g in grads)
    norm = square ** 0.5
    if fault == "norm_short":
        least = min((g.double().square().sum().item(), n) for n, g in grads if g.ndim == 2 and ".1." in n)
        norm = (square - max(g.double().square().sum().item() for n, g in grads if g.ndim == 2)) ** 0.5 or least
    if fault == "norm_twice":
        norm *= 2
    for i, (_, g) in enumerate(grads):
        if fault != "clip_missing":
            g.mul_(min(1.0, limit / (norm + 1e-6)) * (0.7 if fault == "clip_apart" and i % 2 else 1))
    return norm


def record(out, family, type_, fault, seed):
    autocast = type_ == "autocast"
    dtype = torch.float32 if autocast else getattr(torch, type_)
    config = config_of(family)
    stated = config_of(family, theta=9000.0) if fault == "theta" else config
    model = model_of(config, dtype, seed)
    plant_in_model(fault, model)
    parameters = list(model.parameters())
    beta2 = 0.999 if fault == "betas" else 0.95
    groups = [{"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.1},
              {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.1 if fault == "decay" else 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2 * (2 if fault == "rate" else 1), betas=(0.9, beta2), eps=1e-8,
                                  foreach=False)
    rec = Recorder(out, model, stated, note=f"{family} {type_} {fault} {seed}")
    rec.weights()
    parts = list(batches(config.vocab_size, seed))
    shift = {"shifted": 1, "unshifted": -1}.get(fault, 0)
    used = [turned(b["labels"], shift) if shift else b["labels"] for b in parts]
    total, loss = sum((u != IGNORED).sum().item() for u in used), 0.0
    for b, labels in zip(parts, used):
        rec.batch(b["ids"], b["labels"], b["positions"], b["documents"], shifted=True)
        documents = torch.zeros_like(b["documents"]) if fault in ("documents", "packing") else b["documents"]
        positions = b["at"] if fault == "packing" else b["positions"]
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = model(input_ids=b["ids"], attention_mask=attention_mask(config, documents, dtype),
                           position_ids=positions, use_cache=False).logits.float()
        nats = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED,
                                                 reduction="sum")
        count = (labels != IGNORED).sum().item()
        scale = 1 / (count * len(parts)) if fault == "means" else 1 / total
        scale *= {"half": 0.5, "micro_batches": 1 / len(parts)}.get(fault, 1)
        (nats * scale).backward()
        loss += nats.item() * (scale if fault == "means" else 1 / total)
    plant_in_gradients(fault, model)
    rec.grads()
    rec.scalar(loss=loss, norm=clip(fault, model, 0.5), clip=0.5)
    optimizer.step()
    if fault == "after":
        with torch.no_grad():
            parameters[3].add_(1e-2 * torch.randn_like(parameters[3]))
    rec.after(optimizer)
    for group, decay in zip(rec.meta["optimizer"]["groups"], (0.1, 0.0)):
        group["settings"].update(weight_decay=decay, lr=1e-2, betas=[0.9, 0.95])
    rec.close()


def applies(family, type_, fault):
    tied = config_of(family).tie_word_embeddings
    if fault == "one_use":
        return tied
    if family == "gpt2" and fault in ("theta", "scale", "epsilon"):
        return fault == "epsilon"
    if family in ("gemma2", "gemma3", "gpt2") and fault == "theta":
        return False
    return fault not in SMALL or type_ in EXACT


def judge(orthant, folder):
    done = subprocess.run([orthant, "judge", folder, "--json"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        return None, f"exit code {done.returncode}: {done.stderr.strip()}"
    return json.loads(done.stdout), ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("orthant")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--sample", type=int, default=1)
    a = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    work = tempfile.mkdtemp()
    sums, listed = collections.Counter(), collections.Counter()
    every = {"sound": 1 if a.sample == 1 else len(TYPES) + 1, "fault": a.sample}
    for family in FAMILIES:
        for type_ in TYPES:
            for fault, wanted in FAULTS.items():
                for seed in range(a.seeds):
                    name = f"{family} {type_} {fault} {seed}"
                    if a.only not in name or not applies(family, type_, fault):
                        continue
                    kind = "sound" if fault == "sound" else "fault"
                    listed[kind] += 1
                    if listed[kind] % every[kind]:
                        continue
                    folder = os.path.join(work, "record")
                    shutil.rmtree(folder, ignore_errors=True)
                    record(folder, family, type_, fault, 17 + seed)
                    report, error = judge(a.orthant, folder)
                    found = [f["what"] for f in report["findings"]] if report else []
                    sums[kind] += 1
                    sums[f"{kind} unread"] += report is None
                    sums[f"{kind} found"] += bool(found)
                    sums["named"] += wanted in found if wanted else 0
                    sums[f"{kind} inconclusive"] += bool(report) and report["verdict"] == "inconclusive"
                    right = not found and report if fault == "sound" else wanted in found
                    if not right:
                        print(f"{name}: {error or ', '.join(found) or report['verdict']}", flush=True)
    shutil.rmtree(work)
    print(f"sound steps {sums['sound']}: {sums['sound found']} with a finding, {sums['sound inconclusive']} "
          f"inconclusive, {sums['sound unread']} not read")
    print(f"faults {sums['fault']}: {sums['fault found']} found, {sums['named']} with the right class, "
          f"{sums['fault unread']} not read")
    wrong = sums["sound found"] + sums["sound unread"]
    return wrong > 0 or sums["fault found"] < 0.95 * sums["fault"] or sums["named"] < 0.9 * sums["fault"]


if __name__ == "__main__":
    sys.exit(main())
