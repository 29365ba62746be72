// SPDX-License-Identifier: Apache-2.0
// From times to findings. Communication with its own lane should overlap with kernels: more than a
// tenth of a step exposed is a finding. Collectives between two kernels of a block (tensor
// parallelism, Ulysses) cannot overlap: they are the cost of the layout, and a finding only from a
// quarter of a step.
#include "audit/overlap.h"
#include "base/text_builder.h"
#include "describe/pipeline_rules.h"
#include "ops/catalog.h"
#include "ops/collective.h"

static const double LIMIT_BESIDE = .10, LIMIT_BETWEEN = .25;
static const double LIMIT_LATE = .10;    // compute of the slowest rank above the mean
static const double LIMIT_BUBBLE = .10;  // above that of the pipeline schedule with equal stages

// Communication that is judged together.
typedef struct flow_rule {
  ot_timeline_axis axis;
  int num_ops;
  ot_op_kind ops[3];  // [num_ops]
  bool between;       // between dependent kernels, where it cannot overlap
  const char *what, *advice;
} flow_rule;

// clang-format off
static const flow_rule rules[] = {
    {OT_TIMELINE_DP, 1, {OT_OP_ALL_GATHER}, false, "dp_gather_exposed",
     "more tokens a rank and step (micro_batch_size, sequence_length), parallel.prefetch 2, "
     "parallel.reshard false, or a lower parallel.zero"},
    {OT_TIMELINE_DP, 2, {OT_OP_REDUCE_SCATTER, OT_OP_ALL_REDUCE}, false, "dp_reduce_exposed",
     "more micro-batches a step with parallel.accumulate whole, precision.reduce bf16, or fewer "
     "ranks of dp and more of another axis"},
    {OT_TIMELINE_CP, 1, {OT_OP_SHIFT}, false, "cp_ring_exposed",
     "longer sequences, fewer ranks of cp, or parallel.context ulysses"},
    {OT_TIMELINE_CP, 3, {OT_OP_ALL_GATHER, OT_OP_ALL_TO_ALL, OT_OP_REDUCE_SCATTER}, true,
     "cp_exposed", "fewer ranks of cp, or parallel.context ring"},
    {OT_TIMELINE_TP, 3, {OT_OP_ALL_GATHER, OT_OP_REDUCE_SCATTER, OT_OP_ALL_REDUCE}, true,
     "tp_exposed", "tp within one machine, fewer ranks of tp and more of pp or dp"},
    {OT_TIMELINE_EP, 2, {OT_OP_ALL_TO_ALL_V, OT_OP_ALL_TO_ALL_V_BACK}, true, "ep_exposed",
     "fewer ranks of ep"},
    {OT_TIMELINE_WORLD, 1, {OT_OP_ALL_REDUCE}, true, "world_exposed",
     "these reductions are small: ranks wait for the last one; check for slow machines"},
};
// clang-format on

// Totals and texts of one audit.
typedef struct judge {
  const ot_overlap *o;
  const ot_overlap_run *run;
  ot_audit_report *report;
} judge;

static double percent(const judge *j, double seconds) { return 100 * seconds / j->o->step_s; }

// ---- flows ----

static const ot_overlap_flow *flow_of(const ot_overlap *o, const flow_rule *rule, int i) {
  return &o->flow[rule->axis][ot_communication_index(rule->ops[i])];
}

static ot_overlap_flow sum_flow(const ot_overlap *o, const flow_rule *rule) {
  ot_overlap_flow sum = {0};
  for (int i = 0; i < rule->num_ops; i++) {
    const ot_overlap_flow *const flow = flow_of(o, rule, i);
    sum.calls += flow->calls;
    sum.bytes += flow->bytes;
    sum.busy_s += flow->busy_s;
    sum.exposed_s += flow->exposed_s;
  }
  return sum;
}

// "all_gather and all_reduce", of those that occur.
static const char *ops_text(const judge *j, const flow_rule *rule) {
  ot_text_builder text = {.arena = j->report->arena};
  for (int i = 0; i < rule->num_ops; i++) {
    if (flow_of(j->o, rule, i)->calls == 0) continue;
    if (text.length > 0) ot_text_put(&text, " and ");
    ot_text_put(&text, ot_op_info_of(rule->ops[i])->name);
  }
  return ot_text_builder_text(&text);
}

static const char *details_of(const judge *j, const ot_overlap_flow *flow, double limit) {
  ot_json_writer json = ot_json_begin(j->report->arena, 0);
  ot_json_object(&json, NULL);
  ot_json_real(&json, "exposed_fraction", flow->exposed_s / j->o->step_s);
  ot_json_real(&json, "limit", limit);
  ot_json_real(&json, "exposed_seconds", flow->exposed_s);
  ot_json_real(&json, "busy_seconds", flow->busy_s);
  ot_json_real(&json, "calls", flow->calls);
  ot_json_real(&json, "bytes", flow->bytes);
  ot_json_end(&json);
  return json.text;
}

static void judge_flow(const judge *j, const flow_rule *rule) {
  const ot_overlap_flow flow = sum_flow(j->o, rule);
  const double limit = rule->between ? LIMIT_BETWEEN : LIMIT_BESIDE;
  if (flow.exposed_s <= limit * j->o->step_s) return;
  ot_audit_find(j->report, rule->what,
                ot_arena_format(j->report->arena, "%s: %s", ot_timeline_axis_name(rule->axis),
                                ops_text(j, rule)),
                rule->advice,
                "%.1f %% of a step of %.4g ms (limit %.0f %%): %.4g ms exposed of %.4g ms in "
                "flight, %.4g calls, %.4g MB",
                percent(j, flow.exposed_s), j->o->step_s * 1e3, 100 * limit, flow.exposed_s * 1e3,
                flow.busy_s * 1e3, flow.calls, flow.bytes * 1e-6)
      ->details = details_of(j, &flow, limit);
}

// ---- pipelines ----

static void judge_pipeline(const judge *j) {
  const ot_overlap *const o = j->o;
  const ot_run_parallel *const p = &j->run->run->parallel;
  if (p->pp == 1) return;
  const double bubble = o->bubble_s / o->step_s;
  const double ideal = ot_pipeline_bubble(p->pipeline, p->pp, p->vpp, j->run->micro_batches);
  if (bubble > ideal + LIMIT_BUBBLE) {
    ot_audit_find(j->report, "pipeline_bubble",
                  ot_arena_format(j->report->arena, "pp: %d stages, %d micro-batches", p->pp,
                                  j->run->micro_batches),
                  "stages of equal cost (parallel.layout), more micro-batches, or another "
                  "parallel.pipeline",
                  "the bubble is %.1f %% of a step, with equal stages %.1f %%", 100 * bubble,
                  100 * ideal);
  }
  const double messages_s = o->exposed_axis_s[OT_TIMELINE_PP] - o->bubble_s;
  if (messages_s <= LIMIT_BESIDE * o->step_s) return;
  ot_audit_find(j->report, "pp_exposed", "pp: send and receive",
                "larger micro-batches, or fewer chunks (parallel.vpp)",
                "%.1f %% of a step of %.4g ms outside of bubbles (limit %.0f %%)",
                percent(j, messages_s), o->step_s * 1e3, 100 * LIMIT_BESIDE);
}

static void judge_balance(const judge *j) {
  const ot_overlap *const o = j->o;
  const double late_s = o->slowest_compute_s - o->compute_s;
  if (o->ranks == 1 || late_s <= LIMIT_LATE * o->step_s) return;
  const bool stages = j->run->run->parallel.pp > 1;
  ot_audit_find(j->report, "compute_imbalance",
                ot_arena_format(j->report->arena, "rank %d", o->slowest_rank),
                stages ? "stages of equal cost (parallel.layout)"
                       : "look for a slow or shared machine under this rank",
                "its kernels need %.4g ms a step, the mean is %.4g ms: the others wait",
                o->slowest_compute_s * 1e3, o->compute_s * 1e3);
}

// ---- figures ----

static const char *figures_of(const judge *j) {
  const ot_overlap *const o = j->o;
  ot_json_writer json = ot_json_begin(j->report->arena, 0);
  ot_json_object(&json, NULL);
  ot_json_integer(&json, "ranks", o->ranks);
  ot_json_integer(&json, "steps", o->steps);
  ot_json_real(&json, "step_seconds", o->step_s);
  ot_json_real(&json, "compute_seconds", o->compute_s);
  ot_json_real(&json, "bubble_fraction", o->step_s > 0 ? o->bubble_s / o->step_s : 0);
  ot_json_integer(&json, "slowest_rank", o->slowest_rank);
  ot_json_real(&json, "slowest_compute_seconds", o->slowest_compute_s);
  ot_json_boolean(&json, "shared_cores", j->run->shares_cores);
  ot_json_real(&json, "exposed_all_seconds", o->exposed_s);
  ot_json_object(&json, "exposed_seconds");
  for (int axis = 0; axis < OT_TIMELINE_AXES; axis++) {
    ot_json_real(&json, ot_timeline_axis_name((ot_timeline_axis)axis), o->exposed_axis_s[axis]);
  }
  ot_json_end(&json);
  ot_json_array(&json, "flows");
  for (int i = 0; i < OT_TIMELINE_AXES * OT_COMMUNICATIONS; i++) {
    const int axis = i / OT_COMMUNICATIONS, op = i % OT_COMMUNICATIONS;
    const ot_overlap_flow *const flow = &o->flow[axis][op];
    if (flow->calls == 0) continue;
    ot_json_object(&json, NULL);
    ot_json_text(&json, "axis", ot_timeline_axis_name((ot_timeline_axis)axis));
    ot_json_text(&json, "op", ot_op_info_of(ot_communications[op])->name);
    ot_json_real(&json, "calls", flow->calls);
    ot_json_real(&json, "bytes", flow->bytes);
    ot_json_real(&json, "busy_seconds", flow->busy_s);
    ot_json_real(&json, "exposed_seconds", flow->exposed_s);
    ot_json_end(&json);
  }
  ot_json_end(&json);
  ot_json_end(&json);
  return json.text;
}

static const char *table_of(const judge *j) {
  const ot_overlap *const o = j->o;
  ot_text_builder text = {.arena = j->report->arena};
  ot_text_appendf(&text, "  %-6s %-15s %9s %10s %10s %10s %7s\n", "axis", "", "calls", "MB",
                  "busy ms", "exposed ms", "% step");
  for (int i = 0; i < OT_TIMELINE_AXES * OT_COMMUNICATIONS; i++) {
    const int axis = i / OT_COMMUNICATIONS, op = i % OT_COMMUNICATIONS;
    const ot_overlap_flow *const f = &o->flow[axis][op];
    if (f->calls == 0) continue;
    ot_text_appendf(&text, "  %-6s %-15s %9.1f %10.3f %10.3f %10.3f %7.1f\n",
                    ot_timeline_axis_name((ot_timeline_axis)axis),
                    ot_op_info_of(ot_communications[op])->name, f->calls, f->bytes * 1e-6,
                    f->busy_s * 1e3, f->exposed_s * 1e3, percent(j, f->exposed_s));
  }
  ot_text_appendf(&text, "  kernels %.1f %%, exposed %.1f %%, bubble %.1f %% of a step\n",
                  percent(j, o->compute_s), percent(j, o->exposed_s), percent(j, o->bubble_s));
  return ot_text_builder_text(&text);
}

void ot_overlap_judge(const ot_overlap *overlap, const ot_overlap_run *run,
                      ot_audit_report *report) {
  const judge j = {overlap, run, report};
  report->figures = figures_of(&j);
  if (overlap->step_s > 0) report->table = table_of(&j);
  if (overlap->ranks == 1) {
    ot_audit_inconclusive(report,
                          "one rank waits for no other; give --ranks N or start it under mpirun");
    return;
  }
  if (run->shares_cores) {
    ot_audit_inconclusive(report,
                          "%d ranks share cores, so one waits while another computes: no verdict",
                          overlap->ranks);
    return;
  }
  report->summary = ot_arena_format(
      report->arena,
      "%d steps of %.4g ms on %d ranks; means of a rank and a step, sends counted once",
      overlap->steps, overlap->step_s * 1e3, overlap->ranks);
  for (int i = 0; i < OT_COUNT(rules); i++) judge_flow(&j, &rules[i]);
  judge_pipeline(&j);
  judge_balance(&j);
}
