# SPDX-License-Identifier: Apache-2.0
"""Mode `mend` of tools/gpu_check.sh: what failed in the first report of a GPU (docs/gpu.md, G1 to G9),
each fault by itself, in a minute. A part that passes on a GPU confirms its mending.
"""

import json
import re
import time

from gpu_run import Failed, run_test, temporary

# Parts that measure times: nothing else runs on the GPU meanwhile.
ALONE = ("G2 a quick bench", "G8 initial weights")
QUICK_SECONDS = 15
LEAST = {"matrix_efficiency": 0.3, "memory_efficiency": 0.5, "attention_efficiency": 0.1}
INITIAL_WEIGHTS_S = 1  # of 1.5e9 parameters; 9.6 in the first report, drawn on the host
TESTS = {"G3": ("products", "linear", "head_parts"), "G4": ("elementwise",), "G5": ("head_weights",),
         "G6": ("norm", "route", "attention_block", "cuda_nccl")}
RUN = """model: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1,
  num_attention_heads: 2, num_key_value_heads: 2, max_position_embeddings: 32, tie_word_embeddings: true}
data: {train: %s/train, tokenizer: bytes, sequence_length: 16}
batch: {global_batch_size: 4, micro_batch_size: 4}
steps: 6
threads: 1
"""


def step_of(run, limit, words):
    return run.json([run.program("gpu_step"), *words, "--warmup", "0", "--repeats", "1", "--json"], limit)


def compare_memory(run, limit):
    """G1: eight micro-batches have the activations of one."""
    words = ["--model", "bench/models/tiny-64.json", "--sequence", "32", "--micro-batch", "4", "--micro-batches"]
    one, eight = (step_of(run, limit, [*words, count])["memory"] for count in ("1", "8"))
    grown, beyond = eight["planned_bytes"] - one["planned_bytes"], one["planned_bytes"] - one["state_bytes"]
    if grown > beyond / 10:
        raise Failed(f"8 micro-batches need {grown} bytes more than one, whose activations have {beyond}")
    return {"grown_bytes": grown, "beyond_bytes": beyond}


def bench_quickly(run, limit):
    """G2: real sizes, in seconds, and a file that describes a GPU."""
    with temporary(run.out / "mend.yaml") as path:
        started = time.monotonic()
        run.command([run.program("orthant"), "bench", "--quick", "--device", "cuda", "--out", path], limit)
        seconds, text = time.monotonic() - started, path.read_text()
    found = {key: float(re.search(rf"^{key}: (\S+)", text, re.M).group(1)) for key in LEAST}
    if run.emulated:
        return {"seconds": seconds, "text": text}
    low = [f"{key} {found[key]}, at least {least}" for key, least in LEAST.items() if found[key] < least]
    if "rows: 8192, columns: 8192" not in text:
        low.append("no product of 8192 x 8192 x 8192")
    if seconds > QUICK_SECONDS:
        low.append(f"{seconds:.1f} s, at most {QUICK_SECONDS}")
    if low:
        raise Failed("; ".join(low))
    return {"seconds": seconds, "text": text}


def draw_weights(run, limit):
    """G8: initial weights of 1.5e9 parameters are drawn on the GPU, in a second."""
    if run.emulated:
        return step_of(run, limit, ["--model", "bench/models/tiny-64.json", "--sequence", "16", "--micro-batch", "1"])
    found = step_of(run, limit, ["--model", "bench/models/qwen2.5-1.5b.json", "--sequence", "128", "--micro-batch", "1"])
    if found["initialize_s"] > INITIAL_WEIGHTS_S:
        raise Failed(f"initial weights take {found['initialize_s']:.1f} s")
    return found


def train_briefly(run, limit):
    """G9: means of a run leave out its first step, in which kernels are chosen and captured."""
    with temporary(run.out / "mend") as folder:
        folder.mkdir(exist_ok=True)
        run.command([run.program("orthant"), "tokenize", "--tokenizer", "bytes", "--out", folder / "train",
                     "LICENSE"], limit)
        (folder / "run.yaml").write_text(RUN % folder)
        run.command([run.program("orthant"), "train", folder / "run.yaml", "--set", "device=cuda",
                     "--set", f"output={folder / 'run'}"], limit)
        report = json.loads(run.command([run.program("orthant"), "report", folder / "run", "--json"], limit))
        with open(folder / "run" / "metrics.jsonl") as file:
            steps = [json.loads(line)["step_seconds"] for line in file if '"step_seconds"' in line]
    mean, later = report["measured"]["step_seconds"], sum(steps[1:]) / len(steps[1:])
    if abs(mean / later - 1) > 1e-6:
        raise Failed(f"the mean step has {mean} s, the steps after the first {later} s")
    return {"steps_s": steps, "mean_s": mean}


def in_turn(test):
    return run_test(f"test_{test}", {"OT_TEST_DEVICE": "cuda"})


def parts_of(run):
    parts = [(ALONE[0], 25, bench_quickly), (ALONE[1], 25, draw_weights), ("G1 memory of micro-batches", 20, compare_memory),
             ("G9 rate of a run", 20, train_briefly)]
    return parts + [(f"{fault} {test}", 50, in_turn(test)) for fault, tests in TESTS.items() for test in tests]
