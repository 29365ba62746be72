#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Seconds of one training step of GPT-2 124M in llm.c's CPU trainer (train_gpt2.c, float32, OpenMP),
# as a baseline for bench/step. Needs the user's own checkout of llm.c and python3.
#
#   LLMC_DIR=~/llm.c [STEPS=5] [THREADS=2] [CC=gcc] bench/llmc_step.sh
#
# Builds train_gpt2 there with llm.c's own Makefile, writes a checkpoint with random weights and
# random tokens in llm.c's formats (version 3: padded vocabulary) into a temporary folder, and reads
# the milliseconds that the program prints for each step; the first, which allocates, is omitted.
# Batch and length are fixed in llm.c's main: B=4, T=64. Prints one JSON object like
# bench/pytorch_step.py.
set -eu
: "${LLMC_DIR:?give a checkout of llm.c}"
steps=${STEPS:-5}
LLMC_DIR=$(cd "$LLMC_DIR" && pwd)
[ -x "$LLMC_DIR/train_gpt2" ] || make -C "$LLMC_DIR" train_gpt2 CC="${CC:-gcc}" >&2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 - <<'PYTHON'
import array, os, random
random.seed(1)
T, V, P, L, H, C = 1024, 50257, 50304, 12, 12, 768
NOISE = array.array("f", (random.gauss(0, 0.02) for _ in range(1 << 16)))

def write(file, count, value=None):
    tile = NOISE if value is None else array.array("f", [value]) * (1 << 16)
    for begin in range(0, count, len(tile)):
        tile[:count - begin].tofile(file)

with open("gpt2_124M.bin", "wb") as file:
    array.array("i", [20240326, 3, T, V, L, H, C, P] + [0] * 248).tofile(file)
    for count, value in [
            (P * C, None), (T * C, None), (L * C, 1), (L * C, 0), (L * 3 * C * C, None),
            (L * 3 * C, 0), (L * C * C, None), (L * C, 0), (L * C, 1), (L * C, 0),
            (L * 4 * C * C, None), (L * 4 * C, 0), (L * 4 * C * C, None), (L * C, 0),
            (C, 1), (C, 0)]:
        write(file, count, value)
os.makedirs("dev/data/tinyshakespeare")
for name in "train", "val":
    with open(f"dev/data/tinyshakespeare/tiny_shakespeare_{name}.bin", "wb") as file:
        array.array("i", [20240520, 1, 32768] + [0] * 253).tofile(file)
        array.array("H", (random.randrange(V) for _ in range(32768))).tofile(file)
PYTHON
cat > run.py <<'PYTHON'
import json, os, re, statistics, subprocess, sys
program, steps, threads = sys.argv[1], int(sys.argv[2]), sys.argv[3]
run = subprocess.Popen(["stdbuf", "-oL", program], stdout=subprocess.PIPE, text=True,
                       env=dict(os.environ, OMP_NUM_THREADS=threads))
times, peak = [], 0
for line in run.stdout:
    found = re.match(r"step \d+: train loss \S+ \(took (\S+) ms\)", line)
    if found:
        times.append(float(found[1]) / 1e3)
    if len(times) > steps:
        with open(f"/proc/{run.pid}/status") as status:
            peak = next(int(l.split()[1]) * 1024 for l in status if l.startswith("VmHWM"))
        run.kill()
        break
run.wait()
if len(times) <= steps:
    sys.exit("llm.c stopped after %d steps" % len(times))
times = times[1:]
state = 16 * 124475904  # llm.c pads the vocabulary to 50304
print(json.dumps({"program": "llm.c", "threads": int(threads), "batch_size": 4,
                  "sequence_length": 64, "tokens": 256,
                  "seconds_per_step": statistics.median(times), "seconds_min": min(times),
                  "seconds": times, "peak_bytes": peak, "state_bytes": state,
                  "beyond_bytes": peak - state}))
PYTHON
python3 run.py "$LLMC_DIR/train_gpt2" "$steps" "${THREADS:-2}"
