#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Layouts on several hosts, predicted against measured: in boxes (tools/cluster_box.sh) of 2 and 4 hosts
# with 2 ranks each, at two rates, `orthant bench` writes the cluster file and every layout is trained
# for some steps, in several rounds. Prints, for each box and for all, the regret of the layout that is
# predicted to be fastest, the share of pairs in the right order, and the error of exposed communication.
# Ranks share the cores of one machine: rates are low, so that links and not cores decide. With more
# ranks than cores a rank also waits for a turn of a core: `--hosts 2 --ranks-per-host 1` shows the rest.
#   bench/two_levels.py [--orthant build/orthant] [--hosts 2,4] [--ranks-per-host 2]
#     [--rates 200mbit,100mbit] [--rounds 2] [--steps 6] [--quick] [--json FILE] [--clusters FOLDER]
import argparse, itertools, json, os, shutil, statistics, subprocess, sys, tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BOX = os.path.join(SOURCE, "tools", "cluster_box.sh")
RUN = """\
model: {model_type: llama, vocab_size: 257, hidden_size: 128, intermediate_size: 384, num_hidden_layers: 8,
  num_attention_heads: 8, num_key_value_heads: 8, max_position_embeddings: 64}
data: {train: train, tokenizer: bytes, sequence_length: 64}
batch: {global_batch_size: 8, micro_batch_size: 1}
threads: 1
"""

# tp pp cp dp_replicate zero; dp fills the rest. Inside a host are tp, then cp, then dp.
LAYOUTS = {
    2: [(2, 1, 1, 1, 1), (1, 2, 1, 1, 1), (1, 1, 1, 1, 0), (1, 1, 1, 1, 1), (1, 1, 1, 1, 3), (1, 1, 2, 1, 1)],
    4: [(4, 1, 1, 1, 1), (2, 2, 1, 1, 1), (2, 1, 1, 1, 0), (2, 1, 1, 1, 1), (2, 1, 1, 1, 3), (1, 4, 1, 1, 1),
        (1, 2, 1, 1, 1), (1, 2, 1, 1, 3), (1, 1, 1, 1, 0), (1, 1, 1, 1, 1), (1, 1, 1, 1, 3), (1, 1, 1, 2, 1),
        (1, 1, 1, 2, 3), (1, 1, 2, 1, 1), (2, 1, 2, 1, 1), (1, 2, 2, 1, 1)],
    8: [(8, 1, 1, 1, 1), (4, 2, 1, 1, 1), (4, 1, 1, 1, 1), (2, 4, 1, 1, 1), (2, 2, 1, 1, 1), (2, 1, 1, 1, 1),
        (2, 1, 1, 2, 3), (1, 8, 1, 1, 1), (1, 4, 1, 1, 1), (1, 2, 1, 1, 1), (1, 2, 1, 2, 3), (1, 1, 1, 1, 0),
        (1, 1, 1, 1, 3), (1, 1, 1, 4, 3), (1, 1, 1, 2, 3), (1, 2, 2, 1, 1)],
}


def name_of(layout):
    tp, pp, cp, replicate, zero = layout
    parts = [f"{n}{d}" for n, d in (("tp", tp), ("pp", pp), ("cp", cp), ("hsdp", replicate)) if d > 1]
    return " ".join(parts + [f"zero{zero}"])


def sets_of(layout):
    tp, pp, cp, replicate, zero = layout
    values = {"tp": tp, "pp": pp, "cp": cp, "dp_replicate": replicate, "zero": zero, "watchdog_seconds": 60}
    return [word for key, value in values.items() for word in ("--set", f"parallel.{key}={value}")]


class Box:
    def __init__(self, hosts, per_host, rate):
        command = [BOX, "up", "--hosts", str(hosts), "--ranks-per-host", str(per_host), "--bandwidth", rate]
        made = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if made.returncode:
            sys.exit(made.returncode)
        self.folder = made.stdout.strip()
        self.shared = os.path.join(self.folder, "shared")
        self.environment = dict(os.environ, CLUSTER_BOX=self.folder)

    def mpirun(self, words, limit_s):
        inside = ["bash", "-c", 'cd /tmp/box/shared && exec timeout "$@"', "in_box", str(limit_s), "mpirun", *words]
        return subprocess.run([BOX, "on", "0", *inside], env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self):
        subprocess.run([BOX, "down"], env=self.environment)


def predict(options, box, ranks, layout):
    command = [options.orthant, "train", "run.yaml", "--dry-run", "--json", "--ranks", str(ranks), "--set", "steps=9",
               "--set", "output=dry", "--set", "cluster=./cluster.yaml", *sets_of(layout)]
    done = subprocess.run(command, cwd=box.shared, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{name_of(layout)}: {done.stderr}")
    report = json.loads(done.stdout)
    return report["step_seconds"], sum(report["exposed_seconds"].values())


# Steps of one run, without the first two: seconds and exposed seconds.
def measure(options, box, layout):
    output = os.path.join(box.shared, "run")
    shutil.rmtree(output, ignore_errors=True)
    done = box.mpirun([options.orthant, "train", "run.yaml", "--set", f"steps={options.steps + 2}", "--set", "output=run",
                       "--set", "cluster=./cluster.yaml", *sets_of(layout)], 180)
    if done.returncode:
        print(f"{name_of(layout)}: exit code {done.returncode}: {done.stderr[-600:]}", file=sys.stderr)
        return []
    with open(os.path.join(output, "metrics.jsonl")) as lines:
        rows = [json.loads(line) for line in lines]
    return [(row["step_seconds"], sum(v or 0 for v in row["exposed_seconds"].values()))
            for row in rows if row.get("step_seconds") and row["step"] > 2]


def judge(rows):
    pairs = right = 0
    for a, b in itertools.combinations(rows, 2):
        slow, fast = (a, b) if a["measured_s"] > b["measured_s"] else (b, a)
        if slow["measured_s"] <= 1.1 * fast["measured_s"]:
            continue
        pairs += 1
        right += slow["predicted_s"] > fast["predicted_s"]
    chosen = min(rows, key=lambda row: row["predicted_s"])
    best = min(row["measured_s"] for row in rows)
    errors = [abs(row["predicted_s"] / row["measured_s"] - 1) for row in rows]
    exposed = [abs(row["predicted_exposed_s"] / row["exposed_s"] - 1) for row in rows if row["exposed_s"] > 0]
    return {"layouts": len(rows), "chosen": chosen["layout"], "regret": chosen["measured_s"] / best - 1, "pairs": pairs,
            "right": right / pairs if pairs else None, "step_error": statistics.median(errors),
            "exposed_error": statistics.median(exposed), "exposed_within_15": sum(e <= 0.15 for e in exposed) / len(exposed)}


def study(options, hosts, rate):
    ranks = hosts * options.ranks_per_host
    box = Box(hosts, options.ranks_per_host, rate)
    try:
        with open(os.path.join(box.shared, "run.yaml"), "w") as file:
            file.write(RUN)
        sources = [os.path.join(SOURCE, "src", "core", "base", name) for name in sorted(os.listdir(os.path.join(SOURCE, "src", "core", "base")))]
        subprocess.run([options.orthant, "tokenize", "--tokenizer", "bytes", "--out", "train", *sources], cwd=box.shared,
                       stdout=subprocess.DEVNULL, check=True)
        done = box.mpirun([options.orthant, "bench", "--device", "cpu", "--out", "cluster.yaml"]
                          + (["--quick"] if options.quick else []), 600)
        if done.returncode:
            sys.exit(f"bench: {done.stderr}")
        if options.clusters:
            os.makedirs(options.clusters, exist_ok=True)
            shutil.copy(os.path.join(box.shared, "cluster.yaml"), os.path.join(options.clusters, f"{hosts}-{rate}.yaml"))
        samples = {layout: [] for layout in LAYOUTS[ranks]}
        for _ in range(options.rounds):  # all layouts in turn, so that other load falls on all
            for layout in samples:
                steps = measure(options, box, layout)
                if steps:
                    samples[layout].append([statistics.median(column) for column in zip(*steps)])
        rows = []
        for layout, runs in samples.items():
            if not runs:
                continue
            predicted_s, predicted_exposed_s = predict(options, box, ranks, layout)
            rows.append({"layout": name_of(layout), "predicted_s": predicted_s, "measured_s": min(run[0] for run in runs),
                         "runs_s": [run[0] for run in runs], "predicted_exposed_s": predicted_exposed_s,
                         "exposed_s": min(run[1] for run in runs)})
    finally:
        box.end()
    return {"hosts": hosts, "ranks_per_host": options.ranks_per_host, "rate": rate,
            "rows": sorted(rows, key=lambda row: row["measured_s"]), "judged": judge(rows)}


def show(result):
    judged = result["judged"]
    print(f"\n{result['hosts']} hosts x {result['ranks_per_host']} ranks, {result['rate']}")
    print(f"  {'layout':24} {'measured':>9} {'predicted':>9} {'exposed':>9} {'predicted':>9}")
    for row in result["rows"]:
        print(f"  {row['layout']:24} {row['measured_s']:7.3f} s {row['predicted_s']:7.3f} s {row['exposed_s']:7.3f} s"
              f" {row['predicted_exposed_s']:7.3f} s")
    print(f"  chosen: {judged['chosen']}, {100 * judged['regret']:.0f} % slower than the fastest; "
          f"{100 * (judged['right'] or 0):.0f} % of {judged['pairs']} pairs in order; step off by "
          f"{100 * judged['step_error']:.0f} % (median); exposed communication by {100 * judged['exposed_error']:.0f} %, "
          f"within 15 % in {100 * judged['exposed_within_15']:.0f} % of layouts", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--orthant", default=os.path.join(SOURCE, "build", "orthant"))
    parser.add_argument("--hosts", default="2,4")
    parser.add_argument("--ranks-per-host", type=int, default=2)
    parser.add_argument("--rates", default="200mbit,100mbit")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--clusters")
    options = parser.parse_args()
    options.orthant = os.path.realpath(options.orthant)
    allowed = subprocess.run([BOX, "check"])
    if allowed.returncode:
        sys.exit(allowed.returncode)
    results = []
    for hosts, rate in itertools.product(map(int, options.hosts.split(",")), options.rates.split(",")):
        results.append(study(options, hosts, rate))
        show(results[-1])
        if options.json:
            with open(options.json, "w") as file:
                json.dump(results, file, indent=2)


main()
