#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seconds and memory of one training step of GPT-2 124M in PyTorch, as a baseline for bench/step.

float32, random weights, forward + backward + AdamW(fused=True), model compiled with torch.compile
(default) or not (--eager). Optional: needs PyTorch 2.x, and torch.compile a C++ compiler.

    python3 bench/pytorch_step.py                          # all configurations, one process each
    python3 bench/pytorch_step.py --batch 4 --sequence 64  # one configuration in this process
    python3 bench/pytorch_step.py --serve ...              # one step per input line (compare.py)

Prints one JSON object per line. `seconds_per_step` is the median, `seconds_min` the fastest step;
`cpu_seconds_per_step`, summed over threads, shows how much of that other processes took.
`peak_bytes` is the highest resident size during the timed steps, `warmup_peak_bytes` before them
(with compilation in this process), `state_bytes` = parameters + gradients + two moments,
`runtime_bytes` = resident size with PyTorch imported and nothing else, `beyond_bytes` = peak -
state, `beyond_tensors_bytes` = that without the runtime.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

CONFIGURATIONS = [(4, 1024), (1, 1024), (4, 64), (16, 256)]
VOCABULARY, POSITIONS, LAYERS, HEADS, WIDTH = 50257, 1024, 12, 12, 768


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, HEADS, C // HEADS).transpose(1, 2)
                   for part in self.qkv(self.ln_1(x)).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


class TransformersGPT2(nn.Module):
    """The same from transformers, with its fastest attention."""

    def __init__(self):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel
        config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
        config._attn_implementation = "sdpa"
        self.model = GPT2LMHeadModel(config)

    def forward(self, tokens, targets):
        logits = self.model(tokens).logits
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


def resident_bytes(field):
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(field))
    return int(line.split()[1]) * 1024


def forget_peak():
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass  # then the peak includes the warm-up


def make_step(arguments):
    torch.manual_seed(1)
    model = TransformersGPT2() if arguments.transformers else GPT2()
    state_bytes = 4 * sum(p.numel() * p.element_size() for p in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95),
                                  weight_decay=0.1, fused=True)
    shape = (arguments.batch, arguments.sequence)
    tokens, targets = torch.randint(VOCABULARY, shape), torch.randint(VOCABULARY, shape)
    loss_of = model if arguments.eager else torch.compile(model, mode=arguments.mode)

    def step():
        begin, cpu = time.perf_counter(), time.process_time()
        loss = loss_of(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        return time.perf_counter() - begin, time.process_time() - cpu

    return step, state_bytes


def run(arguments):
    torch.set_num_threads(arguments.threads)
    runtime_bytes = resident_bytes("VmRSS")
    step, state_bytes = make_step(arguments)
    for _ in range(arguments.warmup):
        step()
    warmup_peak = resident_bytes("VmHWM")
    forget_peak()
    times = []
    if arguments.serve:
        print("ready", flush=True)
        for _ in sys.stdin:
            times.append(step())
            print(json.dumps({"seconds": times[-1][0]}), flush=True)
    else:
        times = [step() for _ in range(arguments.repeats)]
    peak = resident_bytes("VmHWM")
    seconds = [wall for wall, _ in times]
    print(json.dumps({
        "program": "pytorch " + torch.__version__,
        "variant": ("transformers " if arguments.transformers else "") +
                   ("eager" if arguments.eager else f"compile {arguments.mode}"),
        "threads": arguments.threads, "batch_size": arguments.batch,
        "sequence_length": arguments.sequence, "tokens": arguments.batch * arguments.sequence,
        "seconds_per_step": statistics.median(seconds), "seconds_min": min(seconds),
        "cpu_seconds_per_step": statistics.median(cpu for _, cpu in times),
        "seconds": seconds, "peak_bytes": peak, "state_bytes": state_bytes,
        "runtime_bytes": runtime_bytes, "beyond_bytes": peak - state_bytes,
        "beyond_tensors_bytes": peak - state_bytes - runtime_bytes,
        "warmup_peak_bytes": warmup_peak,
    }), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int)
    parser.add_argument("--sequence", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--mode", default="default", help="of torch.compile")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--transformers", action="store_true", help="GPT2LMHeadModel instead")
    parser.add_argument("--serve", action="store_true")
    arguments = parser.parse_args()
    if arguments.batch:
        return run(arguments)
    for batch, sequence in CONFIGURATIONS:
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--batch", str(batch),
                        "--sequence", str(sequence)], check=True)


if __name__ == "__main__":
    main()
