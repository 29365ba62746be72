#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/fixtures/mup: steps of mup in PyTorch, float64, as the papers state its rules.

    python3 tools/make_mup_fixtures.py [--check] [CASE...]

The models are those of tests/fixtures/parity, run by transformers. Here the constants of mup and
CompleteP are multipliers of the forward pass: residual branches times m_L^-alpha, attention scores
times sqrt(base / head_dim), logits over m_N (arXiv 2505.01618, table 1; arXiv 2203.03466, table 8).
Orthant makes them part of weights instead (src/step/graph/parametrize.h). The weights of a case are those
of Orthant's form: a parameter starts as weight / constant, and is stored times its constant.

Each CASE.safetensors holds the settings, the loss before each step and `after.NAME`.
"""

import argparse
import math
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig

import make_parity_fixtures as parity

FIXTURES = parity.FIXTURES.parent / "mup"
STEPS, LR, DECAY, EPS, CLIP, MOMENTUM = 3, 4e-3, 0.1, 1e-4, 0.25, 0.95

# hidden_size, layers, head_dim, kv heads, q_lora_rank, kv_lora_rank of the base (0: the model's), alpha.
CASES = {
    "gpt2": (8, 1, 0, 0, 0, 0, 1.0),
    "llama": (12, 1, 4, 0, 0, 0, 1.0),
    "llama-tied-bias": (10, 1, 3, 0, 0, 0, 0.5),
    "gemma2": (12, 1, 0, 0, 0, 0, 0.75),
    "olmo2": (10, 3, 3, 0, 0, 0, 0.5),
    "qwen3": (24, 1, 3, 0, 0, 0, 1.0),
    "qwen2-moe": (10, 1, 5, 0, 0, 0, 1.0),
    "gpt-oss": (10, 1, 3, 0, 0, 0, 0.5),
    "deepseek-v3": (10, 1, 5, 0, 3, 4, 1.0),
    "muon-llama": (12, 1, 4, 2, 0, 0, 0.5),
    "muon-deepseek-v3": (10, 1, 5, 0, 3, 4, 1.0),
}


class Rules:
    def __init__(self, config, case):
        hidden, layers, head, kv_heads, q_rank, kv_rank, self.alpha = case
        self.config = config
        own = config.hidden_size // config.num_attention_heads
        head_dim = getattr(config, "qk_head_dim", None) or getattr(config, "head_dim", None) or own
        self.width = config.hidden_size / hidden
        self.depth = config.num_hidden_layers / layers
        self.head = head_dim / head if head else 1.0
        self.kv = config.num_key_value_heads / kv_heads * self.head if kv_heads else self.width
        self.q_rank = config.q_lora_rank / q_rank if q_rank else 1.0
        self.kv_rank = config.kv_lora_rank / kv_rank if kv_rank else 1.0
        self.branch = self.depth ** -self.alpha
        self.family = config.model_type
        self.post = self.family in ("gemma2", "olmo2")
        self.qk_norm = self.family in ("olmo2", "qwen3")
        self.offset = 1.0 if self.family == "gemma2" else 0.0
        self.embedded = self.width ** -0.5 if self.family == "gemma2" else 1.0

    def constant(self, name):
        """What the outputs of a parameter are multiplied by."""
        if not self.in_layer(name):
            if "lm_head" in name:
                return 1 / self.width
            if name.endswith(("model.norm.weight", "ln_f.weight", "ln_f.bias")):
                return 1 / self.width / self.embedded if self.config.tie_word_embeddings else 1.0
            return self.embedded if name.endswith("embed_tokens.weight") else 1.0
        ends = ("post_attention_layernorm", "post_feedforward_layernorm") if self.post else (
            "o_proj", "down_proj", "c_proj")
        c = self.branch if any(end in name for end in ends) else 1.0
        query = "q_norm" if self.qk_norm else "q_b_proj" if "deepseek" in self.family else "q_proj"
        return c / math.sqrt(self.head) if query in name else c

    def in_layer(self, name):
        return ".layers." in name or ".h." in name

    def apply(self, model):
        """The multipliers of the forward pass."""
        def times(factor):
            def hook(module, inputs, output):
                if isinstance(output, tuple):
                    return (output[0] * factor, *output[1:])
                return output * factor
            return hook

        base = model.transformer.h if self.family == "gpt2" else model.model.layers
        for layer in base:
            if self.post:
                ends = (layer.post_attention_layernorm, layer.post_feedforward_layernorm)
            else:
                ends = (layer.attn if self.family == "gpt2" else layer.self_attn, layer.mlp)
            for module in ends:
                module.register_forward_hook(times(self.branch))
            if self.head != 1.0:
                layer.self_attn.scaling /= math.sqrt(self.head)
        model.lm_head.register_forward_hook(times(1 / self.width))
        if self.embedded != 1.0:
            model.model.embed_tokens.register_forward_hook(times(self.embedded))

    def group(self, name, p):
        """Factors of learning rate, weight decay and epsilon for AdamW."""
        vector = p.dim() < 2 or name.endswith("bias")
        rate, decay, epsilon = 1.0, 0.0 if vector else 1.0, 1 / self.width
        if self.in_layer(name):
            rate *= self.depth ** (self.alpha - 1)
            epsilon *= self.branch
            if not vector:
                wide = self.inputs(name)
                rate, decay = rate / wide, decay * wide
        return rate, decay, epsilon

    def inputs(self, name):
        if "q_b_proj" in name:
            return self.q_rank
        return self.kv_rank if "kv_b_proj" in name else self.width

    def outputs(self, name):
        if "mlp.gate.weight" in name:
            return 1.0
        if "q_a_proj" in name:
            return self.q_rank
        if "kv_a_proj" in name:
            return self.kv_rank
        return self.kv if "k_proj" in name or "v_proj" in name else self.width


def is_matrix(name, p):
    return (".layers." in name) and p.dim() >= 2


class Muon:
    """Momentum, five Newton-Schulz steps, the scale of Moonlight (arXiv 2502.16982) at the base, and
    from there sqrt(O / C) (arXiv 2310.17813). Experts are stacked; gate and up are two matrices."""

    def __init__(self, rules, named):
        self.rules, self.named = rules, [(n, p, torch.zeros_like(p)) for n, p in named]

    def matrices(self, name, tensor):
        stacked = tensor if tensor.dim() == 3 else tensor[None]
        halves = stacked.chunk(2, 1) if "gate_up" in name else (stacked,)
        return [m for half in halves for m in half]

    def step(self):
        for name, p, momentum in self.named:
            momentum.mul_(MOMENTUM).add_(p.grad, alpha=1 - MOMENTUM)
            update = MOMENTUM * momentum + (1 - MOMENTUM) * p.grad
            for w, u in zip(self.matrices(name, p), self.matrices(name, update)):
                self.move(name, w, u)

    def move(self, name, w, u):
        x = u / (u.norm() + 1e-7)
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x - 4.7750 * a @ x + 2.0315 * a @ a @ x
        grown, wide = self.rules.outputs(name), self.rules.inputs(name)
        base = max(w.shape[0] / grown, w.shape[1] / wide)
        spectral = 0.2 * math.sqrt(base) * math.sqrt(grown / wide)
        rate = LR * self.rules.depth ** (self.rules.alpha - 1)
        w.sub_(rate * (spectral * x + DECAY * w))


def optimizers(rules, model, muon):
    named = [(n, p) for n, p in model.named_parameters()]
    groups = []
    for name, p in named:
        if muon and is_matrix(name, p):
            continue
        rate, decay, epsilon = rules.group(name, p)
        groups.append(dict(params=[p], lr=LR * rate, weight_decay=DECAY * decay, eps=EPS * epsilon))
    made = [torch.optim.AdamW(groups, betas=(0.9, 0.95), foreach=False)]
    return made + [Muon(rules, [(n, p) for n, p in named if is_matrix(n, p)])] if muon else made


def rescale(rules, model, factor_of):
    """Multiplies the parameters; a norm's gain includes its offset."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            offset = rules.offset if "norm" in name else 0.0
            value = p + offset if offset else p
            if "c_attn" in name:
                continue  # gpt2: head_dim is that of the base
            p.copy_(value * factor_of(rules.constant(name)) - offset)


def make_case(name, case, check):
    source = parity.FIXTURES / name.removeprefix("muon-")
    saved = load_file(source / "model.safetensors")
    batch = {k: v.long() for k, v in load_file(source / "reference.safetensors").items()
             if k in ("tokens", "targets", "positions", "doc_start")}
    config = AutoConfig.from_pretrained(source)
    rules = Rules(config, case)
    with parity.precision(torch.float64):
        model = parity.build(config)
    parity.copy_weights(model, {k: torch.nn.Parameter(v) for k, v in saved.items()})
    losses, clipped = [], 0
    with parity.precision(torch.float64):
        rescale(rules, model, lambda c: 1 / c)
        rules.apply(model)
        steps = optimizers(rules, model, name.startswith("muon"))
        for _ in range(STEPS):
            model.zero_grad(set_to_none=True)
            loss = parity.loss_of(model, batch, parity.explicit_mask(config, batch))[1]
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP, foreach=False)
            clipped += bool(norm > CLIP)
            with torch.no_grad():
                for step in steps:
                    step.step()
            losses.append(loss.detach())
        rescale(rules, model, lambda c: c)
        after = parity.as_saved(model, {n: p.detach().clone() for n, p in model.named_parameters()})
        after |= parity.saved_buffers(model)
    assert clipped > 0, "clipping must matter"
    tensors = {f"after.{n}": v.double() for n, v in after.items()}
    settings = [*case, LR, DECAY, EPS, CLIP, MOMENTUM]
    tensors |= {"loss": torch.stack(losses),
                "settings": torch.tensor(settings, dtype=torch.float64)}
    FIXTURES.mkdir(exist_ok=True)
    stored = parity.write_or_compare(FIXTURES / f"{name}.safetensors", tensors, check)
    assert stored < 1e-12, f"{name}: the stored file differs by {stored}"
    print(f"{name:18} losses " + " ".join(f"{loss:.6f}" for loss in losses))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name, case in CASES.items():
        if not arguments.cases or name in arguments.cases:
            make_case(name, case, arguments.check)


if __name__ == "__main__":
    main()
