#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Causal attention of PyTorch (cuDNN, flash) on a GPU, forward and backward, for bench/gpu_ops.

    python3 bench/pytorch_attention.py [--tokens 16384] [--shortest 1024] [--width 2048]

Prints one JSON array: for each sequence length and head size, and each back end, the median seconds
of forward, backward and deterministic backward. A back end that refuses a case has `error`.
"""

import argparse
import json
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
            "math": SDPBackend.MATH}


def seconds_of(run, repeats, device):
    """Median of `repeats` times, by events on a GPU."""
    import time
    times = []
    for i in range(repeats + 2):
        if device == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            end.synchronize()
            elapsed = begin.elapsed_time(end) * 1e-3
        else:
            start = time.perf_counter()
            run()
            elapsed = time.perf_counter() - start
        if i >= 2:
            times.append(elapsed)
    return statistics.median(times)


def measure(backend, shape, a):
    q, k, v = (torch.randn(shape, device=a.device, dtype=torch.bfloat16).transpose(1, 2)
               .detach().requires_grad_() for _ in range(3))

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    result = {}
    with sdpa_kernel(backend):
        result["forward_s"] = seconds_of(forward, a.repeats, a.device)
        for name, deterministic in (("backward_s", False), ("deterministic_backward_s", True)):
            torch.use_deterministic_algorithms(deterministic, warn_only=True)
            y = forward()
            dy = torch.randn_like(y)

            def backward():
                torch.autograd.grad(y, (q, k, v), dy, retain_graph=True)

            result[name] = seconds_of(backward, a.repeats, a.device)
            torch.use_deterministic_algorithms(False)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--shortest", type=int, default=1024)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    a = parser.parse_args()
    names = ("cudnn", "flash") if a.device == "cuda" else ("math",)
    results, T = [], a.shortest
    while T <= a.tokens:
        for head_dim in (64, 128):
            shape = (a.tokens // T, T, a.width // head_dim, head_dim)
            entry = {"sequence": T, "head_dim": head_dim}
            for name in names:
                try:
                    entry[name] = measure(BACKENDS[name], shape, a)
                except RuntimeError as error:
                    entry[name] = {"error": str(error).splitlines()[0]}
            results.append(entry)
        T *= 2
    print(json.dumps(results))


if __name__ == "__main__":
    main()
