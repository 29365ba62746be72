// SPDX-License-Identifier: Apache-2.0
// Error of a tensor, everywhere in this project: max|a-b| / max(max|b|, 1e-3 x rms of all
// gradients).
#include "support/parity_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "describe/model_keys.h"
#include "files/tree_file.h"
#include "support/scratch.h"

const char *const parity_cases[] = {
    "gpt2",
    "gpt2-packed",
    "gpt2-untied",
    "llama",
    "llama-packed",
    "llama-tied-bias",
    "llama3.1",
    "llama-linear",
    "qwen2-sliding",
    "qwen3",
    "qwen3-sliding",
    "qwen3-sliding-packed",
    "olmo2",
    "mistral",
    "gemma2",
    "gemma2-packed",
    "gemma3",
    "gemma3-packed",
    "mixtral",
    "mixtral-packed",
    "mixtral-balanced",
    "qwen3-moe",
    "llama-residuals",
    "gemma3-odd-residuals",
    "qwen3-moe-residuals",
    "olmoe",
    "deepseek-v3",
    "deepseek-v3-yarn",
    "gpt-oss",
    "gpt-oss-packed",
    "deepseek-v3-epsilon",
    "deepseek-v3-large-epsilon",
    "smollm3",
    "phi3",
    "qwen2-moe",
    "olmo3",
    "kimi-k2",
    "glm4-moe",
    "glm4-moe-plain",
    NULL,
};

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s (%s)", ot_fail_message(), ot_fail_chain());
}

static char *path_of(parity_case *c, const char *file) {
  return ot_arena_format(&c->arena, "%s/tests/fixtures/parity/%s/%s", source_directory(),
                         c->request.name, file);
}

// A whole tensor as doubles; its number of elements in `count`.
static double *reals(parity_case *c, const ot_safetensors *set, const char *name, int64_t *count) {
  const int index = ot_safetensors_find(set, name);
  if (index < 0) fail_msg("%s: no tensor %s", c->request.name, name);
  *count = ot_safetensors_tensor_at(set, index)->elements;
  double *const values = ot_arena_array(&c->arena, *count + 1, sizeof *values);
  must(ot_safetensors_read(set, (ot_safetensors_range){index, 0, *count}, OT_F64, values));
  return values;
}

static const int32_t *integers(parity_case *c, const char *name, int64_t *count) {
  const int index = ot_safetensors_find(c->reference, name);
  if (index < 0) fail_msg("%s: no tensor %s", c->request.name, name);
  *count = ot_safetensors_tensor_at(c->reference, index)->elements;
  int32_t *const values = ot_arena_array(&c->arena, *count + 1, sizeof *values);
  must(ot_safetensors_read(c->reference, (ot_safetensors_range){index, 0, *count}, OT_I32, values));
  return values;
}

// ---- parameters ----

// Index of element (row, col) of a part in its HF tensor, or in its member of a stacked tensor.
static int64_t hf_element(const ot_parameter *p, const ot_parameter_part *part, int64_t row,
                          int64_t col) {
  const int64_t half = part->hf_rows / 2;
  int64_t out = part->hf_first + row;
  if (part->interleaved) out = out < half ? 2 * out : 2 * (out - half) + 1;
  return part->transposed ? col * part->hf_rows + out : out * p->cols + col;
}

// Name of the file tensor that holds a part, and the index of the part in it: "NAME[3]".
static const char *file_name(parity_case *c, const char *hf_name, int64_t *number) {
  const char *const bracket = ot_text_find(hf_name, "[");
  *number = bracket ? atoi(bracket + 1) : 0;
  return bracket ? ot_arena_text(&c->arena, hf_name, bracket - hf_name) : hf_name;
}

static double get(ot_dtype dtype, const void *data, int64_t i) {
  if (dtype == OT_F64) return ((const double *)data)[i];
  if (dtype == OT_F32) return (double)((const float *)data)[i];
  return (double)ot_bf16_to_float(((const uint16_t *)data)[i]);
}

static void set(ot_dtype dtype, void *data, int64_t i, double value) {
  if (dtype == OT_F64) ((double *)data)[i] = value;
  if (dtype == OT_F32) ((float *)data)[i] = (float)value;
  if (dtype == OT_BF16) ((uint16_t *)data)[i] = ot_bf16_from_float((float)value);
}

static void load_weights(parity_case *c) {
  const ot_graph *const graph = ot_runtime_any_graph(c->runtime);
  const ot_dtype dtype = ot_runtime_copy_dtype(c->runtime, OT_COPY_WEIGHT);
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    for (int k = 0; k < p->num_parts; k++) {
      const ot_parameter_part *const part = &p->parts[k];
      int64_t count, number;
      const char *const name = file_name(c, part->hf_name, &number);
      const int64_t own = part->hf_rows * p->cols;
      const double *const hf = reals(c, c->weights, name, &count) + number * own;
      assert_true(name == part->hf_name ? count == own : count % own == 0);
      double *const rows = ot_arena_array(&c->arena, part->rows * p->cols, sizeof *rows);
      for (int64_t e = 0; e < part->rows * p->cols; e++) {
        set(dtype, rows, e, hf[hf_element(p, part, e / p->cols, e % p->cols)]);
      }
      const ot_parameter_rows range = {i, OT_COPY_WEIGHT, part->first_row, part->rows};
      ot_runtime_write(c->runtime, &range, rows);
    }
  }
  must(ot_runtime_reset_optimizer(c->runtime));
}

// ---- batches ----

static void load_field(parity_case *c, ot_mode mode, ot_batch_field field, const char *name) {
  int64_t count;
  const int32_t *const tokens = integers(c, name, &count);
  const int64_t rows = count / c->micro_batches;
  for (int m = 0; m < c->micro_batches; m++) {
    ot_runtime_load_batch(c->runtime, mode, m, field, tokens + m * rows);
    if (mode != OT_MODE_TRAIN) return;
  }
}

static void load_batches(parity_case *c, ot_mode mode) {
  load_field(c, mode, OT_BATCH_TOKENS, "tokens");
  load_field(c, mode, OT_BATCH_TARGETS, "targets");
  load_field(c, mode, OT_BATCH_POSITIONS, "positions");
  load_field(c, mode, OT_BATCH_DOC_STARTS, "doc_start");
  const int64_t samples[PARITY_BATCH] = {0, 1};
  for (int m = 0; m < c->micro_batches; m++) {
    ot_runtime_load_batch(c->runtime, mode, m, OT_BATCH_SAMPLE_IDS, samples + m);
    if (mode != OT_MODE_TRAIN) return;
  }
}

static int64_t counted_targets(parity_case *c) {
  int64_t count;
  const int32_t *const targets = integers(c, "targets", &count);
  int64_t counted = 0;
  for (int64_t i = 0; i < count; i++) counted += targets[i] >= 0;
  return counted;
}

// ---- mup ----

// The settings of the steps, in the order of tools/make_mup_fixtures.py.
static void read_mup(parity_case *c) {
  enum {
    BASE,
    LAYERS,
    HEAD,
    KV_HEADS,
    Q_RANK,
    KV_RANK,
    ALPHA,
    LR,
    DECAY,
    EPS,
    CLIP,
    MOMENTUM,
    ALL
  };
  if (!c->request.mup) return;
  int64_t count;
  const char *const path = ot_arena_format(&c->arena, "%s/tests/fixtures/mup/%s.safetensors",
                                           source_directory(), c->request.mup);
  must(ot_safetensors_create(path, "", &c->steps));
  const double *const s = reals(c, c->steps, "settings", &count);
  assert_int_equal(count, ALL);
  c->run.parametrization = (ot_parametrization){.name = OT_PARAMETRIZATION_MUP,
                                                .base_hidden_size = (int64_t)s[BASE],
                                                .base_layers = (int64_t)s[LAYERS],
                                                .base_head_dim = (int64_t)s[HEAD],
                                                .base_kv_heads = (int64_t)s[KV_HEADS],
                                                .base_q_lora_rank = (int64_t)s[Q_RANK],
                                                .base_kv_lora_rank = (int64_t)s[KV_RANK],
                                                .depth_alpha = s[ALPHA]};
  ot_run_optimizer *const o = &c->run.optimizer;
  o->lr = s[LR];
  o->weight_decay = s[DECAY];
  o->eps = s[EPS];
  o->clip = s[CLIP];
  o->momentum = s[MOMENTUM];
  if (ot_text_starts_with(c->request.mup, "muon-")) o->name = OT_OPTIMIZER_MUON;
}

int parity_mup_steps(parity_case *c) {
  int64_t count;
  reals(c, c->steps, "loss", &count);
  return (int)count;
}

double parity_mup_loss(parity_case *c, int step) {
  int64_t count;
  return reals(c, c->steps, "loss", &count)[step - 1];
}

// ---- set-up ----

static void read_model(parity_case *c) {
  ot_node *tree = NULL;
  must(ot_tree_load(path_of(c, c->request.config), &c->arena, &tree));
  must(ot_model_read(tree, &c->arena, &c->model));
  // transformers adds no router loss to the gradients by default.
  if (c->model.moe.aux_scale != OT_MOE_AUX_TRANSFORMERS) c->model.moe.aux_coefficient = 0;
}

void parity_create(const parity_request *request, parity_case *c) {
  *c = (parity_case){.request = *request, .recompute = request->recompute};
  c->arena = ot_heap_arena_create(&c->heap);
  read_model(c);
  must(ot_safetensors_create(path_of(c, "model.safetensors"), "", &c->weights));
  must(ot_safetensors_create(path_of(c, "reference.safetensors"), "", &c->reference));
  const int tokens = ot_safetensors_find(c->reference, "tokens");
  c->T = ot_safetensors_tensor_at(c->reference, tokens)->dim[1];
  c->V = c->model.vocab_size;
  if (request->mup) c->model.moe.bias_rate = 0;  // transformers has no such step
  c->run = tiny_run(&c->model);
  c->run.optimizer.name = request->optimizer;
  if (request->parametrize) c->run.parametrization = request->parametrize(&c->model);
  read_mup(c);
  c->run.parallel.recompute = &c->recompute;
  c->run.parallel.recompute_modules = c->modules;
  for (int m = 0; m < OT_RECOMPUTE_MODULES; m++) {
    if (!(request->modules & ot_model_modules(&c->model) & OT_MODULE_SET(m))) continue;
    c->modules[c->run.parallel.num_recompute_modules++] = (ot_recompute_module)m;
  }
  c->micro_batches = PARITY_BATCH / request->micro_batch_size;
  const bool whole = request->micro_batch_size == PARITY_BATCH;
  const ot_runtime_faults faults = {.poison = request->poison};
  const ot_runtime_request wanted = {
      .rank = {.modes = 1u << OT_MODE_TRAIN |
                        (whole ? 1u << OT_MODE_EVALUATE | 1u << OT_MODE_SCORE | 1u << OT_MODE_LOGITS
                               : 0),
               .graph = {.model = &c->model,
                         .micro_batch_size = request->micro_batch_size,
                         .sequence_length = c->T,
                         .compute = request->compute,
                         .storage = request->storage,
                         .threads = request->threads,
                         .backend = request->backend,
                         .head_chunk_rows = 16},
               .schedule = {.run = &c->run,
                            .micro_batches = &c->micro_batches,
                            .num_micro_batches = 1,
                            .split_backward = request->split_backward,
                            .guard_bytes = request->poison ? 64 : 0}},
      .no_graphs = request->no_graphs,
      .faults = &faults};
  must(ot_runtime_create(&wanted, &c->runtime));
  load_weights(c);
}

void parity_destroy(parity_case *c) {
  ot_runtime_destroy(&c->runtime);
  ot_safetensors_destroy(&c->weights);
  ot_safetensors_destroy(&c->reference);
  ot_safetensors_destroy(&c->steps);
  ot_heap_release(&c->heap);
}

// ---- runs ----

void parity_step(parity_case *c, int step) {
  ot_executor *const executor = ot_runtime_executor(c->runtime);
  const ot_run_optimizer *const o = &c->run.optimizer;
  load_batches(c, OT_MODE_TRAIN);
  ot_executor_set_scalar(executor, OT_SCALAR_LEARNING_RATE, o->lr);
  ot_executor_set_scalar(executor, OT_SCALAR_CORRECTION_1, 1 / (1 - pow(o->betas[0], step)));
  ot_executor_set_scalar(executor, OT_SCALAR_CORRECTION_2, 1 / (1 - pow(o->betas[1], step)));
  ot_executor_set_scalar(executor, OT_SCALAR_TARGETS, (double)counted_targets(c));
  ot_executor_set_scalar(executor, OT_SCALAR_INVERSE_SEQUENCES, 1.0 / PARITY_BATCH);
  must(ot_runtime_run(c->runtime, OT_MODE_TRAIN, c->micro_batches));
}

double parity_loss(parity_case *c) {
  return ot_executor_scalar(ot_runtime_executor(c->runtime), OT_SCALAR_LOSS);
}

double parity_reference_loss(parity_case *c, const char *suffix) {
  int64_t count;
  return reals(c, c->reference, ot_arena_format(&c->arena, "loss.%s", suffix), &count)[0];
}

double parity_reference_norm(parity_case *c, int step) {
  int64_t count;
  return reals(c, c->reference, "grad_norm", &count)[step - 1];
}

// ---- comparison ----

// rms over all gradients of the reference.
static double gradient_rms(parity_case *c, const char *suffix) {
  const char *const prefix = ot_arena_format(&c->arena, "grad.%s.", suffix);
  double sum = 0;
  int64_t elements = 0;
  for (int i = 0; i < ot_safetensors_count(c->reference); i++) {
    const char *const name = ot_safetensors_tensor_at(c->reference, i)->name;
    if (!ot_text_starts_with(name, prefix)) continue;
    if (ot_text_find(name, "e_score_correction_bias")) continue;  // loads, no gradient
    int64_t count;
    const double *const values = reals(c, c->reference, name, &count);
    for (int64_t k = 0; k < count; k++) sum += values[k] * values[k];
    elements += count;
  }
  assert_true(elements > 0);
  return sqrt(sum / (double)elements);
}

typedef struct comparison {
  const ot_safetensors *from;
  ot_parameter_copy copy;
  const char *prefix;  // of the reference tensors
  double floor;        // 1e-3 x rms of all gradients
} comparison;

// Largest error of one HF tensor over all parts with its name: max|a-b| and max|b| are taken over
// all of them.
static double tensor_error(parity_case *c, const comparison *how, const char *name,
                           int64_t *elements) {
  const ot_graph *const graph = ot_runtime_any_graph(c->runtime);
  const ot_dtype dtype = ot_runtime_copy_dtype(c->runtime, how->copy);
  int64_t count;
  const double *const hf =
      reals(c, how->from, ot_arena_format(&c->arena, "%s%s", how->prefix, name), &count);
  double difference = 0, largest = 0;
  *elements = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    for (int k = 0; k < p->num_parts; k++) {
      const ot_parameter_part *const part = &p->parts[k];
      int64_t number;
      if (!ot_text_equal(file_name(c, part->hf_name, &number), name)) continue;
      const double *const own = hf + number * part->hf_rows * p->cols;
      const int64_t n = part->rows * p->cols;
      void *const rows = ot_arena_array(&c->arena, n, sizeof(double));
      const ot_parameter_rows range = {i, how->copy, part->first_row, part->rows};
      ot_runtime_read(c->runtime, &range, rows);
      for (int64_t e = 0; e < n; e++) {
        const double b = own[hf_element(p, part, e / p->cols, e % p->cols)];
        const double d = fabs(get(dtype, rows, e) - b);
        difference = d > difference || isnan(d) ? d : difference;
        largest = fmax(largest, fabs(b));
      }
      *elements += n;
    }
  }
  assert_int_equal(*elements, count);
  return difference / fmax(largest, how->floor);
}

static double all_tensors_error(parity_case *c, const comparison *how, const char **worst) {
  double error = 0;
  int compared = 0;
  for (int i = 0; i < ot_safetensors_count(c->weights); i++) {
    const char *const name = ot_safetensors_tensor_at(c->weights, i)->name;
    int64_t elements;
    const double e = tensor_error(c, how, name, &elements);
    if (!(e <= error)) {
      error = e;
      *worst = name;
    }
    compared++;
  }
  assert_true(compared > 0);
  return error;
}

double parity_gradient_error(parity_case *c, const char *suffix, const char **worst) {
  const comparison how = {.from = c->reference,
                          .copy = OT_COPY_GRADIENT,
                          .prefix = ot_arena_format(&c->arena, "grad.%s.", suffix),
                          .floor = 1e-3 * gradient_rms(c, suffix)};
  return all_tensors_error(c, &how, worst);
}

double parity_after_error(parity_case *c, const char **worst) {
  const comparison how = {.from = c->steps ? c->steps : c->reference,
                          .copy = OT_COPY_WEIGHT,
                          .prefix = "after.",
                          .floor = 1e-3 * gradient_rms(c, "f64")};
  return all_tensors_error(c, &how, worst);
}

double parity_logits_error(parity_case *c, const char *suffix) {
  load_batches(c, OT_MODE_LOGITS);
  must(ot_runtime_run(c->runtime, OT_MODE_LOGITS, 0));
  const ot_dtype compute = c->request.compute;
  int64_t count;
  const double *const hf =
      reals(c, c->reference, ot_arena_format(&c->arena, "logits.%s", suffix), &count);
  assert_int_equal(count, PARITY_BATCH * c->T * c->V);
  void *const logits = ot_arena_array(&c->arena, count, sizeof(double));
  ot_runtime_read_result(c->runtime, OT_MODE_LOGITS, OT_RESULT_LOGITS, logits,
                         count * ot_dtype_bytes(compute));
  double difference = 0, largest = 0;
  for (int64_t i = 0; i < count; i++) {
    const double d = fabs(get(compute, logits, i) - hf[i]);
    difference = d > difference || isnan(d) ? d : difference;
    largest = fmax(largest, fabs(hf[i]));
  }
  return difference / fmax(largest, 1e-3 * gradient_rms(c, suffix));
}

// Gradients of all parameters as doubles, one after the other.
static double *all_gradients(parity_case *c, int64_t *count) {
  const ot_graph *const graph = ot_runtime_any_graph(c->runtime);
  const ot_dtype dtype = ot_runtime_copy_dtype(c->runtime, OT_COPY_GRADIENT);
  *count = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    *count += ot_parameter_elements(&graph->parameters[i]);
  }
  double *const all = ot_arena_array(&c->arena, *count + 1, sizeof *all);
  double *to = all;
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    const int64_t n = ot_parameter_elements(p);
    void *const values = ot_arena_take(&c->arena, n * ot_dtype_bytes(dtype));
    const ot_parameter_rows range = {i, OT_COPY_GRADIENT, 0, p->rows};
    if (p->tied_to < 0) ot_runtime_read(c->runtime, &range, values);
    for (int64_t e = 0; e < n; e++) to[e] = p->tied_to < 0 ? get(dtype, values, e) : 0;
    to += n;
  }
  return all;
}

double parity_distance(parity_case *c, parity_case *other, const char **worst) {
  const ot_graph *const graph = ot_runtime_any_graph(c->runtime);
  int64_t count;
  const double *a = all_gradients(c, &count), *b = all_gradients(other, &count);
  double squares = 0, error = 0;
  for (int64_t e = 0; e < count; e++) squares += b[e] * b[e];
  const double floor = 1e-3 * sqrt(squares / (double)count);
  for (int i = 0; i < graph->num_parameters; i++) {
    const int64_t n = ot_parameter_elements(&graph->parameters[i]);
    double difference = 0, largest = floor;
    for (int64_t e = 0; e < n; e++) {
      const double d = fabs(a[e] - b[e]);
      difference = d > difference || isnan(d) ? d : difference;
      largest = fmax(largest, fabs(b[e]));
    }
    if (!(difference / largest <= error)) {
      error = difference / largest;
      *worst = graph->parameters[i].name;
    }
    a += n;
    b += n;
  }
  return error;
}

uint64_t parity_bits(parity_case *c) {
  const ot_graph *const graph = ot_runtime_any_graph(c->runtime);
  uint64_t hash = OT_HASH_START;
  const ot_parameter_copy copies[] = {OT_COPY_GRADIENT, OT_COPY_WEIGHT, OT_COPY_MOMENT_1,
                                      OT_COPY_MOMENT_2};
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    if (p->tied_to >= 0) continue;
    for (int k = 0; k < 4; k++) {
      const int64_t bytes =
          ot_parameter_elements(p) * ot_dtype_bytes(ot_runtime_copy_dtype(c->runtime, copies[k]));
      void *const values = ot_arena_take(&c->arena, bytes);
      const ot_parameter_rows range = {i, copies[k], 0, p->rows};
      ot_runtime_read(c->runtime, &range, values);
      hash = ot_hash_bytes(hash, values, bytes);
    }
  }
  const double loss = parity_loss(c);
  return ot_hash_bytes(hash, &loss, sizeof loss);
}
