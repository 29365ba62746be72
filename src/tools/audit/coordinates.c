// SPDX-License-Identifier: Apache-2.0
// `audit coordinates`: the coordinate check of Yang et al. 2022 (arXiv 2203.03466, appendix D.1),
// in depth as Dey et al. 2025 (arXiv 2505.01618). Small models of the run's family, each twice as
// large as the one before, take a few steps with the run's optimizer and parametrization. Under a
// parametrization whose learning rate transfers, no size grows with the model, and what steps
// change does not vanish either:
//
//   stream   the residual stream after the last layer, and its change by the steps
//   logits   and their change
//   scores   the largest attention score after four times as many steps, if head_dim grows; queries
//            start at zero here, so that scores are learned alone
//
// A size x is fitted as x ~ size^slope, over sizes and seeds. The steps repeat one batch of the
// run.
#include <math.h>
#include <stdlib.h>

#include "audit/audit.h"
#include "audit/ladder_model.h"
#include "audit/variant.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "checkpoint/elements.h"
#include "data/data_loader.h"
#include "runtime/health.h"

enum { SIZES = 3, SEEDS = 3, STEPS = 5, SEQUENCES = 8, TOKENS = 32 };

typedef enum coordinate {
  STREAM,
  STREAM_CHANGE,
  LOGITS,
  LOGITS_CHANGE,
  SCORES,
  COORDINATES,
} coordinate;

// Bounds of slopes. Theory has 0 for sound ones and 0.5 to 1 for faults. Measured on text with the
// learning rates 1e-3, 5e-3 and 2e-2, embeddings tied or not: -0.20 to 0.27 for sound ones, from
// 0.62 on for a head with the rate of standard, from 0.80 on for layers without their factor;
// scores -0.25 to 0.07, and 0.17 to 0.31 with 1/sqrt(head_dim), while below 10.
static const double SATURATED = 10;  // a score, above which attention attends to one token

typedef struct coordinate_rule {
  const char *name, *text;
  double least, most;
  const char *advice;
} coordinate_rule;

static const coordinate_rule rules[] = {
    [STREAM] = {"stream", "the residual stream", -INFINITY, 0.4,
                "compare initial weights and the factors of residual branches"},
    [STREAM_CHANGE] = {"stream_change", "the change of the residual stream", -0.5, 0.4,
                       "compare the learning rates of matrices, and the factors of branches"},
    [LOGITS] = {"logits", "the size of logits", -INFINITY, 0.4,
                "compare the initial weights of the head"},
    [LOGITS_CHANGE] = {"logits_change", "the change of logits", -0.5, 0.4,
                       "compare the learning rate of the head, or its factor of logits"},
    [SCORES] = {"scores", "the largest attention score", -0.5, 0.12,
                "scores must be divided by head_dim, not by its root, where it grows"},
};

typedef struct coordinates_audit {
  const ot_audit_request *request;
  const ot_run *run;
  ot_audit_report *report;
  ot_micro_batch rows;
  int steps;
  double *before[2], *after[2];  // stream and logits: [R, columns]
  double sizes[OT_GROWTHS][SIZES];
  double means[OT_GROWTHS][COORDINATES][SIZES];  // of logarithms, over seeds
  ot_text_builder table;
} coordinates_audit;

// ---- data ----

static ot_status read_rows(coordinates_audit *a) {
  ot_data_loader *loader = NULL;
  ot_micro_batch whole = {0};
  const int64_t own = a->run->data.sequence_length, T = own < TOKENS ? own : TOKENS;
  ot_status status = ot_data_loader_create(a->run, &loader);
  if (status == OT_OK) status = ot_micro_batch_create(SEQUENCES, own, &whole);
  if (status == OT_OK) status = ot_data_loader_train(loader, 0, &whole);
  if (status == OT_OK) status = ot_micro_batch_create(SEQUENCES, T, &a->rows);
  for (int64_t i = 0; status == OT_OK && i < SEQUENCES * T; i++) {
    const int64_t at = i / T * own + i % T;
    a->rows.tokens[i] = whole.tokens[at] % OT_LADDER_VOCABULARY;
    a->rows.targets[i] = i % T + 1 < T ? whole.tokens[at + 1] % OT_LADDER_VOCABULARY : -1;
    a->rows.positions[i] = (int32_t)(i % T);
    a->rows.doc_starts[i] = 0;
    a->rows.sample_ids[i / T] = i / T;
  }
  a->rows.num_targets = SEQUENCES * (T - 1);
  ot_micro_batch_release(&whole);
  ot_data_loader_destroy(&loader);
  return status;
}

static void load(ot_runtime *runtime, ot_mode mode, const ot_micro_batch *rows) {
  ot_runtime_load_batch(runtime, mode, 0, OT_BATCH_TOKENS, rows->tokens);
  ot_runtime_load_batch(runtime, mode, 0, OT_BATCH_TARGETS, rows->targets);
  ot_runtime_load_batch(runtime, mode, 0, OT_BATCH_POSITIONS, rows->positions);
  ot_runtime_load_batch(runtime, mode, 0, OT_BATCH_DOC_STARTS, rows->doc_starts);
  ot_runtime_load_batch(runtime, mode, 0, OT_BATCH_SAMPLE_IDS, rows->sample_ids);
}

// ---- one model ----

// The run on one rank with a small model, in float32; base sizes are those of the smallest.
static ot_run small_run(const coordinates_audit *a, ot_growth growth, int factor) {
  ot_run run = ot_variant_one_rank(a->request->trainer);
  const int64_t T = a->rows.T;
  const ot_model base = ot_ladder_model(&a->run->model, growth, 1, T);
  ot_parametrization *const p = &run.parametrization;
  run.optimizer = a->run->optimizer;
  run.precision = (ot_run_precision){.compute = OT_F32,
                                     .params = OT_F32,
                                     .gradients = OT_F32,
                                     .master = OT_F32,
                                     .moments = OT_F32,
                                     .reduce = OT_F32};
  run.model = ot_ladder_model(&a->run->model, growth, factor, T);
  p->base_hidden_size = base.hidden_size;
  if (p->base_layers > 0) p->base_layers = base.num_layers;
  if (p->base_head_dim > 0) p->base_head_dim = base.head_dim;
  if (p->base_kv_heads > 0) p->base_kv_heads = base.num_kv_heads;
  p->base_q_lora_rank = p->base_kv_lora_rank = 0;  // they stay
  if (a->request->amend_run) a->request->amend_run(&run);
  return run;
}

static ot_status create(const coordinates_audit *a, const ot_run *run, ot_runtime **out) {
  static const int one[] = {1};
  const ot_runtime_request request = {
      .rank = {.modes = 1u << OT_MODE_TRAIN | 1u << OT_MODE_LOGITS,
               .graph = {.model = &run->model,
                         .micro_batch_size = a->rows.B,
                         .sequence_length = a->rows.T,
                         .compute = OT_F32,
                         .storage = OT_F32,
                         .threads = run->threads},
               .schedule = {.run = run, .micro_batches = one, .num_micro_batches = 1}}};
  return ot_runtime_create(&request, out);
}

// Writes zeros to what scales queries last: their norm, or the projection that makes them.
static void silence_queries(ot_runtime *runtime, const ot_model *model) {
  const ot_graph *const graph = ot_runtime_whole_graph(runtime);
  const bool normed = model->qk_norm != OT_QK_NORM_NONE;
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    const bool first =
        ot_text_matches(p->name, normed ? "*.q_norm.weight" : "*.attention.q*weight");
    if (!first || ot_text_matches(p->name, "*.q_down.weight")) continue;
    const int64_t count = p->parts[0].rows * p->cols;
    float *const values = calloc((size_t)count, sizeof *values);
    for (int64_t n = 0; values && n < count && normed; n++) values[n] = (float)-model->norm_offset;
    const ot_parameter_rows range = {i, OT_COPY_WEIGHT, 0, p->parts[0].rows};
    if (values) ot_runtime_write(runtime, &range, values);
    free(values);
  }
}

static ot_status step(ot_runtime *runtime, const ot_run *run, const ot_micro_batch *rows, int t) {
  ot_executor *const executor = ot_runtime_executor(runtime);
  const ot_run_optimizer *const o = &run->optimizer;
  load(runtime, OT_MODE_TRAIN, rows);
  ot_executor_set_scalar(executor, OT_SCALAR_LEARNING_RATE, o->lr);
  ot_executor_set_scalar(executor, OT_SCALAR_CORRECTION_1, 1 / (1 - pow(o->betas[0], t)));
  ot_executor_set_scalar(executor, OT_SCALAR_CORRECTION_2, 1 / (1 - pow(o->betas[1], t)));
  ot_executor_set_scalar(executor, OT_SCALAR_TARGETS, (double)rows->num_targets);
  ot_executor_set_scalar(executor, OT_SCALAR_INVERSE_SEQUENCES, 1.0 / (double)rows->B);
  return ot_runtime_run(runtime, OT_MODE_TRAIN, 1);
}

// Where the residual stream enters the head; -1: it does not (Attention Residuals).
static int64_t stream_offset(const ot_runtime *runtime) {
  const ot_graph *const graph = ot_runtime_graph(runtime, OT_MODE_LOGITS);
  const ot_schedule *const schedule = ot_runtime_schedule(runtime);
  const ot_order *const order =
      &schedule->orders[ot_schedule_find_order(schedule, OT_ORDER_LOGITS, 0)];
  if (graph->programs[graph->blocks[graph->num_blocks - 1].program].input < 0) return -1;
  for (int i = 0; i < order->num_entries; i++) {
    const ot_entry *const entry = &order->entries[i];
    const bool forward = entry->phase == OT_PHASE_FORWARD && entry->lane == OT_LANE_COMPUTE;
    if (forward && entry->block == schedule->num_blocks - 1) return entry->base[OT_BASE_INPUT];
  }
  return -1;
}

static int64_t columns_of(const ot_model *model, int which) {
  return which == 0 ? model->hidden_size : model->vocab_size;
}

// Stream and logits of the batch into `out`.
static ot_status measure_coordinates(ot_runtime *runtime, const ot_model *model,
                                     const ot_micro_batch *rows, double *out[2]) {
  const int64_t R = rows->B * rows->T, offset = stream_offset(runtime);
  load(runtime, OT_MODE_LOGITS, rows);
  OT_TRY(ot_runtime_run(runtime, OT_MODE_LOGITS, 0));
  for (int which = 0; which < 2; which++) {
    const int64_t n = R * columns_of(model, which), bytes = n * (int64_t)sizeof(float);
    void *const raw = calloc(1, (size_t)bytes);
    OT_CHECK(raw, OT_ENVIRONMENT, "out of memory for activations");
    if (which == 1) {
      ot_runtime_read_result(runtime, OT_MODE_LOGITS, OT_RESULT_LOGITS, raw, bytes);
    } else if (offset >= 0) {
      ot_executor_read(ot_runtime_executor(runtime), offset, raw, bytes);
    }
    ot_elements_convert(OT_F32, raw, OT_F64, out[which], n);
    free(raw);
  }
  return OT_OK;
}

static double rms(const double *x, const double *less, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    const double d = x[i] - (less ? less[i] : 0);
    sum += d * d;
  }
  return sqrt(sum / (double)n);
}

static ot_status largest_score(ot_runtime *runtime, double *score) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_health health;
  const ot_status status = ot_health_read(runtime, NULL, &arena, &health);
  *score = 0;
  for (int i = 0; status == OT_OK && i < health.num_blocks; i++) {
    *score = fmax(*score, health.max_logit[i].value);
  }
  ot_heap_release(&heap);
  return status;
}

static ot_status run_steps(coordinates_audit *a, const ot_run *run, int steps, ot_runtime *runtime,
                           double values[COORDINATES]) {
  const ot_model *const model = &run->model;
  OT_TRY(measure_coordinates(runtime, model, &a->rows, a->before));
  for (int t = 1; t <= steps; t++) OT_TRY(step(runtime, run, &a->rows, t));
  OT_TRY(largest_score(runtime, &values[SCORES]));
  OT_TRY(measure_coordinates(runtime, model, &a->rows, a->after));
  for (int which = 0; which < 2; which++) {
    const int64_t n = a->rows.B * a->rows.T * columns_of(model, which);
    values[which == 0 ? STREAM : LOGITS] = rms(a->after[which], NULL, n);
    values[which == 0 ? STREAM_CHANGE : LOGITS_CHANGE] = rms(a->after[which], a->before[which], n);
  }
  return OT_OK;
}

static ot_status measure(coordinates_audit *a, ot_growth growth, int factor, int seed,
                         double values[COORDINATES]) {
  const ot_run run = small_run(a, growth, factor);
  ot_runtime *runtime = NULL;
  ot_status status = create(a, &run, &runtime);
  const uint64_t first = a->request->seed > 0 ? a->request->seed : (uint64_t)a->run->seed;
  if (status == OT_OK) status = ot_runtime_initialize(runtime, first + (uint64_t)seed);
  if (status == OT_OK) {
    silence_queries(runtime, &run.model);
    const int steps = growth == OT_GROWTH_HEAD_DIM ? 4 * a->steps : a->steps;
    status = run_steps(a, &run, steps, runtime, values);
  }
  ot_runtime_destroy(&runtime);
  return status;
}

// ---- sizes ----

static ot_status measure_all(coordinates_audit *a, ot_growth growth) {
  for (int i = 0; i < SIZES; i++) {
    const ot_model model = ot_ladder_model(&a->run->model, growth, 1 << i, a->rows.T);
    a->sizes[growth][i] = (double)ot_ladder_size(&model, growth);
    for (int seed = 0; seed < SEEDS; seed++) {
      double values[COORDINATES];
      OT_TRY(measure(a, growth, 1 << i, seed, values));
      for (int c = 0; c < COORDINATES; c++) a->means[growth][c][i] += log(values[c]) / SEEDS;
    }
  }
  return OT_OK;
}

// The slope of the least squares line through the logarithms.
static double slope_of(const double *sizes, const double *logs) {
  double x = 0, y = 0, xx = 0, xy = 0;
  for (int i = 0; i < SIZES; i++) {
    x += log(sizes[i]) / SIZES;
    y += logs[i] / SIZES;
  }
  for (int i = 0; i < SIZES; i++) {
    xx += (log(sizes[i]) - x) * (log(sizes[i]) - x);
    xy += (log(sizes[i]) - x) * (logs[i] - y);
  }
  return xy / xx;
}

static void judge(coordinates_audit *a, ot_growth growth, coordinate c, double slope) {
  const double *const logs = a->means[growth][c];
  const coordinate_rule *const rule = &rules[c];
  if (c == SCORES && exp(logs[0]) > SATURATED) {
    ot_audit_inconclusive(a->report,
                          "scores reach %.3g, where attention is saturated: they are "
                          "judged with a smaller learning rate only",
                          exp(logs[0]));
    return;
  }
  const bool grows = !(slope <= rule->most);
  if (!grows && slope >= rule->least) return;
  ot_audit_find(a->report, rule->name, ot_growth_names[growth], rule->advice,
                "%s %s like %s^%.2f: %.3g at %.0f, %.3g at %.0f", rule->text,
                grows ? "grows" : "vanishes", ot_growth_names[growth], slope, exp(logs[0]),
                a->sizes[growth][0], exp(logs[SIZES - 1]), a->sizes[growth][SIZES - 1]);
}

// With more heads or layers there are more scores, and so a larger one.
static bool is_compared(const ot_run *run, ot_growth growth, coordinate c) {
  if (c == SCORES || growth == OT_GROWTH_HEAD_DIM) {
    return c == SCORES && growth == OT_GROWTH_HEAD_DIM;
  }
  return c > STREAM_CHANGE || run->model.residuals.block_size == 0;
}

static void report(coordinates_audit *a, ot_growth growth, ot_json_writer *json) {
  ot_json_object(json, ot_growth_names[growth]);
  ot_json_array(json, "sizes");
  for (int i = 0; i < SIZES; i++) ot_json_real(json, NULL, a->sizes[growth][i]);
  ot_json_end(json);
  for (int c = 0; c < COORDINATES; c++) {
    const double *const logs = a->means[growth][c];
    const double slope = slope_of(a->sizes[growth], logs);
    if (!is_compared(a->run, growth, (coordinate)c)) continue;
    ot_text_appendf(&a->table, "  %-9s %-14s", ot_growth_names[growth], rules[c].name);
    ot_json_object(json, rules[c].name);
    ot_json_array(json, "values");
    for (int i = 0; i < SIZES; i++) {
      ot_json_real(json, NULL, exp(logs[i]));
      ot_text_appendf(&a->table, " %10.3g", exp(logs[i]));
    }
    ot_json_end(json);
    ot_json_real(json, "slope", slope);
    ot_json_end(json);
    ot_text_appendf(&a->table, "   slope %5.2f\n", slope);
    judge(a, growth, (coordinate)c, slope);
  }
  ot_json_end(json);
}

// ---- the audit ----

static ot_status allocate_memory(coordinates_audit *a) {
  const int64_t R = a->rows.B * a->rows.T;
  for (int which = 0; which < 2; which++) {
    int64_t columns = OT_LADDER_VOCABULARY;
    for (int g = 0; g < OT_GROWTHS && which == 0; g++) {
      const ot_model most =
          ot_ladder_model(&a->run->model, (ot_growth)g, 1 << (SIZES - 1), a->rows.T);
      if (most.hidden_size > columns) columns = most.hidden_size;
    }
    a->before[which] = ot_arena_array(a->report->arena, R * columns, sizeof(double));
    a->after[which] = ot_arena_array(a->report->arena, R * columns, sizeof(double));
  }
  return OT_OK;
}

// Sizes that the run's parametrization has a rule for; with `standard` those of every ladder.
static bool is_checked(const ot_run *run, ot_growth growth) {
  const ot_parametrization *const p = &run->parametrization;
  const bool standard = !ot_parametrization_scales(p);
  if (growth == OT_GROWTH_HEAD_DIM) return p->base_head_dim > 0;
  if (growth == OT_GROWTH_LAYERS) {
    return (standard || p->base_layers > 0) && run->model.residuals.block_size == 0;
  }
  return true;
}

static ot_status check(coordinates_audit *a) {
  ot_json_writer json = ot_json_begin(a->report->arena, 0);
  OT_TRY(read_rows(a));
  OT_TRY(allocate_memory(a));
  ot_json_object(&json, NULL);
  ot_json_text(&json, "parametrization", ot_parametrization_names[a->run->parametrization.name]);
  ot_json_integer(&json, "steps", a->steps);
  ot_json_integer(&json, "seeds", SEEDS);
  for (int g = 0; g < OT_GROWTHS; g++) {
    if (!is_checked(a->run, (ot_growth)g)) continue;
    OT_TRY(measure_all(a, (ot_growth)g));
    report(a, (ot_growth)g, &json);
  }
  ot_json_end(&json);
  a->report->figures = json.text;
  a->report->table = ot_text_builder_text(&a->table);
  return OT_OK;
}

ot_status ot_audit_coordinates(const ot_audit_request *request, ot_arena *arena,
                               ot_audit_report *report_out) {
  ot_world *const world = ot_trainer_world(request->trainer);
  *report_out = (ot_audit_report){.audit = "coordinates", .arena = arena};
  coordinates_audit a = {.request = request,
                         .run = ot_trainer_run(request->trainer),
                         .report = report_out,
                         .steps = request->steps > 0 ? request->steps : STEPS,
                         .table = {.arena = arena}};
  const ot_status status = ot_world_is_leader(world) ? check(&a) : OT_OK;
  ot_micro_batch_release(&a.rows);
  OT_TRY(ot_world_agree(world, status));
  report_out->summary = ot_arena_format(
      arena, "%d steps of small models, %d sizes each, %d seeds, parametrization %s", a.steps,
      SIZES, SEEDS, ot_parametrization_names[a.run->parametrization.name]);
  return OT_OK;
}
