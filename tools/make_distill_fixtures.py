#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/fixtures/distill_model: a small model of transformers that learns from a teacher, in
float64, by each objective of distillation as PyTorch writes it.

config.json and model.safetensors are the student's. reference.safetensors holds a micro-batch with
packed documents and, for each objective, the weighted targets that stand for it, the loss, the sum of
the data's loss and the gradient of every parameter.

    python3 tools/make_distill_fixtures.py      (torch, transformers, numpy, safetensors)
"""

import json

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import AutoConfig

import make_parity_fixtures as parity

OUT = parity.FIXTURES.parent / "distill_model"
T, DRAWS, IDS, KEPT, PROMPT, SHARE = 16, 20, 18, 5, 6, 0.75
DOCUMENTS = [[5, 11], [16]]
CONFIG = dict(model_type="llama", vocab_size=61, hidden_size=16, intermediate_size=20,
              num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6,
              max_position_embeddings=64, rope_parameters=parity.rope(1e4), pad_token_id=None,
              bos_token_id=None, eos_token_id=None)


def log_p(model, batch):
    """[B * T, V]"""
    logits = parity.logits_of(model, batch, parity.explicit_mask(model.config, batch))
    return F.log_softmax(logits.flatten(0, 1), 1)


def narrow(weights):
    """Weights are stored in float32."""
    return torch.from_numpy(weights.numpy().astype(np.float32).astype(np.float64))


def sampled(teacher, random):
    """Cross entropy, averaged over the draws of each token; its ids and counts."""
    draws = torch.multinomial(teacher.exp(), DRAWS, replacement=True, generator=random)
    counts = torch.stack([torch.bincount(row, minlength=teacher.shape[1]) for row in draws])
    ids = counts.argsort(dim=1, descending=True, stable=True)[:, :IDS]
    weights = narrow(counts.gather(1, ids) / DRAWS)
    assert bool((counts.gather(1, ids).sum(1) == DRAWS).all()), "more ids than IDS"
    share = narrow(torch.arange(DRAWS + 1) / DRAWS).tolist()

    def loss(p):
        each = [counts[r].nonzero().flatten().tolist() for r in range(len(draws))]
        return torch.stack([sum(share[counts[r, v]] * F.cross_entropy(p[r], torch.tensor(v))
                                for v in each[r]) for r in range(len(draws))])

    return loss, ids, weights


def objectives(student, teacher, batch):
    """name -> (loss of each row by log p, ids, weights)."""
    random = torch.Generator().manual_seed(1)
    targets = batch["targets"].flatten().clamp(min=0)
    data = lambda p: F.cross_entropy(p, targets, reduction="none")
    draws, ids, weights = sampled(teacher, random)
    part, rest = narrow(SHARE * weights), torch.full((len(ids), 1), 1 - SHARE)
    mixed = lambda p: -(part * p.gather(1, ids)).sum(1) + (1 - SHARE) * data(p)
    kept, top = teacher.exp().topk(KEPT, 1)
    # On-policy: the row's own token; within the prompt the data's share alone.
    written = (torch.arange(len(ids)) % T >= PROMPT - 1)
    opinion = (teacher - student).gather(1, targets[:, None]).flatten()
    signed = narrow(torch.where(written, SHARE * opinion, torch.tensor(1 - SHARE)))
    assert bool((signed < 0).any()) and bool((signed > 0).any())
    return {
        "sampled": (draws, ids, weights),
        "mixed": (mixed, torch.cat([ids, targets[:, None]], 1), torch.cat([part, rest], 1)),
        "top_k": (lambda p: -(narrow(kept) * p.gather(1, top)).sum(1), top, narrow(kept)),
        "reverse_kl": (lambda p: signed * data(p), targets[:, None], signed[:, None]),
    }


def models(config):
    """Student and teacher in float64, and the student's weights as saved."""
    exact, saved = [], []
    for name in ("distill-student", "distill-teacher"):
        model = parity.build(config)
        parity.make_weights(name, model)
        saved.append({n: p.data for n, p in model.named_parameters()})
        with parity.precision(torch.float64):
            exact.append(parity.build(config))
        parity.copy_weights(exact[-1], saved[-1])
    return exact, saved[0]


def learn(student, batch, name, objective):
    """Tensors of the reference of one objective."""
    loss, ids, weights = objective
    targets = batch["targets"].flatten()
    kept = targets != parity.MASKED
    student.zero_grad(set_to_none=True)
    p = log_p(student, batch)
    mean = loss(p)[kept].sum() / kept.sum()
    mean.backward()
    data = F.cross_entropy(p[kept], targets[kept], reduction="sum")
    found = {"ids": ids.to(torch.int32), "weights": weights, "loss": mean.detach().reshape(1),
             "data_loss": data.detach().reshape(1)}
    found |= {f"grad.{n}": q.grad.clone() for n, q in student.named_parameters()}
    return {f"{name}.{n}": t.contiguous() for n, t in found.items()}


def main():
    config = AutoConfig.for_model(**CONFIG)
    batch = parity.make_batch("distill", CONFIG["vocab_size"], T, DOCUMENTS)
    tensors = {key: value.to(torch.int32) for key, value in batch.items()}
    (student, teacher), saved = models(config)
    with parity.precision(torch.float64):
        with torch.no_grad():
            known = log_p(student, batch), log_p(teacher, batch)
        for name, objective in objectives(*known, batch).items():
            tensors |= learn(student, batch, name, objective)
    OUT.mkdir(exist_ok=True)
    save_file(saved, OUT / "model.safetensors", metadata={"format": "pt"})
    save_file(tensors, OUT / "reference.safetensors", metadata={"format": "pt"})
    keys = dict(CONFIG, architectures=["LlamaForCausalLM"], torch_dtype="float32")
    (OUT / "config.json").write_text(json.dumps(keys, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
