// SPDX-License-Identifier: Apache-2.0
// (L(w + h d) - L(w - h d)) / 2h with d = g / |g| must be |g|.
#include <math.h>
#include <stdlib.h>

#include "audit/probe.h"
#include "audit/step_checks.h"
#include "audit/variant.h"
#include "data/data_loader.h"
#include "describe/moe.h"
#include "judge/log_probability.h"

// The losses of a micro-batch: mean nats per target, and those of the routers.
typedef struct losses {
  double tokens, routers;
} losses;

enum { MOST_TENSORS = 24, MOST_FINDINGS = 5 };  // two forwards per tensor

typedef struct slope_check {
  ot_step_audit *audit;
  ot_run alone;
  ot_trainer *trainer;    // on one rank; null on all ranks but the leader
  ot_runtime *probe;      // its logits in float64
  const ot_graph *whole;  // graph of the probe
  ot_micro_batch rows;
  double *logits;
  double *gradient, *kept, *moved;  // of the current tensor; kept: its original weights
} slope_check;

// ---- losses ----

// The contribution of the router losses.
static double weigh_routers(const slope_check *s, const double sums[OT_EXPERT_SUMS]) {
  const ot_model *const model = &s->alone.model;
  return ot_moe_aux_weight(model) * sums[OT_EXPERT_AUX_LOSS] +
         model->moe.z_coefficient * sums[OT_EXPERT_Z_LOSS];
}

// The loss of token `i`, given its logits: of its target, or of the weighted ones.
static double nats_of(const slope_check *s, int64_t i, const double *logits) {
  const int64_t vocab = s->alone.model.vocab_size, K = s->rows.K;
  if (K == 0) return -ot_log_probability(logits, vocab, s->rows.targets[i]);
  double sum = 0;
  for (int64_t k = i * K; k < (i + 1) * K; k++) {
    if (s->rows.weights[k] == 0) continue;
    sum -= (double)s->rows.weights[k] * ot_log_probability(logits, vocab, s->rows.ids[k]);
  }
  return sum;
}

// From the logits of the forward.
static ot_status compute_losses(slope_check *s, losses *out) {
  const int64_t vocab = s->alone.model.vocab_size;
  double sum = 0;
  int64_t count = 0;
  OT_TRY(ot_probe_ask(s->probe, &s->rows, s->logits));
  for (int64_t i = 0; i < s->rows.B * s->rows.T; i++) {
    if (s->rows.targets[i] < 0) continue;
    sum += nats_of(s, i, s->logits + i * vocab);
    count++;
  }
  *out = (losses){.tokens = count > 0 ? sum / (double)count : 0};
  if (s->alone.model.moe.num_experts > 0) {
    double sums[OT_EXPERT_SUMS];
    ot_runtime_expert_sums(s->probe, sums);
    out->routers = weigh_routers(s, sums);
  }
  return OT_OK;
}

static double tolerance_of(const slope_check *s, double wide, double narrow) {
  return s->alone.precision.compute == OT_F64 ? wide : narrow;
}

static void compare_loss(slope_check *s, const char *where, double got, double wanted) {
  if (fabs(got - wanted) <= tolerance_of(s, 1e-9, 1e-4) * fabs(wanted)) return;
  ot_audit_find(s->audit->report, "loss_differs", where,
                "the training forward differs from the evaluation forward: compare masks, windows, "
                "scales and targets",
                "%.9g nats; computed from the logits it is %.9g", got, wanted);
}

static ot_status check_losses(slope_check *s, double trained) {
  losses truth;
  OT_TRY(compute_losses(s, &truth));
  compare_loss(s, "the loss of a training step", trained, truth.tokens);
  if (s->alone.model.moe.num_experts == 0) return OT_OK;
  double sums[OT_EXPERT_SUMS];
  ot_runtime_expert_sums(ot_trainer_runtime(s->trainer), sums);
  compare_loss(s, "the losses of routers in a training step", weigh_routers(s, sums),
               truth.routers);
  return OT_OK;
}

// ---- slopes ----

static double norm_of(const double *values, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += values[i] * values[i];
  return sqrt(sum);
}

static ot_parameter_rows all_rows(const slope_check *s, int index, ot_parameter_copy copy) {
  return (ot_parameter_rows){index, copy, 0, s->whole->parameters[index].rows};
}

static ot_status read_gradient(slope_check *s, int index) {
  return ot_variant_read(ot_trainer_runtime(s->trainer), all_rows(s, index, OT_COPY_GRADIENT),
                         s->gradient);
}

static void write_weights(slope_check *s, int index, const double *values) {
  const ot_parameter_rows range = all_rows(s, index, OT_COPY_WEIGHT);
  ot_runtime_write(s->probe, &range, values);
}

// Slope of the loss along d, with a step of `share` of the weights.
static ot_status measure(slope_check *s, int index, double share, double length, double *slope) {
  const int64_t n = ot_parameter_elements(&s->whole->parameters[index]);
  OT_TRY(ot_variant_read(s->probe, all_rows(s, index, OT_COPY_WEIGHT), s->kept));
  // Small relative to the tensor; for one initialized to zero, relative to its later size.
  const double h = share * fmax(norm_of(s->kept, n), 0.02 * sqrt((double)n));
  double sides[2];
  for (int side = 0; side < 2; side++) {
    const double by = (side == 0 ? h : -h) / length;
    for (int64_t i = 0; i < n; i++) s->moved[i] = s->kept[i] + by * s->gradient[i];
    write_weights(s, index, s->moved);
    losses asked;
    OT_TRY(compute_losses(s, &asked));
    sides[side] = asked.tokens + asked.routers;
  }
  write_weights(s, index, s->kept);
  *slope = (sides[0] - sides[1]) / (2 * h);
  return OT_OK;
}

static ot_status check_parameter(slope_check *s, int index, double floor) {
  const ot_parameter *const p = &s->whole->parameters[index];
  OT_TRY(read_gradient(s, index));
  const double length = norm_of(s->gradient, ot_parameter_elements(p));
  if (length <= floor) return OT_OK;
  // If a step routes a token to another expert, the loss jumps; if curvature is high, the
  // difference is not the slope. Retry with a smaller step: a fault remains.
  const double tolerance = tolerance_of(s, 2e-5, 2e-4);
  double slope, difference;
  OT_TRY(measure(s, index, 1e-5, length, &slope));
  difference = fabs(slope - length) / length;
  if (!(difference <= tolerance)) {
    OT_TRY(measure(s, index, 1e-7, length, &slope));
    difference = fabs(slope - length) / length;
  }
  s->audit->slopes++;
  if (!(difference <= s->audit->slope_difference)) s->audit->slope_difference = difference;
  if (difference <= tolerance) return OT_OK;
  ot_audit_find(s->audit->report, "gradient_is_no_derivative", p->parts[0].hf_name,
                "the backward does not match the forward: compare their constants, from the head "
                "to this tensor",
                "|gradient| is %.6g, the slope of the loss along it %.6g (ratio %.6g)", length,
                slope, slope / length);
  return OT_OK;
}

// Tensors whose gradient is rounding only (a key bias) have no meaningful slope.
static ot_status check_slopes(slope_check *s) {
  const int count = s->whole->num_parameters, stride = 1 + (count - 1) / MOST_TENSORS;
  double largest = 0;
  for (int i = 0; i < count; i++) {
    const ot_parameter *const p = &s->whole->parameters[i];
    if (!ot_parameter_is_trained(p)) continue;
    OT_TRY(read_gradient(s, i));
    largest = fmax(largest, norm_of(s->gradient, ot_parameter_elements(p)));
  }
  for (int i = 0; i < count; i += stride) {
    const bool enough = s->audit->report->num_findings >= MOST_FINDINGS;
    if (!ot_parameter_is_trained(&s->whole->parameters[i]) || enough) continue;
    OT_TRY(check_parameter(s, i, 1e-4 * largest));
  }
  return OT_OK;
}

// ---- the check ----

// The run on one rank in its compute dtype, without dropout; several sequences if they are short,
// so that rare events (a window, the end of a document) occur.
static ot_run run_of(const ot_trainer *trainer) {
  enum { SEQUENCES = 8, TOKENS = 4096 };
  const ot_run *const run = ot_trainer_run(trainer);
  ot_run one = ot_variant_one_rank(trainer);
  const int64_t fit = TOKENS / run->data.sequence_length;
  int64_t sequences = run->batch.global_batch_size;
  sequences = sequences > SEQUENCES ? SEQUENCES : sequences;
  sequences = sequences > fit ? fit : sequences;
  if (sequences > one.batch.micro_batch_size) {
    one.batch.micro_batch_size = one.batch.global_batch_size = sequences;
  }
  const ot_dtype wide = ot_run_compute(&run->precision);
  one.precision.compute = one.precision.params = one.precision.master = wide;
  one.model.embedding_dropout = one.model.attention_dropout = one.model.residual_dropout = 0;
  return one;
}

static ot_status read_batch(slope_check *s, int64_t first) {
  ot_data_loader *loader = NULL;
  OT_TRY(ot_micro_batch_create_weighted(s->alone.batch.micro_batch_size,
                                        s->alone.data.sequence_length,
                                        ot_run_weighted_targets(&s->alone), &s->rows));
  ot_status status = ot_data_loader_create(&s->alone, &loader);
  if (status == OT_OK) status = ot_data_loader_train(loader, first, &s->rows);
  ot_data_loader_destroy(&loader);
  return status;
}

// Weighted targets are those of the step, and its tokens, which a model may have written itself.
static void read_weighted(slope_check *s) {
  const ot_runtime *const runtime = ot_trainer_runtime(s->trainer);
  void *const fields[] = {
      [OT_BATCH_TOKENS] = s->rows.tokens,         [OT_BATCH_TARGETS] = s->rows.targets,
      [OT_BATCH_POSITIONS] = s->rows.positions,   [OT_BATCH_DOC_STARTS] = s->rows.doc_starts,
      [OT_BATCH_SAMPLE_IDS] = s->rows.sample_ids, [OT_BATCH_IDS] = s->rows.ids,
      [OT_BATCH_WEIGHTS] = s->rows.weights};
  for (int i = 0; i < OT_COUNT(fields) && s->rows.K > 0; i++) {
    ot_runtime_read_batch(runtime, OT_MODE_TRAIN, 0, (ot_batch_field)i, fields[i]);
  }
}

static ot_status create_probe(slope_check *s) {
  const ot_probe_request request = {.model = &s->alone.model,
                                    .mode = OT_MODE_LOGITS,
                                    .sequences = s->rows.B,
                                    .tokens = s->rows.T,
                                    .compute = OT_F64,
                                    .storage = OT_F64,
                                    .threads = s->alone.threads,
                                    .backend = ot_runtime_backend(ot_trainer_runtime(s->trainer))};
  OT_TRY(ot_probe_create(&request, &s->probe));
  s->whole = ot_runtime_whole_graph(s->probe);
  return ot_variant_copy_weights(ot_trainer_runtime(s->trainer), s->probe);
}

static ot_status allocate_memory(slope_check *s) {
  int64_t largest = 0;
  for (int i = 0; i < s->whole->num_parameters; i++) {
    const int64_t n = ot_parameter_elements(&s->whole->parameters[i]);
    if (n > largest) largest = n;
  }
  const int64_t logits = s->rows.B * s->rows.T * s->alone.model.vocab_size;
  s->logits = malloc((size_t)(logits + 3 * largest) * sizeof *s->logits);
  OT_CHECK(s->logits, OT_ENVIRONMENT, "out of memory for the logits of a micro-batch");
  s->gradient = s->logits + logits;
  s->kept = s->gradient + largest;
  s->moved = s->kept + largest;
  return OT_OK;
}

static ot_status lead(slope_check *s) {
  const ot_position position = ot_trainer_position(s->audit->trainer);
  ot_step_report step;
  OT_TRY(read_batch(s, position.next_sample));
  OT_TRY(create_probe(s));
  OT_TRY(allocate_memory(s));
  ot_trainer_set_position(s->trainer, &position);
  OT_TRY(ot_trainer_step(s->trainer, &step));
  read_weighted(s);
  OT_TRY(check_losses(s, step.loss));
  return check_slopes(s);
}

// The judge does not know the losses that a run logs of its routers.
static bool has_router_losses(const slope_check *s) {
  const ot_model *const model = &s->alone.model;
  return model->moe.num_experts > 0 &&
         (ot_moe_aux_weight(model) > 0 || model->moe.z_coefficient > 0);
}

ot_status ot_step_check_slopes(ot_step_audit *audit) {
  slope_check s = {.audit = audit, .alone = run_of(audit->trainer)};
  const ot_variant variant = {audit->trainer, &s.alone, true, ot_trainer_get_hooks(audit->trainer)};
  bool fits = false;
  if (audit->judged && !has_router_losses(&s)) return OT_OK;
  OT_TRY(ot_variant_fits(&variant, &fits));
  audit->slopes_left_out = !fits;
  if (!fits) return OT_OK;
  OT_TRY(ot_variant_create(&variant, &s.trainer));
  const ot_status status = ot_world_is_leader(audit->world) ? lead(&s) : OT_OK;
  ot_trainer_destroy(&s.trainer);
  ot_runtime_destroy(&s.probe);
  ot_micro_batch_release(&s.rows);
  free(s.logits);
  return ot_world_agree(audit->world, status);
}
