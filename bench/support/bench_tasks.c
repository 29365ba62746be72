// SPDX-License-Identifier: Apache-2.0
// Rows are found by their keys.
#include "support/bench_tasks.h"

#include <string.h>

#include "base/text.h"
#include "base/text_builder.h"
#include "ops/catalog.h"
#include "schedule/joined.h"

// ---- keys ----

static void print_types(const ot_tensor_type *types, int count, ot_text_builder *text) {
  for (int i = 0; i < count; i++) {
    if (types[i].rank == 0) continue;
    ot_text_appendf(text, " %s[", ot_dtype_name(types[i].dtype));
    for (int k = 0; k < types[i].rank; k++) {
      ot_text_appendf(text, "%s%lld", k > 0 ? "," : "", (long long)types[i].dim[k]);
    }
    ot_text_put(text, "]");
  }
}

static const char *key_of(const ot_task *task, ot_arena *arena) {
  const ot_op_types types = ot_task_types(task);
  const ot_op_attributes *const a = &task->attributes;
  ot_text_builder text = {.arena = arena};
  ot_text_put(&text, ot_task_name(task));
  print_types(types.in, OT_MAX_INPUTS, &text);
  ot_text_put(&text, a->accumulate ? " +>" : " ->");
  print_types(types.out, OT_MAX_OUTPUTS, &text);
  if (a->head_dim > 0)
    ot_text_appendf(&text, ", T %lld, %lld heads, %lld of keys, head size %lld",
                    (long long)a->sequence_length, (long long)a->num_heads,
                    (long long)a->num_kv_heads, (long long)a->head_dim);
  if (a->window > 0) ot_text_appendf(&text, ", window %lld", (long long)a->window);
  return ot_text_builder_text(&text);
}

// ---- rows ----

static ot_bench_row *row_of(ot_bench_rows *rows, const ot_task *task) {
  const char *const key = key_of(task, rows->arena);
  for (int i = 0; i < rows->num_rows; i++) {
    if (ot_text_equal(rows->rows[i].key, key)) return &rows->rows[i];
  }
  OT_ASSERT(rows->num_rows < rows->capacity);
  ot_bench_row *const made = &rows->rows[rows->num_rows++];
  *made = (ot_bench_row){.key = key, .task = task, .same_bits = -1};
  return made;
}

static int count_tasks(const ot_schedule *schedule) {
  int count = 0;
  for (int i = 0; i < schedule->num_segments; i++) count += schedule->segments[i].num_tasks;
  return count;
}

void ot_bench_rows_build(const ot_schedule *schedule, int order, ot_arena *arena,
                         ot_bench_rows *out) {
  const int capacity = count_tasks(schedule);
  *out =
      (ot_bench_rows){.capacity = capacity, .schedule = schedule, .order = order, .arena = arena};
  out->rows = ot_arena_array(arena, capacity + 1, sizeof *out->rows);
  const ot_order *const o = &schedule->orders[order];
  for (int i = 0; i < o->num_entries; i++) {
    const ot_segment *const segment = &schedule->segments[o->entries[i].segment];
    for (int k = 0; k < segment->num_tasks; k++) {
      if (segment->tasks[k].kind == OT_TASK_COMPUTE) row_of(out, &segment->tasks[k])->count++;
    }
  }
}

static double bytes_of(const ot_task *task) {
  const ot_cost cost = ot_task_cost(task);
  return cost.bytes_read + cost.bytes_written;
}

// Adds the time of the launch that begins at `task`, by the bytes of its tasks.
static void add_launch(ot_bench_rows *rows, const ot_segment *segment, int task, double seconds) {
  const int count = ot_segment_launch(segment, task);
  const ot_task *const tasks = &segment->tasks[task];
  double bytes = 0;
  for (int i = 0; i < count; i++) bytes += bytes_of(&tasks[i]);
  for (int i = 0; i < count; i++) {
    row_of(rows, &tasks[i])->step_s += count > 1 ? seconds * bytes_of(&tasks[i]) / bytes : seconds;
  }
}

void ot_bench_rows_add(ot_bench_rows *rows, const ot_timeline *timeline) {
  const ot_order *const order = &rows->schedule->orders[timeline->order];
  for (int64_t i = 0; i < timeline->num_spans; i++) {
    const ot_span *const span = &timeline->spans[i];
    const ot_segment *const segment =
        &rows->schedule->segments[order->entries[span->entry].segment];
    if (segment->tasks[span->task].kind == OT_TASK_COMPUTE) {
      add_launch(rows, segment, span->task, span->end_s - span->start_s);
    }
  }
}

ot_status ot_bench_rows_predict(ot_bench_rows *rows, const ot_simulation *simulation) {
  static const ot_group_shape alone[OT_GROUP_KINDS];
  for (int i = 0; i < rows->num_rows; i++) {
    ot_price price;
    OT_TRY(ot_price_task(simulation, alone, rows->rows[i].task, &price));
    rows->rows[i].predicted_s = price.device_s;
  }
  return OT_OK;
}

// ---- one of them ----

static bool same_place(const ot_operand *a, const ot_operand *b) {
  return a->type.rank > 0 && b->type.rank > 0 && a->base == b->base && a->offset == b->offset;
}

ot_bench_op ot_bench_row_op(const ot_bench_row *row) {
  const ot_task *const task = row->task;
  ot_bench_op op = {.kind = task->op, .attributes = task->attributes, .types = ot_task_types(task)};
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    for (int k = 0; k < OT_MAX_INPUTS; k++) {
      if (same_place(&task->out[i], &task->in[k])) op.alias[i] = k + 1;
    }
  }
  return op;
}

bool ot_bench_row_independent(const ot_bench_row *row) {
  const ot_cost_kind kind = ot_op_info_of(row->task->op)->cost_kind;
  const bool offsets = row->task->op == OT_OP_GLU || row->task->op == OT_OP_GLU_GRAD;
  if (offsets && row->task->in[2].type.rank + row->task->in[3].type.rank > 0) return false;
  return kind != OT_COST_EXPERT_PASS && kind != OT_COST_GROUPED && kind != OT_COST_COMMUNICATION;
}

// ---- print ----

static const char *kind_name(ot_cost_kind kind) {
  switch (kind) {
    case OT_COST_LINEAR:
      return "product";
    case OT_COST_GROUPED:
      return "experts' products";
    case OT_COST_ATTENTION:
      return "attention";
    case OT_COST_HEAD:
      return "head";
    case OT_COST_UNKNOWN:
    case OT_COST_PASS:
    case OT_COST_EXPERT_PASS:
    case OT_COST_COMMUNICATION:
      break;
  }
  return "pass";
}

static void print_seconds(ot_json_writer *json, const char *key, double seconds) {
  if (seconds > 0) ot_json_real(json, key, seconds);
}

static void print_row(const ot_bench_row *row, ot_json_writer *json) {
  const ot_cost cost = ot_task_cost(row->task);
  ot_json_object(json, NULL);
  ot_json_text(json, "op", ot_task_name(row->task));
  ot_json_text(json, "key", row->key);
  ot_json_text(json, "kind", kind_name(ot_op_info_of(row->task->op)->cost_kind));
  ot_json_integer(json, "count", row->count);
  ot_json_integer(json, "rows", row->task->in[0].type.dim[0]);
  ot_json_real(json, "matrix_flops", cost.matrix_flops);
  ot_json_real(json, "model_flops", cost.matrix_flops - cost.repeated_flops);
  ot_json_real(json, "bytes", bytes_of(row->task));
  print_seconds(json, "step_s", row->step_s);
  print_seconds(json, "alone_s", row->alone_s);
  print_seconds(json, "predicted_s", row->predicted_s);
  if (row->error) ot_json_text(json, "error", row->error);
  if (row->same_bits >= 0) ot_json_boolean(json, "same_bits", row->same_bits == 1);
  ot_json_end(json);
}

void ot_bench_rows_print(const ot_bench_rows *rows, const char *key, ot_json_writer *json) {
  ot_json_array(json, key);
  for (int i = 0; i < rows->num_rows; i++) print_row(&rows->rows[i], json);
  ot_json_end(json);
}
