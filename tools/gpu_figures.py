# SPDX-License-Identifier: Apache-2.0
"""Figures of a report of tools/gpu_check.sh, and the goals that they are compared with.

Every figure is of parts of one mode, `bench`, so that rates are shares of what the same run reached;
of variants of a step in mode `tune`, `variant.` KEY has the MFU and the rate.
A figure that its parts do not give is absent. MODEL is a name such as `qwen2.5-1.5b T1024`, written
`qwen2.5-1.5b-T1024` in keys.
"""

from dataclasses import dataclass

NOT_RUN = "not run yet"
MODES = ("quick", "mend", "bench", "tune", "sanitize")
ROWS_OF_A_LONG_PASS = 4096
SMALL_SHARE = 0.01  # operators below this share of a step do not count for the simulator


# ---- goals ----

@dataclass(frozen=True)
class Goal:
    key: str
    name: str
    text: str
    low: float = None   # at least
    high: float = None  # at most

    def met(self, value):
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


def mfu_goal(model, must, aim):
    return Goal(f"mfu.{model.replace(' ', '-')}", f"MFU, {model}", f"at least {must} %, aim {aim} %",
                low=must / 100)


GOALS = [
    mfu_goal("qwen2.5-1.5b T1024", 56, 60),
    mfu_goal("gpt2-1.5b T1024", 55, 59),
    mfu_goal("llama3.2-1b T4096", 56, 60),
    mfu_goal("llama3.2-1b T8192", 52, 57),
    mfu_goal("gpt2-124m T1024", 45, 52),
    Goal("floors.worst", "step over the sum of its operators' floors", "at most 1.10", high=1.10),
    Goal("gaps.worst", "gaps between kernels, of a step", "at most 1 %", high=0.01),
    Goal("memory.worst", "memory used beyond the plan and the workspace of products",
         "less than 2 MiB, the unit of allocation", high=(2 << 20) - 1),
    Goal("pytorch.worst_speed", "speed relative to PyTorch with torch.compile", "at least 1.15", low=1.15),
    Goal("pytorch.worst_memory", "memory beyond state, of PyTorch's", "at most 80 %", high=0.8),
    Goal("passes.worst", f"memory-bound kernels of {ROWS_OF_A_LONG_PASS:,} rows and more, of the copy rate",
         "at least 85 %", low=0.85),
    Goal("attention.worst_forward", "attention relative to cuDNN, forward", "at least 0.90", low=0.9),
    Goal("attention.worst_backward", "attention relative to cuDNN, deterministic backward", "at least 0.85",
         low=0.85),
    Goal("simulator.worst_operator", "simulator, error of an operator", "at most 5 %", high=0.05),
    Goal("simulator.worst_step", "simulator, error of a step", "at most 3 %", high=0.03),
]


# ---- text of a value ----

PERCENT = ("mfu", "gaps", "passes", "simulator", "pytorch.worst_memory", "pytorch.memory")


def shown(key, value):
    """The text of figure `key`, as pages and reports have it."""
    if key.startswith(PERCENT):
        return f"{100 * value:.1f} %"
    if key.endswith("flops_per_s"):
        return f"{value / 1e12:.0f} TFLOP/s"
    if key.endswith("copy_bytes_per_s"):
        return f"{value / 1e12:.2f} TB/s"
    if key.endswith("launch_s"):
        return f"{1e6 * value:.2f} us"
    if key.endswith("step_s"):
        return f"{value:.4g} s"
    if key.startswith("memory"):
        return f"{value / 2**20:.2f} MiB"
    if key.startswith("milliseconds"):
        return f"{value:.0f} ms"
    if key.startswith("seconds"):
        return f"{value:.1f} s"
    if key.startswith("tokens_per_s"):
        return f"{value:,.0f} tokens/s"
    return f"{value:.2f}"


# ---- figures ----

WORKSPACE_BYTES = 32 << 20  # OT_GEMM_WORKSPACE_BYTES


def passed(report, name):
    part = report["parts"].get(name, {})
    return part.get("data") if part.get("state") == "passed" else None


def floor_of(row, alone, limits):
    """Seconds that an operator needs at least: a pass, its bytes at the rate of the copy; products and
    attention, their time alone, or their FLOPs at the rate of the large product."""
    bytes_s = row["bytes"] / limits["copy_bytes_per_s"]
    one = alone.get(row["key"], {}).get("alone_s")
    if row["kind"] != "pass" and one:
        return one
    return max(bytes_s, row["matrix_flops"] / limits["product_flops_per_s"])


def step_figures(model, step, alone, limits):
    """Figures of one model."""
    found = {f"mfu.{model}": step["mfu"], f"tokens_per_s.{model}": step["tokens_per_s"],
             f"step_s.{model}": step["step_s"]}
    memory = step["memory"]
    created = memory["created_bytes"] - memory["planned_bytes"] - WORKSPACE_BYTES
    found[f"memory.{model}"] = created + memory["grown_bytes"]
    if step.get("predicted_s"):
        found[f"simulator.step.{model}"] = abs(step["predicted_s"] / step["step_s"] - 1)
    one = step.get("one_micro_batch")
    if not one:
        return found
    if one["traced_s"] > 0:
        found[f"gaps.{model}"] = 1 - one["kernels_s"] / one["traced_s"]
    if alone and limits:
        of_key = {row["key"]: row for row in alone["rows"]}
        floors = sum(row["count"] * floor_of(row, of_key, limits) for row in one["rows"])
        found[f"floors.{model}"] = one["step_s"] / floors
    total = sum(row.get("step_s", 0) for row in one["rows"])
    errors = [abs(row["count"] * row["predicted_s"] / row["step_s"] - 1) for row in one["rows"]
              if row.get("step_s", 0) > SMALL_SHARE * total and row.get("predicted_s")]
    if errors:
        found[f"simulator.operator.{model}"] = max(errors)
    return found


def pass_shares(alone, limits):
    """Share of the copy's rate of each long pass."""
    return [row["bytes"] / row["alone_s"] / limits["copy_bytes_per_s"] for row in alone["rows"]
            if row["kind"] == "pass" and row["rows"] >= ROWS_OF_A_LONG_PASS and row.get("alone_s")]


def pytorch_figures(report, name, step):
    other, again = passed(report, f"pytorch {name}"), passed(report, f"step again {name}")
    if not other:
        return {}
    model, times = name.replace(" ", "-"), [step["step_s"]] + ([again["step_s"]] if again else [])
    found = {f"pytorch.speed.{model}": other["step_s"] / (sum(times) / len(times))}
    beyond = step["memory"]["planned_bytes"] - step["memory"]["state_bytes"]
    if other["beyond_bytes"] > 0:
        found[f"pytorch.memory.{model}"] = beyond / other["beyond_bytes"]
    return found


def attention_figures(report):
    ours, other = passed(report, "attention"), passed(report, "attention of PyTorch")
    if not ours or not other:
        return {}
    library = {(c["sequence"], c["head_dim"]): c.get("cudnn", {}) for c in other}
    found = {}
    for figure, our_key, their_key in (("forward", "forward_s", "forward_s"),
                                       ("backward", "backward_s", "deterministic_backward_s")):
        ratios = [library.get((c["sequence"], c["head_dim"]), {})[their_key] / c[our_key] for c in ours
                  if their_key in library.get((c["sequence"], c["head_dim"]), {})]
        if ratios:
            found[f"attention.worst_{figure}"] = min(ratios)
    return found


def hopper_figures(report):
    """The kernels of attention for Hopper relative to `mma`: the least and the largest ratio of all cases."""
    ours, mma = passed(report, "attention hopper") or passed(report, "attention"), passed(report, "attention mma")
    if not ours or not mma:
        return {}
    times = {(c["sequence"], c["head_dim"]): c for c in mma}
    found = {}
    for figure in ("forward", "backward"):
        ratios = [times[c["sequence"], c["head_dim"]][f"{figure}_s"] / c[f"{figure}_s"] for c in ours
                  if (c["sequence"], c["head_dim"]) in times]
        if ratios:
            found.update({f"hopper.least_{figure}": min(ratios), f"hopper.largest_{figure}": max(ratios)})
    return found


def variant_figures(report):
    """MFU and rate of the steps of mode `tune`, by what follows `step ` in their names."""
    found = {}
    for part, entry in report["parts"].items():
        step = passed(report, part)
        if entry["mode"] != "tune" or not part.startswith("step ") or not step:
            continue
        name = part.removeprefix("step ").replace(",", "").replace(" ", "-")
        found.update({f"mfu.variant.{name}": step["mfu"], f"tokens_per_s.variant.{name}": step["tokens_per_s"]})
    return found


def other_figures(report):
    """Rates of PyTorch, of a training run, and the seconds that initial weights take."""
    found = {}
    for part in report["parts"]:
        data = passed(report, part)
        if data and part.startswith(("pytorch ", "training ")) and "tokens_per_s" in data:
            found[f"tokens_per_s.{part.replace(' ', '-')}"] = data["tokens_per_s"]
        if data and part == "G2 a quick bench":
            found["seconds.quick_bench"] = data["seconds"]
        if data and part == "G8 initial weights" and "initialize_s" in data:
            found["milliseconds.initialize"] = 1e3 * data["initialize_s"]
        if data and part.startswith("step ") and "initialize_s" in data:
            found[f"seconds.initialize.{part[5:].replace(' ', '-')}"] = data["initialize_s"]
    return found


# The worst of the models: figure, prefix of the models' figures, whether larger is worse.
WORST = [("floors.worst", "floors.", True), ("gaps.worst", "gaps.", True), ("memory.worst", "memory.", True),
         ("pytorch.worst_speed", "pytorch.speed.", False), ("pytorch.worst_memory", "pytorch.memory.", True),
         ("simulator.worst_operator", "simulator.operator.", True),
         ("simulator.worst_step", "simulator.step.", True)]


def figures_of(report):
    """Every figure that the parts of mode `bench` give, by key."""
    limits, found, shares = passed(report, "limits (bench)"), {}, []
    if limits:
        found = {f"limits.{key}": limits[key] for key in ("copy_bytes_per_s", "product_flops_per_s", "launch_s")}
    for part in list(report["parts"]):
        name = part.removeprefix("step ")
        step, alone = passed(report, part), passed(report, f"operators {name}")
        if part == name or not step or report["parts"][part]["mode"] != "bench" or name.startswith("again "):
            continue
        found.update(step_figures(name.replace(" ", "-"), step, alone, limits))
        found.update(pytorch_figures(report, name, step))
        if alone and limits:
            shares += pass_shares(alone, limits)
    if shares:
        found["passes.worst"] = min(shares)
    found.update(attention_figures(report))
    found.update(hopper_figures(report))
    found.update(variant_figures(report))
    found.update(other_figures(report))
    for key, prefix, larger in WORST:
        values = [value for name, value in found.items() if name.startswith(prefix) and name != key]
        if values:
            found[key] = (max if larger else min)(values)
    return found
