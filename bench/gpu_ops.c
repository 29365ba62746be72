// SPDX-License-Identifier: Apache-2.0
// Operators alone on a device: every distinct task of a model's step, or attention by sequence
// length and head size; their times, bits of two runs, and algorithms of products. Prints JSON.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "files/output_file.h"
#include "kernels/kernels.h"
#include "ops/catalog.h"
#include "ops/operands.h"
#include "support/bench_job.h"
#include "support/bench_program.h"
#include "support/bench_step.h"
#include "support/bench_tasks.h"

typedef struct settings {
  const ot_options *options;
  ot_arena *arena;
  int repeats;
  bool bits, products;
  const char *only;  // name of an op, null: all
} settings;

// ---- the tasks of a step ----

static ot_status measure_row(ot_bench_stream *s, const settings *with, ot_bench_row *row) {
  const ot_bench_op op = ot_bench_row_op(row);
  const ot_cost_kind kind = ot_op_info_of(op.kind)->cost_kind;
  if (with->products && kind != OT_COST_LINEAR && kind != OT_COST_HEAD) return OT_OK;
  if (with->only && strcmp(with->only, ot_op_info_of(op.kind)->name) != 0) return OT_OK;
  if (!ot_bench_row_independent(row)) return OT_OK;
  if (with->repeats > 0) OT_TRY(ot_bench_op_time(s, &op, with->repeats, &row->alone_s));
  if (!with->bits) return OT_OK;
  bool same;
  OT_TRY(ot_bench_op_repeat(s, &op, &same));
  row->same_bits = same;
  return OT_OK;
}

static ot_status measure_step(ot_bench_stream *s, const settings *with, ot_json_writer *json) {
  ot_bench_job job;
  ot_schedule schedule;
  ot_bench_rows rows;
  ot_graph *const graphs = ot_arena_array(with->arena, OT_MODES, sizeof *graphs);
  OT_TRY(ot_bench_job_load(with->options, with->arena, &job));
  job.request.rank.schedule.num_micro_batches = 1;
  job.request.rank.graph.threads = 1;
  OT_TRY(ot_runtime_plan(&job.request.rank, with->arena, graphs, &schedule));
  const int order = ot_schedule_find_order(&schedule, OT_ORDER_STEP, 1);
  ot_bench_rows_build(&schedule, order, with->arena, &rows);
  for (int i = 0; i < rows.num_rows; i++) {
    if (measure_row(s, with, &rows.rows[i]) == OT_OK) continue;
    rows.rows[i].error = ot_arena_format(with->arena, "%s", ot_fail_message());
  }
  ot_json_text(json, "model", job.name);
  ot_json_integer(json, "planned_bytes", schedule.arena_bytes);
  ot_bench_rows_print(&rows, "rows", json);
  return OT_OK;
}

// ---- attention ----

enum { LATENT = 192, LATENT_VALUES = 128 };  // sizes of heads of latent attention

typedef struct attention_case {
  int64_t T, head_dim, tokens, width;
} attention_case;

static ot_bench_op attention_of(const attention_case *c, ot_backend backend) {
  const int64_t heads = c->width / c->head_dim;
  return (ot_bench_op){
      .kind = OT_OP_ATTENTION,
      .attributes = {.threads = 1,
                     .backend = backend,
                     .compute = OT_F32,
                     .sequence_length = c->T,
                     .num_heads = heads,
                     .num_kv_heads = heads,
                     .head_dim = c->head_dim,
                     .value_dim = c->head_dim == LATENT ? LATENT_VALUES : 0,
                     .num_sequences = c->tokens / c->T,
                     .scale = 1 / sqrt((double)c->head_dim)},
      .types = {.in = {ot_type_matrix(OT_BF16, c->tokens, 3 * heads * c->head_dim)}}};
}

static ot_bench_op gradient_of(const ot_bench_op *forward) {
  ot_bench_op op = {.kind = OT_OP_ATTENTION_GRAD, .attributes = forward->attributes};
  op.types.in[0] = op.types.in[4] = forward->types.out[0];
  op.types.in[1] = forward->types.in[0];
  op.types.in[5] = forward->types.out[1];
  return op;
}

static ot_status print_attention(ot_bench_stream *s, const settings *with, const attention_case *c,
                                 ot_json_writer *json) {
  ot_bench_op forward = attention_of(c, s->backend);
  double forward_s, backward_s;
  OT_TRY(ot_op_infer(forward.kind, &forward.attributes, &forward.types));
  ot_bench_op backward = gradient_of(&forward);
  OT_TRY(ot_op_infer(backward.kind, &backward.attributes, &backward.types));
  OT_TRY(ot_bench_op_time(s, &forward, with->repeats, &forward_s));
  OT_TRY(ot_bench_op_time(s, &backward, with->repeats, &backward_s));
  const ot_cost cost = ot_op_cost(forward.kind, &forward.attributes, &forward.types);
  ot_json_object(json, NULL);
  ot_json_integer(json, "sequence", c->T);
  ot_json_integer(json, "head_dim", c->head_dim);
  ot_json_integer(json, "heads", forward.attributes.num_heads);
  ot_json_integer(json, "batch", c->tokens / c->T);
  ot_json_real(json, "forward_s", forward_s);
  ot_json_real(json, "backward_s", backward_s);
  ot_json_real(json, "forward_flops_per_s", cost.matrix_flops / forward_s);
  ot_json_real(json, "backward_flops_per_s", 2.5 * cost.matrix_flops / backward_s);
  ot_json_end(json);
  return OT_OK;
}

static ot_status measure_attention(ot_bench_stream *s, const settings *with, ot_json_writer *json) {
  static const int64_t head_dims[] = {64, 96, 128, LATENT, 256};
  const int64_t tokens = ot_options_integer(with->options, "tokens");
  const int64_t first = ot_options_integer(with->options, "shortest");
  ot_json_array(json, "attention");
  for (int64_t T = first; T <= tokens; T *= 2) {
    for (int i = 0; i < OT_COUNT(head_dims); i++) {
      const attention_case c = {.T = T,
                                .head_dim = head_dims[i],
                                .tokens = tokens,
                                .width = ot_options_integer(with->options, "width")};
      if (c.head_dim > c.width) continue;
      OT_TRY(print_attention(s, with, &c, json));
    }
  }
  ot_json_end(json);
  return OT_OK;
}

// ---- the program ----

static ot_status race(ot_bench_stream *s, const settings *with, ot_json_writer *json) {
  const char *const path = ot_options_text(with->options, "write-table");
  const char *const raced =
      ot_kernel_algorithms_race(s->backend, s->context, with->repeats, with->arena);
  ot_json_raw(json, "products", raced ? raced : "[]");
  const char *const table = ot_kernel_algorithms_print(s->backend, s->context, with->arena);
  if (!path || !table) return OT_OK;
  return ot_output_file_replace(path, table, (int64_t)strlen(table));
}

static ot_status measure(ot_bench_stream *s, settings *with) {
  ot_json_writer json = ot_json_begin(with->arena, 0);
  ot_json_object(&json, NULL);
  if (ot_options_flag(with->options, "attention")) {
    OT_TRY(measure_attention(s, with, &json));
  } else {
    OT_TRY(measure_step(s, with, &json));
  }
  if (with->products) OT_TRY(race(s, with, &json));
  ot_json_end(&json);
  puts(json.text);
  return OT_OK;
}

static ot_status run_program(const ot_options *options) {
  settings with = {.options = options,
                   .arena = ot_options_arena(options),
                   .repeats = (int)ot_options_integer(options, "repeats"),
                   .bits = ot_options_flag(options, "bits"),
                   .products = ot_options_flag(options, "race"),
                   .only = ot_options_text(options, "only")};
  ot_bench_stream stream;
  OT_TRY(ot_bench_stream_create((ot_backend)ot_options_choice(options, "device"), &stream));
  const ot_status status = measure(&stream, &with);
  ot_bench_stream_destroy(&stream);
  return status;
}

static const ot_option options[] = {
    {.shared = &ot_bench_job_rows.model},
    {.shared = &ot_bench_job_rows.sequence},
    {.shared = &ot_bench_job_rows.micro_batch},
    {.shared = &ot_bench_job_rows.micro_batches},
    {.shared = &ot_bench_job_rows.precision},
    {.shared = &ot_bench_job_rows.recompute},
    {.shared = &ot_bench_job_rows.device},
    {"repeats", OT_OPTION_INTEGER, "R", "10", 0, OT_BENCH_REPEATS,
     .help = "times per median; 0: none"},
    {"bits", OT_OPTION_FLAG, .help = "run each operator twice and compare bits"},
    {"only", OT_OPTION_TEXT, "OP", .help = "one operator"},
    {"race", OT_OPTION_FLAG, .help = "products only, and the algorithms that run them"},
    {"write-table", OT_OPTION_PATH, "FILE", .help = "with --race, where to write gemm.table"},
    {"attention", OT_OPTION_FLAG, .help = "attention by sequence length and head size instead"},
    {"tokens", OT_OPTION_INTEGER, "N", "16384", 16, 1 << 24,
     .help = "with --attention, of all sequences"},
    {"shortest", OT_OPTION_INTEGER, "T", "1024", 1, 1 << 24,
     .help = "with --attention, shortest sequence"},
    {"width", OT_OPTION_INTEGER, "C", "2048", 128, 65536,
     .help = "with --attention, of all heads, at most"},
};

const ot_verb ot_bench_program = {
    .prefix = OT_BENCH_PREFIX,
    .name = "gpu_ops",
    .summary = "operators alone on a device, as JSON",
    .arguments = "",
    .options = options,
    .num_options = OT_COUNT(options),
    .run = run_program,
};
