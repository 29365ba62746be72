// SPDX-License-Identifier: Apache-2.0
// A step: samples into the arena, scalars set, the order played, scalars read.
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>

#include "base/math.h"
#include "base/text.h"
#include "train/feed.h"
#include "train/learning_rate.h"
#include "train/model_files.h"

struct ot_trainer {
  const ot_run *run;
  const ot_node *settings;
  ot_instance *instance;
  ot_feed *feed;
  ot_rows rows;  // of one micro-batch
  ot_position position;
  int64_t total_steps;
};

// ---- create ----

static ot_status add_count(int64_t global_batch, const ot_run *run, int *counts, int capacity,
                           int *num) {
  const int count = (int)(global_batch / run->batch.micro_batch_size);
  for (int i = 0; i < *num; i++) {
    if (counts[i] == count) return OT_OK;
  }
  OT_CHECK(*num < capacity, OT_USAGE, "batch.ramp: more than %d different batch sizes", capacity);
  counts[(*num)++] = count;
  return OT_OK;
}

// Storage types this back end has: anything else is refused, never rounded to something near.
static ot_status check_precision(const ot_run_precision *precision) {
  const ot_dtype wide = precision->compute == OT_F64 ? OT_F64 : OT_F32;
  const struct {
    const char *key;
    ot_dtype type;
  } kept[] = {{"gradients", precision->gradients},
              {"master", precision->master},
              {"moments", precision->moments}};
  OT_CHECK(precision->params == wide || precision->params == OT_BF16, OT_ENVIRONMENT,
           "precision: params=%s is not there on this back end (try %s or bf16)",
           ot_dtype_name(precision->params), ot_dtype_name(wide));
  for (int i = 0; i < OT_COUNT(kept); i++) {
    OT_CHECK(kept[i].type == wide, OT_ENVIRONMENT,
             "precision: %s=%s is not there on this back end (try %s)", kept[i].key,
             ot_dtype_name(kept[i].type), ot_dtype_name(wide));
  }
  return OT_OK;
}

// What the settings can say and this build cannot do yet.
static ot_status check_supported(const ot_run *run) {
  OT_CHECK(
      run->audit.every == 0 && run->audit.num_checks == 0, OT_ENVIRONMENT,
      "audit: this build trains without audits (leave audit.every at 0 and audit.checks empty)");
  OT_CHECK(!run->checkpoint.async, OT_ENVIRONMENT,
           "checkpoint: async=true is not there in this build (try false)");
  return check_precision(&run->precision);
}

ot_status ot_trainer_request(const ot_run *run, int *micro_batches, int capacity,
                             ot_instance_request *request) {
  int num = 0;
  OT_TRY(check_supported(run));
  OT_TRY(add_count(run->batch.global_batch_size, run, micro_batches, capacity, &num));
  for (int64_t i = 0; i < run->batch.num_ramp; i++) {
    const int64_t size = run->batch.ramp[i].global_batch_size;
    OT_TRY(add_count(size, run, micro_batches, capacity, &num));
  }
  const bool validates = run->data.num_validation > 0;
  *request = (ot_instance_request){
      .model = &run->model,
      .run = run,
      .modes = 1u << OT_MODE_TRAIN | (validates ? 1u << OT_MODE_EVALUATE : 0),
      .micro_batch_size = run->batch.micro_batch_size,
      .sequence_length = run->data.sequence_length,
      .compute = run->precision.compute == OT_F64 ? OT_F64 : OT_F32,
      .storage = run->precision.params,
      .threads = run->threads,
      .seed = (uint64_t)run->seed,
      .micro_batches = micro_batches,
      .num_micro_batches = num,
  };
  return OT_OK;
}

static ot_status create(ot_trainer *trainer) {
  enum { MAX_COUNTS = 64 };
  const ot_run *const run = trainer->run;
  int counts[MAX_COUNTS];
  ot_instance_request request;
  OT_TRY(ot_run_check_training(run));
  OT_TRY(ot_trainer_request(run, counts, MAX_COUNTS, &request));
  OT_TRY(ot_feed_create(run, &trainer->feed));
  OT_TRY(ot_rows_create(run->batch.micro_batch_size, run->data.sequence_length, &trainer->rows));
  OT_TRY(ot_instance_create(&request, &trainer->instance));
  trainer->total_steps = ot_run_total_steps(run);
  if (ot_text_equal(run->init, "random")) {
    return ot_instance_initialize(trainer->instance, (uint64_t)run->seed);
  }
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_model_files files;
  ot_status status = ot_model_files_open(run->init, &arena, &files);
  if (status == OT_OK) status = ot_instance_load_weights(trainer->instance, files.path);
  ot_heap_release(&heap);
  return status;
}

ot_status ot_trainer_create(const ot_run *run, const ot_node *settings, ot_trainer **out) {
  *out = calloc(1, sizeof **out);
  OT_CHECK(*out, OT_ENVIRONMENT, "out of memory");
  (*out)->run = run;
  (*out)->settings = settings;
  const ot_status status = create(*out);
  if (status != OT_OK) ot_trainer_destroy(out);
  return status;
}

void ot_trainer_destroy(ot_trainer **trainer) {
  if (!trainer || !*trainer) return;
  ot_instance_destroy(&(*trainer)->instance);
  ot_feed_destroy(&(*trainer)->feed);
  ot_rows_release(&(*trainer)->rows);
  free(*trainer);
  *trainer = NULL;
}

// ---- step ----

static void load_rows(ot_trainer *trainer, ot_mode mode, int micro_batch) {
  const ot_rows *const rows = &trainer->rows;
  ot_instance *const instance = trainer->instance;
  ot_instance_load_batch(instance, mode, micro_batch, OT_BATCH_TOKENS, rows->tokens);
  ot_instance_load_batch(instance, mode, micro_batch, OT_BATCH_TARGETS, rows->targets);
  ot_instance_load_batch(instance, mode, micro_batch, OT_BATCH_POSITIONS, rows->positions);
  ot_instance_load_batch(instance, mode, micro_batch, OT_BATCH_DOC_STARTS, rows->doc_starts);
  ot_instance_load_batch(instance, mode, micro_batch, OT_BATCH_SAMPLE_IDS, rows->sample_ids);
}

// Loads the samples of one step; the number of unmasked targets among them in `targets`.
static ot_status load_step(ot_trainer *trainer, int micro_batches, int64_t *targets) {
  const int64_t B = trainer->run->batch.micro_batch_size;
  *targets = 0;
  for (int m = 0; m < micro_batches; m++) {
    const int64_t first = trainer->position.next_sample + m * B;
    OT_TRY(ot_feed_train(trainer->feed, first, &trainer->rows));
    *targets += trainer->rows.num_targets;
    load_rows(trainer, OT_MODE_TRAIN, m);
  }
  return OT_OK;
}

static double set_scalars(ot_trainer *trainer, int64_t targets) {
  const ot_run *const run = trainer->run;
  ot_executor *const executor = ot_instance_executor(trainer->instance);
  const ot_progress progress = ot_run_progress(run, trainer->position.step);
  const double rate = ot_learning_rate(&run->learning_rate, run->optimizer.lr, &progress);
  const double t = (double)(trainer->position.step + 1);
  ot_executor_set_scalar(executor, OT_SCALAR_LEARNING_RATE, rate);
  ot_executor_set_scalar(executor, OT_SCALAR_CORRECTION_1,
                         1 / (1 - ot_pow(run->optimizer.betas[0], t)));
  ot_executor_set_scalar(executor, OT_SCALAR_CORRECTION_2,
                         1 / (1 - ot_pow(run->optimizer.betas[1], t)));
  ot_executor_set_scalar(executor, OT_SCALAR_TARGETS, (double)targets);
  return rate;
}

static ot_status check_finite(const ot_step_report *report) {
  OT_CHECK(isfinite(report->loss), OT_NUMERIC, "step %lld: the loss is %g", (long long)report->step,
           report->loss);
  OT_CHECK(isfinite(report->gradient_norm), OT_NUMERIC, "step %lld: the gradient norm is %g",
           (long long)report->step, report->gradient_norm);
  return OT_OK;
}

ot_status ot_trainer_step(ot_trainer *trainer, ot_step_report *report) {
  const double start_s = ot_device_now_s();
  ot_position *const position = &trainer->position;
  const ot_run *const run = trainer->run;
  const int64_t global = ot_run_global_batch(run, position->step, position->tokens);
  const int micro_batches = (int)(global / run->batch.micro_batch_size);
  int64_t targets;
  OT_TRY(load_step(trainer, micro_batches, &targets));
  const double rate = set_scalars(trainer, targets);
  OT_TRY(ot_instance_run(trainer->instance, OT_MODE_TRAIN, micro_batches));

  const ot_executor *const executor = ot_instance_executor(trainer->instance);
  const ot_schedule *const schedule = ot_instance_schedule(trainer->instance);
  const int64_t step_tokens = global * run->data.sequence_length;
  position->step++;
  position->next_sample += global;
  position->tokens += step_tokens;
  *report = (ot_step_report){
      .step = position->step,
      .tokens = position->tokens,
      .step_tokens = step_tokens,
      .loss = ot_executor_scalar(executor, OT_SCALAR_LOSS),
      .gradient_norm = ot_executor_scalar(executor, OT_SCALAR_GRADIENT_NORM),
      .learning_rate = rate,
      .step_seconds = ot_device_now_s() - start_s,
      .model_flops = ot_order_flops(
          schedule, ot_schedule_find_order(schedule, OT_ORDER_STEP, micro_batches), true),
  };
  return check_finite(report);
}

// ---- validation ----

ot_status ot_trainer_validate(ot_trainer *trainer, int set, double *loss) {
  const ot_executor *const executor = ot_instance_executor(trainer->instance);
  const int64_t rows = ot_feed_validation_rows(trainer->feed, set);
  double nats = 0, tokens = 0;
  for (int64_t first = 0; first < rows; first += trainer->run->batch.micro_batch_size) {
    OT_TRY(ot_feed_validation(trainer->feed, set, first, &trainer->rows));
    load_rows(trainer, OT_MODE_EVALUATE, 0);
    OT_TRY(ot_instance_run(trainer->instance, OT_MODE_EVALUATE, 0));
    nats += ot_executor_scalar(executor, OT_SCALAR_EVALUATE_LOSS);
    tokens += ot_executor_scalar(executor, OT_SCALAR_EVALUATE_TOKENS);
  }
  *loss = tokens > 0 ? nats / tokens : NAN;
  return OT_OK;
}

// ---- state ----

ot_status ot_trainer_save(ot_trainer *trainer, const char *path) {
  const ot_state_request request = {.path = path,
                                    .run = trainer->run,
                                    .settings = trainer->settings,
                                    .tokenizer = ot_feed_tokenizer(trainer->feed),
                                    .position = trainer->position};
  return ot_training_state_save(trainer->instance, &request);
}

ot_status ot_trainer_resume(ot_trainer *trainer, const char *path) {
  return ot_training_state_load(trainer->instance, trainer->run, path, &trainer->position);
}

ot_position ot_trainer_position(const ot_trainer *trainer) { return trainer->position; }

int64_t ot_trainer_total_steps(const ot_trainer *trainer) { return trainer->total_steps; }

const ot_instance *ot_trainer_instance(const ot_trainer *trainer) { return trainer->instance; }

void ot_trainer_set_trace(ot_trainer *trainer, bool on) {
  ot_executor_set_trace(ot_instance_executor(trainer->instance), on);
}

const ot_timeline *ot_trainer_timeline(const ot_trainer *trainer) {
  return ot_executor_timeline(ot_instance_executor(trainer->instance));
}

// ---- health ----

static void read_region(const ot_trainer *trainer, const char *name, double *to, int64_t count) {
  const ot_region *const region = ot_schedule_region(ot_instance_schedule(trainer->instance), name);
  ot_executor_read(ot_instance_executor(trainer->instance), region->offset, to, count * 8);
}

static double ratio_of(double squares, double of_squares) {
  return of_squares > 0 ? sqrt(squares / of_squares) : 0;
}

void ot_trainer_health(const ot_trainer *trainer, ot_arena *arena, ot_health *health) {
  const ot_graph *const graph = ot_instance_shape(trainer->instance);
  const int parts = ot_instance_schedule(trainer->instance)->num_parts;
  const int blocks = graph->num_blocks;
  double *const squares = ot_arena_array(arena, parts, sizeof *squares);
  double *const updates = ot_arena_array(arena, 2 * parts, sizeof *updates);
  double *const maxima = ot_arena_array(arena, blocks * OT_BLOCK_STATISTICS, sizeof *maxima);
  read_region(trainer, "squares", squares, parts);
  read_region(trainer, "updates", updates, 2 * parts);
  read_region(trainer, "statistics", maxima, (int64_t)blocks * OT_BLOCK_STATISTICS);
  *health = (ot_health){
      .num_tensors = parts,
      .gradient_norm = ot_arena_array(arena, parts, sizeof(ot_health_value)),
      .update_ratio = ot_arena_array(arena, parts, sizeof(ot_health_value)),
      .num_blocks = blocks,
      .max_activation = ot_arena_array(arena, blocks, sizeof(ot_health_value)),
      .max_logit = ot_arena_array(arena, blocks, sizeof(ot_health_value)),
  };
  int part = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    for (int k = 0; k < graph->parameters[i].num_parts; k++, part++) {
      const char *const name = graph->parameters[i].parts[k].hf_name;
      health->gradient_norm[part] = (ot_health_value){name, sqrt(squares[part])};
      health->update_ratio[part] =
          (ot_health_value){name, ratio_of(updates[2 * part], updates[2 * part + 1])};
    }
  }
  for (int i = 0; i < blocks; i++) {
    const double *const m = maxima + (int64_t)i * OT_BLOCK_STATISTICS;
    const char *const name = graph->blocks[i].name;
    health->max_activation[i] = (ot_health_value){name, m[OT_STATISTIC_MAX_ACTIVATION]};
    health->max_logit[i] = (ot_health_value){name, m[OT_STATISTIC_MAX_LOGIT]};
  }
}

ot_status ot_trainer_show_batch(ot_trainer *trainer, ot_arena *arena, const char **text) {
  OT_TRY(ot_feed_train(trainer->feed, trainer->position.next_sample, &trainer->rows));
  return ot_feed_decode(trainer->feed, &trainer->rows, arena, text);
}
