// SPDX-License-Identifier: Apache-2.0
// Names, lookup, cost, hash and stable text of a schedule.
#include "schedule/schedule.h"

#include <assert.h>

#include "base/text.h"
#include "base/text_builder.h"
#include "ops/attributes.h"
#include "ops/catalog.h"
#include "ops/collective.h"
#include "schedule/bodies.h"

static const char *const phase_names[] = {
    [OT_PHASE_SETUP] = "setup",     [OT_PHASE_BEGIN] = "begin",   [OT_PHASE_FORWARD] = "F",
    [OT_PHASE_RECOMPUTE] = "R",     [OT_PHASE_INPUT] = "I",       [OT_PHASE_WEIGHT] = "W",
    [OT_PHASE_BACKWARD] = "B",      [OT_PHASE_TIE] = "tie",       [OT_PHASE_NORM] = "norm",
    [OT_PHASE_CLIP] = "clip",       [OT_PHASE_UPDATE] = "update", [OT_PHASE_GATHER] = "gather",
    [OT_PHASE_REDUCE] = "reduce",   [OT_PHASE_SEND] = "send",     [OT_PHASE_RECEIVE] = "receive",
    [OT_PHASE_PUBLISH] = "publish",
};
static_assert(sizeof phase_names / sizeof phase_names[0] == OT_PHASES, "one name each");

static const char *const base_names[] = {
    [OT_BASE_NONE] = "-",
    [OT_BASE_WEIGHT] = "weight",
    [OT_BASE_WEIGHT_PIECE] = "weight_piece",
    [OT_BASE_TIED] = "tied",
    [OT_BASE_GRADIENT] = "gradient",
    [OT_BASE_GRADIENT_PIECE] = "gradient_piece",
    [OT_BASE_TIED_GRADIENT] = "tied_gradient",
    [OT_BASE_MOMENT_1] = "moment_1",
    [OT_BASE_MOMENT_2] = "moment_2",
    [OT_BASE_MASTER] = "master",
    [OT_BASE_SLOT] = "slot",
    [OT_BASE_SLOT_LONG] = "slot_long",
    [OT_BASE_SLOT_WEIGHT] = "slot_weight",
    [OT_BASE_INPUT] = "input",
    [OT_BASE_OUTPUT] = "output",
    [OT_BASE_D_OUTPUT] = "d_output",
    [OT_BASE_D_INPUT] = "d_input",
    [OT_BASE_STACK] = "stack",
    [OT_BASE_STACK_OUT] = "stack_out",
    [OT_BASE_D_STACK] = "d_stack",
    [OT_BASE_D_STACK_OUT] = "d_stack_out",
    [OT_BASE_SCRATCH] = "scratch",
    [OT_BASE_BATCH] = "batch",
    [OT_BASE_CONSTANT] = "constant",
    [OT_BASE_SCALAR] = "scalar",
    [OT_BASE_STATISTIC] = "statistic",
    [OT_BASE_EXPERTS] = "experts",
    [OT_BASE_SQUARES] = "squares",
    [OT_BASE_UPDATES] = "updates",
    [OT_BASE_CACHE] = "cache",
    [OT_BASE_RESULT] = "result",
};
static_assert(sizeof base_names / sizeof base_names[0] == OT_BASES, "one name each");

const char *ot_phase_name(ot_phase phase) { return phase_names[phase]; }

const char *ot_base_name(ot_base base) { return base_names[base]; }

const char *ot_lane_name(ot_lane lane) {
  static const char *const names[] = {"compute", "tensor", "gather", "reduce", "pipeline"};
  static_assert(sizeof names / sizeof names[0] == OT_LANES, "one name each");
  return names[lane];
}

const char *ot_memory_class_name(ot_memory_class class) {
  static const char *const names[] = {"weights",     "gradients", "optimizer",
                                      "activations", "gathered",  "buffers"};
  static_assert(sizeof names / sizeof names[0] == OT_MEMORY_CLASSES, "one name each");
  return names[class];
}

const char *ot_order_name(ot_order_kind kind) {
  static const char *const names[] = {"setup",     "step",   "checksum", "publish",   "evaluate",
                                      "score",     "logits", "prefill",  "prefill/2", "prefill/4",
                                      "prefill/8", "decode", "decode/2", "decode/4",  "decode/8"};
  return names[kind];
}

int ot_schedule_find_order(const ot_schedule *schedule, ot_order_kind kind, int micro_batches) {
  for (int i = 0; i < schedule->num_orders; i++) {
    const ot_order *const order = &schedule->orders[i];
    if (order->kind != kind) continue;
    if (micro_batches == 0 || order->micro_batches == micro_batches) return i;
  }
  return -1;
}

const ot_region *ot_schedule_region(const ot_schedule *schedule, const char *name) {
  for (int i = 0; i < schedule->num_regions; i++) {
    if (ot_text_equal(schedule->regions[i].name, name)) return &schedule->regions[i];
  }
  OT_UNREACHABLE();
}

// ---- cost ----

ot_task_kind ot_task_kind_of(ot_op_kind op) {
  if (op == OT_OP_SEND) return OT_TASK_SEND;
  if (op == OT_OP_RECEIVE) return OT_TASK_RECEIVE;
  if (op == OT_OP_REPEAT) return OT_TASK_REPEAT;
  if (op == OT_OP_PUBLISH) return OT_TASK_PUBLISH;
  return ot_op_communicates(op) ? OT_TASK_COLLECTIVE : OT_TASK_COMPUTE;
}

ot_lane ot_task_lane(const ot_entry *entry, const ot_task *task) {
  const bool beside = entry->lane == OT_LANE_COMPUTE && task->lane == OT_LANE_TENSOR;
  return beside ? OT_LANE_TENSOR : entry->lane;
}

const char *ot_task_name(const ot_task *task) { return ot_op_info_of(task->op)->name; }

ot_op_types ot_task_types(const ot_task *task) {
  ot_op_types types;
  for (int i = 0; i < OT_MAX_INPUTS; i++) types.in[i] = task->in[i].type;
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) types.out[i] = task->out[i].type;
  return types;
}

ot_cost ot_task_cost(const ot_task *task) {
  const ot_op_types types = ot_task_types(task);
  return ot_op_cost(task->op, &task->attributes, &types);
}

double ot_segment_flops(const ot_segment *segment, bool model_only) {
  double flops = 0;
  for (int i = 0; i < segment->num_tasks; i++) {
    if (ot_segment_repeat_of(segment, i) >= 0) continue;
    const ot_cost cost = ot_task_cost(&segment->tasks[i]);
    flops += cost.matrix_flops - (model_only ? cost.repeated_flops : 0);
  }
  return flops;
}

static bool is_model_phase(ot_phase phase) {
  return phase == OT_PHASE_FORWARD || phase == OT_PHASE_INPUT || phase == OT_PHASE_WEIGHT ||
         phase == OT_PHASE_BACKWARD;
}

double ot_order_flops(const ot_schedule *schedule, int order, bool model_only) {
  const ot_order *const run = &schedule->orders[order];
  double flops = 0;
  for (int i = 0; i < run->num_entries; i++) {
    const ot_entry *const entry = &run->entries[i];
    if (model_only && !is_model_phase(entry->phase)) continue;
    flops += ot_segment_flops(&schedule->segments[entry->segment], model_only);
  }
  return flops;
}

double ot_order_update_flops(const ot_schedule *schedule, int order) {
  const ot_order *const run = &schedule->orders[order];
  double flops = 0;
  for (int i = 0; i < run->num_entries; i++)
    if (run->entries[i].phase == OT_PHASE_UPDATE)
      flops += ot_segment_flops(&schedule->segments[run->entries[i].segment], false);
  return flops;
}

// ---- hash ----

uint64_t ot_schedule_hash(const ot_schedule *schedule) {
  uint64_t hash = OT_HASH_START;
  const int64_t head[] = {schedule->threads, schedule->compute, schedule->arena_bytes};
  hash = ot_hash_bytes(hash, head, sizeof head);
  for (int i = 0; i < schedule->num_segments; i++) {
    hash = ot_hash_bytes(hash, &schedule->segments[i].hash, sizeof(uint64_t));
  }
  for (int i = 0; i < schedule->num_orders; i++) {
    const ot_order *const order = &schedule->orders[i];
    for (int k = 0; k < order->num_entries; k++) {
      const ot_entry *const entry = &order->entries[k];
      const int64_t fields[] = {entry->segment, entry->lane, entry->block, entry->micro_batch};
      hash = ot_hash_bytes(hash, fields, sizeof fields);
      hash = ot_hash_bytes(hash, entry->wait, sizeof entry->wait);
      hash = ot_hash_bytes(hash, entry->base, sizeof entry->base);
    }
  }
  return hash;
}

// ---- print ----

static void print_operand(const ot_operand *operand, ot_text_builder *text) {
  if (operand->base == OT_BASE_NONE) {
    ot_text_appendf(text, " -");
    return;
  }
  ot_text_appendf(text, " %s+%lld:%s[", base_names[operand->base], (long long)operand->offset,
                  ot_dtype_name(operand->type.dtype));
  for (int i = 0; i < operand->type.rank; i++) {
    ot_text_appendf(text, i > 0 ? ",%lld" : "%lld", (long long)operand->type.dim[i]);
  }
  ot_text_appendf(text, "]");
}

static void print_task(const ot_segment *segment, int index, ot_text_builder *text) {
  const ot_task *const task = &segment->tasks[index];
  const ot_op_info *const info = ot_op_info_of(task->op);
  const bool repeated = ot_segment_repeat_of(segment, index) >= 0;
  ot_text_appendf(text, repeated ? "  | %-14s" : "  %-16s", info->name);
  for (int i = 0; i < info->num_inputs; i++) print_operand(&task->in[i], text);
  ot_text_appendf(text, " ->");
  for (int i = 0; i < info->num_outputs; i++) print_operand(&task->out[i], text);
  if (task->workspace_bytes > 0) {
    ot_text_appendf(text, " workspace=%lld+%lld", (long long)task->workspace,
                    (long long)task->workspace_bytes);
  }
  ot_attributes_print(&task->attributes, text);
  if (task->lane != OT_LANE_COMPUTE) ot_text_appendf(text, " lane=%s", ot_lane_name(task->lane));
  if (task->wait >= 0) ot_text_appendf(text, " wait=%d", task->wait);
  if (task->joins) ot_text_put(text, " joins");
  ot_text_appendf(text, "\n");
}

static void print_entry(const ot_schedule *schedule, const ot_entry *entry, ot_text_builder *text) {
  ot_text_appendf(text, "  %-8s %-24s", ot_lane_name(entry->lane),
                  schedule->segments[entry->segment].name);
  if (entry->block >= 0) ot_text_appendf(text, " block=%d", entry->block);
  if (entry->micro_batch >= 0) ot_text_appendf(text, " micro_batch=%d", entry->micro_batch);
  for (int i = 0; i < OT_LANES; i++) {
    if (entry->wait[i] >= 0) ot_text_appendf(text, " wait=%d", entry->wait[i]);
  }
  for (int i = 0; i < OT_BASES; i++) {
    if (entry->base[i] < 0) continue;
    ot_text_appendf(text, " %s=%lld", base_names[i], (long long)entry->base[i]);
  }
  ot_text_appendf(text, "\n");
}

const char *ot_schedule_print(const ot_schedule *schedule, ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  ot_text_appendf(&text, "schedule compute=%s threads=%d arena=%lld hash=%016llx\n",
                  ot_dtype_name(schedule->compute), schedule->threads,
                  (long long)schedule->arena_bytes, (unsigned long long)ot_schedule_hash(schedule));
  for (int i = 0; i < schedule->num_regions; i++) {
    const ot_region *const region = &schedule->regions[i];
    ot_text_appendf(&text, "region %-28s %-11s %12lld + %lld%s\n", region->name,
                    ot_memory_class_name(region->class), (long long)region->offset,
                    (long long)region->bytes, region->persistent ? "" : " *");
  }
  for (int i = 0; i < schedule->num_segments; i++) {
    const ot_segment *const segment = &schedule->segments[i];
    ot_text_appendf(&text, "segment %d %s scratch=%lld\n", i, segment->name,
                    (long long)segment->scratch_bytes);
    for (int k = 0; k < segment->num_tasks; k++) print_task(segment, k, &text);
  }
  for (int i = 0; i < schedule->num_orders; i++) {
    const ot_order *const order = &schedule->orders[i];
    ot_text_appendf(&text, "order %s micro_batches=%d\n", ot_order_name(order->kind),
                    order->micro_batches);
    for (int k = 0; k < order->num_entries; k++) print_entry(schedule, &order->entries[k], &text);
  }
  return ot_text_builder_text(&text);
}

bool ot_schedule_runs_head(const ot_schedule *schedule) {
  const ot_order *const order =
      &schedule->orders[ot_schedule_find_order(schedule, OT_ORDER_STEP, 0)];
  for (int i = 0; i < order->num_entries; i++) {
    const ot_entry *const entry = &order->entries[i];
    const bool forward = entry->phase == OT_PHASE_FORWARD && entry->lane == OT_LANE_COMPUTE;
    if (forward && entry->block == schedule->num_blocks - 1) return true;
  }
  return false;
}
