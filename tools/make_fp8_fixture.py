#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/fixtures/fp8: a small model whose matrices are e4m3 with a scale for each block.

  tools/make_fp8_fixture.py      needs torch and safetensors; not part of `check`

model.safetensors stores them as on the Hugging Face hub (NAME and NAME_scale_inv), with blocks that do
not divide the shapes and, in one layer, scales of bf16; expected.safetensors stores the fp32 values
that torch dequantises from them.
"""
import json
import pathlib

import torch
from safetensors.torch import load_file, save_file

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures"
BLOCK = (16, 8)
LARGEST = 448.0  # of e4m3


def quantise(weight, scale_type):
    rows, cols = weight.shape
    high, wide = -(-rows // BLOCK[0]), -(-cols // BLOCK[1])
    scales = torch.empty(high, wide, dtype=scale_type)
    stored = torch.empty(rows, cols, dtype=torch.float8_e4m3fn)
    for i in range(high):
        for j in range(wide):
            at = (slice(i * BLOCK[0], (i + 1) * BLOCK[0]), slice(j * BLOCK[1], (j + 1) * BLOCK[1]))
            scales[i, j] = (weight[at].abs().max() / LARGEST).to(scale_type)
            scaled = (weight[at] / scales[i, j].float()).clamp(-LARGEST, LARGEST)
            stored[at] = scaled.to(torch.float8_e4m3fn)
    return stored, scales


def dequantise(stored, scales):
    rows, cols = stored.shape
    spread = scales.float().repeat_interleave(BLOCK[0], 0).repeat_interleave(BLOCK[1], 1)
    return stored.float() * spread[:rows, :cols]


def every_value(shape):
    """All e4m3 values but NaN, repeated."""
    codes = [code for code in range(256) if code & 127 != 127]
    count = shape[0] * shape[1]
    bits = torch.tensor((codes * (count // len(codes) + 1))[:count], dtype=torch.uint8)
    return bits.view(torch.float8_e4m3fn).reshape(shape)


def main():
    source = FIXTURES / "parity" / "llama"
    directory = FIXTURES / "fp8"
    directory.mkdir(exist_ok=True)
    weights, files, expected = load_file(source / "model.safetensors"), {}, {}
    for name, weight in weights.items():
        files[name] = weight.to(torch.bfloat16)
        expected[name] = files[name].float()
        if "_proj." not in name:
            continue
        scale_type = torch.bfloat16 if ".layers.1." in name else torch.float32
        files[name], files[name + "_scale_inv"] = quantise(weight, scale_type)
        if "layers.0.mlp.up_proj" in name:
            files[name] = every_value(weight.shape)
        expected[name] = dequantise(files[name], files[name + "_scale_inv"])
    config = json.loads((source / "config.json").read_text())
    config["dtype"] = "bfloat16"
    config["quantization_config"] = {"activation_scheme": "dynamic", "fmt": "e4m3",
                                     "modules_to_not_convert": ["lm_head"], "quant_method": "fp8",
                                     "weight_block_size": list(BLOCK)}
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(files, directory / "model.safetensors", metadata={"format": "pt"})
    save_file(expected, directory / "expected.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
