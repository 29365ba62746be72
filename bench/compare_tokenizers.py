#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Paired comparison of bench/encode with HF `tokenizers` on one thread: A B A B ...

    PYTHON_WITH_TOKENIZERS bench/compare_tokenizers.py [--text FILE] [--rounds 5] [TOKENIZER.json ...]

Each round encodes the text three times with either side, so that a slow phase of the machine affects both. The text
is one document; in the second table each line is a document. Both sides keep their caches from round to round.
Prints the median speeds and the median, lowest and highest of the ratios ours / theirs of the rounds.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402 (reads the variable)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
REPEATS = 3


def run_ours(path, text_file, lines):
    words = [os.path.join(ROOT, "build", "bench", "encode"), "--json", "--rounds", str(REPEATS), "--text", text_file, path]
    out = subprocess.run(words + ["--lines"] * lines, check=True, stdout=subprocess.PIPE).stdout
    entry = json.loads(out)["tokenizers"][0]
    return entry["seconds"], entry["tokens"]


def run_theirs(tokenizer, documents):
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        encodings = tokenizer.encode_batch_fast(documents, add_special_tokens=False)
        times.append(time.perf_counter() - start)
    return statistics.median(times), sum(len(encoding.ids) for encoding in encodings)


def compare(path, text_file, text, lines, rounds):
    tokenizer = Tokenizer.from_file(path)
    documents = text.split("\n") if lines else [text]
    ours, theirs = [], []
    for _ in range(rounds):
        seconds, our_tokens = run_ours(path, text_file, lines)
        ours.append(seconds)
        seconds, their_tokens = run_theirs(tokenizer, documents)
        theirs.append(seconds)
        if our_tokens != their_tokens:
            sys.exit(f"error: {path}: {our_tokens} tokens are not {their_tokens}")
    ratios = sorted(b / a for a, b in zip(ours, theirs))
    size = 1e-6 * len(text.encode())
    print(f"{os.path.basename(path):24} {size / statistics.median(ours):8.1f} {size / statistics.median(theirs):8.1f}"
          f" {statistics.median(ratios):8.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", default=os.path.join(ROOT, "LICENSE"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("tokenizers", nargs="*", metavar="TOKENIZER.json")
    options = parser.parse_args()
    fixtures = os.path.join(ROOT, "tests", "fixtures", "tokenizers")
    paths = options.tokenizers or [os.path.join(fixtures, name + ".json") for name in ("gpt2", "llama3", "qwen", "llama2", "mistral", "gemma", "t5", "xlmr")]
    with open(options.text, encoding="utf-8", newline="") as file:
        text = file.read()
    for lines in (False, True):
        print(f"{'lines' if lines else 'one document':24} ours MB/s   theirs    ratio")
        for path in paths:
            compare(path, options.text, text, lines, options.rounds)


if __name__ == "__main__":
    main()
