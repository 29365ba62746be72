#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# How many tokens a student of 1 M parameters saves with a teacher: both are trained here on one text, the
# student once on the text alone and once on draws of the teacher (docs/distill.md), with the same seed,
# batches and constant learning rate. Prints where the distilled run first reaches the best validation loss of
# the plain one, as a share of the tokens that the plain one took, for each seed and the median.
#   bench/distill_tokens.py --text tinyshakespeare.txt [--orthant build/orthant] [--folder KEPT]
#     [--teacher-steps 2500] [--steps 1500] [--seeds 3] [--alpha 1] [--draws 50]
#     [--source store|live] [--quick] [--json FILE]
import argparse, json, os, statistics, subprocess, sys, tempfile

RUN = """\
model: {{model_type: llama, vocab_size: 257, hidden_size: {width}, intermediate_size: {inner},
  num_hidden_layers: {layers}, num_attention_heads: {heads}, max_position_embeddings: 128}}
data: {{train: train, validation: held, tokenizer: bytes, sequence_length: 128, validation_every: {every},
  validation_tokens: 16384}}
batch: {{global_batch_size: 8, micro_batch_size: 8}}
optimizer: {{lr: {rate}}}
learning_rate: {{warmup_steps: 50, decay: {decay}, min: {least}}}
steps: {steps}
seed: {seed}
checkpoint: {{every: 0, keep: 1}}
output: {name}
"""
TOKENS = 8 * 128  # of a step
STUDENT = dict(width=144, inner=384, layers=4, heads=4, rate=2e-3, decay="constant", least=0)
TEACHER = dict(width=192, inner=512, layers=5, heads=4, rate=2e-3, decay="cosine", least=1e-4)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--orthant", default="build/orthant")
    p.add_argument("--text", required=True)
    p.add_argument("--folder")
    p.add_argument("--teacher-steps", type=int, default=2500)
    p.add_argument("--steps", type=int, default=1500)
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--alpha", type=float, default=1)
    p.add_argument("--draws", type=int, default=50)
    p.add_argument("--source", choices=["store", "live"], default="store")
    p.add_argument("--quick", action="store_true", help="small models and few steps: shows that it runs")
    p.add_argument("--json")
    return p.parse_args()


def orthant(*words):
    done = subprocess.run([program, *words], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)


def train(name, shape, steps, seed, more=""):
    """The validation losses of a run, (step, nats a token); a finished run is not repeated."""
    every = max(1, steps // 20)
    with open(os.path.join(folder, f"{name}.yaml"), "w") as f:
        f.write(RUN.format(name=name, steps=steps, seed=seed, every=every, **shape) + more)
    if not os.path.isdir(os.path.join(folder, name, "checkpoints", f"step-{steps:08d}")):
        orthant("train", f"{name}.yaml")
    with open(os.path.join(folder, name, "metrics.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    return [(line["step"], line["val_loss"]) for line in lines if "val_loss" in line]


def share(plain, taught):
    """Tokens of `taught` to the best loss of `plain`, over those of `plain`; interpolated; None: never."""
    best_step, best = min(plain, key=lambda point: point[1])
    for (before, above), (step, loss) in zip(taught, taught[1:]):
        if loss <= best < above:
            return (before + (step - before) * (above - best) / (above - loss)) / best_step
    return None


args = parse()
program = os.path.abspath(args.orthant)
with open(args.text, "rb") as f:
    text = f.read()
place = tempfile.TemporaryDirectory() if not args.folder else None
folder = args.folder or place.name
os.makedirs(folder, exist_ok=True)
if args.quick:
    small = dict(width=32, inner=64, layers=1, heads=2)
    STUDENT.update(small)
    TEACHER.update(small, width=48, inner=128)
    text, args.steps, args.teacher_steps, args.seeds = text[:60000], 80, 120, 1
cut = len(text) * 9 // 10
for name, part in (("train", text[:cut]), ("held", text[cut:])):
    with open(os.path.join(folder, f"{name}.txt"), "wb") as f:
        f.write(part)
    orthant("tokenize", "--tokenizer", "bytes", "--out", name, f"{name}.txt")
teacher = train("teacher", TEACHER, args.teacher_steps, 1)[-1][1]
print(f"teacher: validation loss {teacher:.4f} nats a byte", flush=True)
distill = (f"distill: {{objective: sampled, teacher: teacher, draws: {args.draws}, targets: 24, "
           f"alpha: {args.alpha:g}, from: {args.source}}}\n")
runs = []
for seed in range(1, args.seeds + 1):
    plain = train(f"plain-{seed}", STUDENT, args.steps, seed)
    if args.source == "store":
        with open(os.path.join(folder, "store.yaml"), "w") as f:
            f.write(RUN.format(name="store", steps=1, seed=1, every=0, **STUDENT) + distill)
        orthant("distill", "targets", "store.yaml")
    taught = train(f"taught-{seed}", STUDENT, args.steps, seed, distill)
    found = share(plain, taught)
    runs.append(dict(seed=seed, plain=plain, taught=taught, share=found))
    print(f"seed {seed}: plain {min(plain, key=lambda p: p[1])[1]:.4f}, distilled "
          f"{min(taught, key=lambda p: p[1])[1]:.4f}; "
          + (f"reached with {found:.2f} of the tokens" if found else "not reached"), flush=True)
known = [run["share"] for run in runs if run["share"]]
median = statistics.median(known) if len(known) == len(runs) else None
print(f"median share of tokens: {median if median is None else round(median, 3)} (asked 0.7), "
      f"{args.steps * TOKENS:,} tokens a run")
if args.json:
    with open(args.json, "w") as f:
        json.dump(dict(teacher=teacher, runs=runs, median=median), f)
