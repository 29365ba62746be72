#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the figure of docs/distill.md: what a student loses that learns the teacher's most probable
tokens only. A teacher is trained on a text; one student for each number of stored tokens learns
from it by draws and by top-k; all students read the same tokens, in the same order, from the same weights.
  tools/distill_bias.py ORTHANT TEXT OUT.svg        takes some minutes; nothing depends on the machine's load
"""
import json
import pathlib
import subprocess
import sys
import tempfile

STORED = (2, 4, 8, 16)
TRAINED, HELD = 300000, 40000  # bytes of the text
RUN = """
model: {{model_type: llama, vocab_size: 257, hidden_size: {width}, intermediate_size: {inner}, num_hidden_layers: {layers},
  num_attention_heads: 4, max_position_embeddings: 64}}
data: {{train: train, validation: held, tokenizer: bytes, sequence_length: 64}}
batch: {{global_batch_size: 16, micro_batch_size: 16}}
optimizer: {{lr: 3e-3}}
steps: {steps}
threads: 1
device: cpu
checkpoint: {{every: 0, keep: 1}}
output: {output}
"""


def orthant(*words):
    subprocess.run([program, *map(str, words)], cwd=folder, check=True, capture_output=True)


def train(name, width, inner, layers, steps, more=""):
    (folder / f"{name}.yaml").write_text(
        RUN.format(width=width, inner=inner, layers=layers, steps=steps, output=name) + more)
    if "sampled" in more or "top_k" in more:
        orthant("distill", "targets", f"{name}.yaml")
    orthant("train", f"{name}.yaml")
    lines = (folder / name / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["val_loss"] for line in lines if '"val_loss"' in line][-1]


def student(name, more=""):
    return train(name, 48, 128, 1, 400, more)


def taught(objective, stored):
    more = (f"distill: {{objective: {objective}, teacher: teacher, draws: {stored}, "
            f"targets: {stored}}}\n")
    return student(f"{objective}-{stored}", more)


def figure(plain, teacher, losses):
    """A plain SVG: validation loss over stored ids, one line for each objective."""
    left, top, width, height = 70, 20, 420, 260
    values = [plain, teacher] + [v for row in losses.values() for v in row]
    low, high = min(values) - 0.05, max(values) + 0.1
    x = lambda i: left + width * i / (len(STORED) - 1)
    y = lambda v: top + height * (high - v) / (high - low)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 130}" height="{top + height + 60}" '
             'font-family="sans-serif" font-size="13">',
             f'<rect width="100%" height="100%" fill="white"/>']
    step = 0.5 if high - low > 2 else 0.2
    mark = step * int(low / step + 1)
    while mark < high:
        parts.append(f'<path d="M{left} {y(mark):.1f}h{width}" stroke="#ddd"/>'
                     f'<text x="{left - 8}" y="{y(mark) + 4:.1f}" text-anchor="end">{mark:.1f}</text>')
        mark += step
    for i, stored in enumerate(STORED):
        parts.append(f'<text x="{x(i):.1f}" y="{top + height + 20}" text-anchor="middle">{stored}</text>')
    for name, value in (("text only", plain), ("teacher", teacher)):
        parts.append(f'<path d="M{left} {y(value):.1f}h{width}" stroke="#777" stroke-dasharray="5 4"/>'
                     f'<text x="{left + width + 8}" y="{y(value) + 4:.1f}" fill="#777">{name}</text>')
    for (name, row), colour in zip(losses.items(), ("#1a66b3", "#c0392b")):
        points = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(row))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(i):.1f}" cy="{y(v):.1f}" r="3.5" fill="{colour}"/>' for i, v in enumerate(row)]
        at = y(row[0]) + (20 if name == "draws" else -4)  # below the line of the text alone
        parts.append(f'<text x="{x(0) + 12:.1f}" y="{at:.1f}" fill="{colour}">{name}</text>')
    parts.append(f'<text x="{left + width / 2}" y="{top + height + 44}" text-anchor="middle">'
                 'ids stored for each token: draws, or the most probable</text>')
    parts.append(f'<text transform="translate(18 {top + height / 2}) rotate(-90)" text-anchor="middle">'
                 'validation loss, nats a token</text></svg>')
    return "\n".join(parts) + "\n"


program = pathlib.Path(sys.argv[1]).resolve()
text = pathlib.Path(sys.argv[2]).read_bytes()
with tempfile.TemporaryDirectory() as place:
    folder = pathlib.Path(place)
    (folder / "train.txt").write_bytes(text[:TRAINED])
    (folder / "held.txt").write_bytes(text[-HELD:])
    for name in ("train", "held"):
        orthant("tokenize", "--tokenizer", "bytes", "--out", name, f"{name}.txt")
    teacher = train("teacher", 80, 208, 2, 600)
    plain = student("plain")
    losses = {"draws": [], "top-k": []}
    for stored in STORED:
        losses["draws"].append(taught("sampled", stored))
        losses["top-k"].append(taught("top_k", stored))
        print(f"{stored} ids: draws {losses['draws'][-1]:.3f}, top-k {losses['top-k'][-1]:.3f}", flush=True)
    print(f"teacher {teacher:.3f}, text only {plain:.3f}")
    pathlib.Path(sys.argv[3]).write_text(figure(plain, teacher, losses))
