#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of a model in PyTorch on a GPU, as a baseline for bench/gpu_step.

    python3 bench/pytorch_gpu_step.py --model bench/models/qwen2.5-1.5b.json --sequence 1024 \
        --micro-batch 16 --micro-batches 32

The model is built from its config.json (gpt2, llama, qwen2, qwen3 without experts), with random
weights. Same precision as Orthant: bf16 weights and activations, fp32 masters, moments and
gradient accumulators. torch.compile, scaled_dot_product_attention (cuDNN, else flash), fused AdamW,
clipping. --head chunked computes the loss in parts, so that the logits are never whole.

Prints one JSON object. `state_bytes` are weights, accumulators, masters and moments; `peak_bytes` is
the most that tensors held during the timed steps, `beyond_bytes` = peak - state.
"""

import argparse
import contextlib
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

CHUNK = 4096  # rows of logits at once, with --head chunked


class Shape:
    """What the model's config.json says, by one set of names."""

    def __init__(self, path):
        with open(path) as file:
            c = json.load(file)
        self.kind = c["model_type"]
        if self.kind not in ("gpt2", "llama", "qwen2", "qwen3"):
            raise SystemExit(f"error: {path}: model_type {self.kind}; known: gpt2, llama, qwen2, qwen3")
        gpt2 = self.kind == "gpt2"
        self.width = c["n_embd" if gpt2 else "hidden_size"]
        self.layers = c["n_layer" if gpt2 else "num_hidden_layers"]
        self.heads = c["n_head" if gpt2 else "num_attention_heads"]
        self.kv_heads = c.get("num_key_value_heads") or self.heads
        self.head_dim = c.get("head_dim") or self.width // self.heads
        self.inner = (c.get("n_inner") or 4 * self.width) if gpt2 else c["intermediate_size"]
        self.vocabulary = c["vocab_size"]
        self.positions = c.get("n_positions", 0)
        self.epsilon = c.get("layer_norm_epsilon" if gpt2 else "rms_norm_eps", 1e-5)
        self.theta = c.get("rope_theta", 10000.0)
        self.qkv_bias = gpt2 or self.kind == "qwen2" or c.get("attention_bias", False)
        self.bias = gpt2
        self.tied = c.get("tie_word_embeddings", gpt2)


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.qkv = nn.Linear(s.width, (s.heads + 2 * s.kv_heads) * s.head_dim, bias=s.qkv_bias)
        self.out = nn.Linear(s.heads * s.head_dim, s.width, bias=s.bias)
        if s.kind == "qwen3":
            self.q_norm = nn.RMSNorm(s.head_dim, eps=s.epsilon)
            self.k_norm = nn.RMSNorm(s.head_dim, eps=s.epsilon)

    def forward(self, x, cos, sin):
        s, (B, T, _) = self.s, x.shape
        sizes = [s.heads * s.head_dim, s.kv_heads * s.head_dim, s.kv_heads * s.head_dim]
        q, k, v = (part.view(B, T, -1, s.head_dim).transpose(1, 2)
                   for part in self.qkv(x).split(sizes, dim=-1))
        if s.kind == "qwen3":
            q, k = self.q_norm(q), self.k_norm(k)
        if cos is not None:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                           enable_gqa=s.heads != s.kv_heads)
        return self.out(y.transpose(1, 2).reshape(B, T, -1))


class Mlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.glu = s.kind != "gpt2"
        self.up = nn.Linear(s.width, (2 if self.glu else 1) * s.inner, bias=s.bias)
        self.down = nn.Linear(s.inner, s.width, bias=s.bias)

    def forward(self, x):
        h = self.up(x)
        if not self.glu:
            return self.down(F.gelu(h, approximate="tanh"))
        gate, up = h.chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, s, head):
        super().__init__()
        self.s, self.head = s, head
        norm = nn.LayerNorm if s.kind == "gpt2" else nn.RMSNorm
        self.tokens = nn.Embedding(s.vocabulary, s.width)
        self.places = nn.Embedding(s.positions, s.width) if s.kind == "gpt2" else None
        self.blocks = nn.ModuleList(
            nn.ModuleList((norm(s.width, eps=s.epsilon), Attention(s),
                           norm(s.width, eps=s.epsilon), Mlp(s))) for _ in range(s.layers))
        self.norm = norm(s.width, eps=s.epsilon)
        self.logits = nn.Linear(s.width, s.vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        if s.tied:
            self.logits.weight = self.tokens.weight

    def loss_of(self, x, targets):
        return F.cross_entropy(self.logits(x).float(), targets, reduction="sum")

    def forward(self, tokens, targets, cos, sin):
        x = self.tokens(tokens)
        if self.places is not None:
            x = x + self.places.weight[:tokens.shape[1]]
        for norm_1, attention, norm_2, mlp in self.blocks:
            x = x + attention(norm_1(x), cos, sin)
            x = x + mlp(norm_2(x))
        x, targets = self.norm(x).flatten(0, 1), targets.flatten()
        if self.head == "plain":
            return self.loss_of(x, targets)
        return sum(checkpoint(self.loss_of, part, wanted, use_reentrant=False)
                   for part, wanted in zip(x.split(CHUNK), targets.split(CHUNK)))


def rope_tables(s, sequence, device):
    if s.kind == "gpt2":
        return None, None
    pairs = torch.arange(0, s.head_dim, 2, device=device, dtype=torch.float64) / s.head_dim
    angles = torch.outer(torch.arange(sequence, device=device, dtype=torch.float64),
                         s.theta ** -pairs)
    return angles.cos().float(), angles.sin().float()


def bf16_weights(model):
    """bf16 weights with fp32 masters, whose .grad are the accumulators: added to as soon as a
    gradient of the weight is complete, then that is freed."""
    weights = list(model.parameters())
    masters = [w.detach().clone() for w in weights]
    model.bfloat16()
    for weight, master in zip(weights, masters):
        master.grad = torch.zeros_like(master)

        def add(w, accumulator=master.grad):
            accumulator.add_(w.grad)
            w.grad = None

        weight.register_post_accumulate_grad_hook(add)
    return weights, masters


def attention_choice(device):
    if device != "cuda":
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True)


class Training:
    def __init__(self, a):
        torch.manual_seed(1)
        s = Shape(a.model)
        self.device = a.device
        with torch.device(a.device):
            model = Model(s, a.head)
            self.weights, self.masters = bf16_weights(model)
            shape = (a.micro_batches, a.micro_batch, a.sequence)
            self.tokens = torch.randint(s.vocabulary, shape)
            self.targets = torch.randint(s.vocabulary, shape)
        self.tables = rope_tables(s, a.sequence, a.device)
        self.loss_of = model if a.eager else torch.compile(model)
        self.optimizer = torch.optim.AdamW(self.masters, lr=1e-4, betas=(0.9, 0.95),
                                           weight_decay=0.1, fused=True)
        self.parameters = sum(m.numel() for m in self.masters)

    def state_bytes(self):
        return 18 * self.parameters

    def step(self):
        for master in self.masters:
            master.grad.zero_()
        total = torch.zeros((), device=self.device)
        for tokens, targets in zip(self.tokens, self.targets):
            loss = self.loss_of(tokens, targets, *self.tables) / self.tokens.numel()
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0, foreach=True)
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(self.weights, self.masters)
        return total.item()  # waits


def measure(a):
    training = Training(a)
    for _ in range(a.warmup):
        loss = training.step()
    if a.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(a.repeats):
        begin = time.perf_counter()
        loss = training.step()
        times.append(time.perf_counter() - begin)
    peak = torch.cuda.max_memory_allocated() if a.device == "cuda" else 0
    reserved = torch.cuda.max_memory_reserved() if a.device == "cuda" else 0
    tokens = training.tokens.numel()
    step_s = statistics.median(times)
    return {"program": "pytorch " + torch.__version__,
            "variant": ("eager" if a.eager else "compile") + f", {a.head} head",
            "tokens": tokens, "parameters": training.parameters, "steps_s": times, "step_s": step_s,
            "tokens_per_s": tokens / step_s, "loss": loss, "state_bytes": training.state_bytes(),
            "peak_bytes": peak, "reserved_bytes": reserved,
            "beyond_bytes": max(0, peak - training.state_bytes())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a config.json")
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--head", choices=("plain", "chunked"), default="plain")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    a = parser.parse_args()
    with attention_choice(a.device):
        print(json.dumps(measure(a)), flush=True)


if __name__ == "__main__":
    main()
