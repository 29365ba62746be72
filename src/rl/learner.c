// SPDX-License-Identifier: Apache-2.0
// Documents are placed in order, each in the current row if it fits, else in the next one: what
// they compute does not depend on the place, except for the order of sums of gradients.
#include "rl/learner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "data/micro_batch.h"
#include "host/heap.h"
#include "runtime/model_files.h"
#include "runtime/step_transfer.h"
#include "train/learning_rate.h"

// Where a document begins.
typedef struct place {
  int64_t micro_batch, row;  // its first row of tokens in the micro-batch
} place;

struct ot_rl_learner {
  const ot_run *run;
  ot_runtime *runtime;
  ot_step_transfer *transfer;
  int64_t most_documents, most_micro_batches;
  ot_micro_batch *batches;  // [most_micro_batches]
  place *places;            // [most_documents]
  int64_t used;             // micro-batches
  double *scores;           // [B * T]
};

int64_t ot_rl_document_tokens(const ot_rl_document *document) {
  return document->num_prompt + document->num_rest + document->num_last;
}

// ---- create ----

static ot_status load_weights(ot_rl_learner *l, ot_arena *arena) {
  ot_model_files files = {0};
  bool damaged = false;
  OT_TRY(ot_model_files_open_init(l->run, OT_CHECKPOINT_HASH_ALL, arena, &files));
  if (!files.path) return ot_runtime_initialize(l->runtime, (uint64_t)l->run->seed);
  return ot_runtime_load_weights(l->runtime, &files, &damaged);
}

static ot_status create_runtime(ot_rl_learner *l, ot_arena *arena) {
  const ot_run *const run = l->run;
  int *const counts = ot_arena_array(arena, l->most_micro_batches, sizeof *counts);
  for (int i = 0; i < l->most_micro_batches; i++) counts[i] = i + 1;
  const ot_runtime_request request = {.model = &run->model,
                                      .run = run,
                                      .modes = 1u << OT_MODE_TRAIN | 1u << OT_MODE_SCORE,
                                      .micro_batch_size = run->batch.micro_batch_size,
                                      .sequence_length = run->data.sequence_length,
                                      .compute = run->precision.compute == OT_F64 ? OT_F64 : OT_F32,
                                      .storage = ot_run_storage(&run->precision),
                                      .threads = run->threads,
                                      .backend = ot_runtime_choose_device(run->device, 1),
                                      .may_fall_back = run->device == OT_DEVICE_AUTO,
                                      .seed = (uint64_t)run->seed,
                                      .micro_batches = counts,
                                      .num_micro_batches = (int)l->most_micro_batches};
  OT_TRY(ot_runtime_create(&request, &l->runtime));
  OT_TRY(ot_step_transfer_create(l->runtime, false, &l->transfer));
  return load_weights(l, arena);
}

static ot_status create(ot_rl_learner *l) {
  const int64_t B = l->run->batch.micro_batch_size, T = l->run->data.sequence_length;
  l->most_micro_batches = (l->most_documents + B - 1) / B;
  l->batches = calloc((size_t)l->most_micro_batches, sizeof *l->batches);
  l->places = calloc((size_t)l->most_documents, sizeof *l->places);
  l->scores = calloc((size_t)(B * T), sizeof *l->scores);
  OT_CHECK(l->batches && l->places && l->scores, OT_ENVIRONMENT, "out of memory for batches");
  for (int64_t i = 0; i < l->most_micro_batches; i++) {
    OT_TRY(ot_micro_batch_create_weighted(B, T, 1, &l->batches[i]));
  }
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = create_runtime(l, &arena);
  ot_heap_release(&heap);
  return status;
}

ot_status ot_rl_learner_create(const ot_run *run, int64_t most_documents, ot_rl_learner **out) {
  ot_rl_learner *const l = calloc(1, sizeof *l);
  *out = l;
  OT_CHECK(l, OT_ENVIRONMENT, "out of memory for a trainer");
  *l = (ot_rl_learner){.run = run, .most_documents = most_documents};
  const ot_status status = create(l);
  if (status != OT_OK) ot_rl_learner_destroy(out);
  return status;
}

void ot_rl_learner_destroy(ot_rl_learner **learner) {
  if (!learner || !*learner) return;
  ot_rl_learner *const l = *learner;
  ot_step_transfer_destroy(&l->transfer);
  ot_runtime_destroy(&l->runtime);
  for (int64_t i = 0; l->batches && i < l->most_micro_batches; i++) {
    ot_micro_batch_release(&l->batches[i]);
  }
  free(l->batches);
  free(l->places);
  free(l->scores);
  free(l);
  *learner = NULL;
}

// ---- packing ----

static void clear(ot_micro_batch *batch, int64_t number) {
  for (int64_t r = 0; r < batch->B * batch->T; r++) {
    batch->tokens[r] = batch->ids[r] = 0;
    batch->targets[r] = -1;
    batch->weights[r] = 0;
    // Padding: each row a document of its own.
    batch->positions[r] = 0;
    batch->doc_starts[r] = (int32_t)(r % batch->T);
  }
  for (int64_t i = 0; i < batch->B; i++) batch->sample_ids[i] = number * batch->B + i;
  batch->num_targets = 0;
}

static int32_t token_of(const ot_rl_document *d, int64_t t) {
  if (t < d->num_prompt) return d->prompt[t];
  t -= d->num_prompt;
  return t < d->num_rest ? d->rest[t] : d->last[t - d->num_rest];
}

// Row r of the document has token r, and is to be followed by token r + 1.
static void put(ot_micro_batch *batch, const ot_rl_document *d, int64_t row) {
  const int64_t tokens = ot_rl_document_tokens(d);
  for (int64_t r = 0; r + 1 < tokens; r++) {
    batch->tokens[row + r] = token_of(d, r);
    batch->positions[row + r] = (int32_t)r;
    batch->doc_starts[row + r] = (int32_t)(row % batch->T);
    if (r + 1 < d->first) continue;
    batch->targets[row + r] = batch->ids[row + r] = token_of(d, r + 1);
    batch->weights[row + r] = (float)d->values[r + 1 - d->first];
    batch->num_targets++;
  }
}

static ot_status pack(ot_rl_learner *l, const ot_rl_document *documents, int64_t count) {
  const int64_t T = l->run->data.sequence_length, R = l->run->batch.micro_batch_size * T;
  int64_t at = 0;  // row over all micro-batches
  OT_CHECK(count <= l->most_documents, OT_BUG, "rl: too many documents");
  l->used = 0;
  for (int64_t i = 0; i < count; i++) {
    const int64_t rows = ot_rl_document_tokens(&documents[i]) - 1;
    OT_CHECK(rows <= T, OT_USAGE,
             "a response with its prompt has %lld tokens; data.sequence_length=%lld holds %lld",
             (long long)rows + 1, (long long)T, (long long)T + 1);
    if (at % T + rows > T) at += T - at % T;
    for (; l->used <= at / R; l->used++) clear(&l->batches[l->used], l->used);
    l->places[i] = (place){at / R, at % R};
    put(&l->batches[at / R], &documents[i], at % R);
    at += rows;
  }
  return OT_OK;
}

typedef struct batch_fields {
  const void *of[OT_BATCH_FIELDS];
} batch_fields;

static batch_fields fields_of(const ot_micro_batch *batch) {
  return (batch_fields){.of = {[OT_BATCH_TOKENS] = batch->tokens,
                               [OT_BATCH_TARGETS] = batch->targets,
                               [OT_BATCH_POSITIONS] = batch->positions,
                               [OT_BATCH_DOC_STARTS] = batch->doc_starts,
                               [OT_BATCH_SAMPLE_IDS] = batch->sample_ids,
                               [OT_BATCH_IDS] = batch->ids,
                               [OT_BATCH_WEIGHTS] = batch->weights}};
}

// ---- scores ----

static ot_status score_batch(ot_rl_learner *l, int64_t m) {
  const batch_fields fields = fields_of(&l->batches[m]);
  for (int i = 0; i <= OT_BATCH_SAMPLE_IDS; i++) {
    ot_runtime_load_batch(l->runtime, OT_MODE_SCORE, 0, (ot_batch_field)i, fields.of[i]);
  }
  OT_TRY(ot_runtime_run(l->runtime, OT_MODE_SCORE, 0));
  const int64_t rows = l->batches[m].B * l->batches[m].T;
  ot_runtime_read_result(l->runtime, OT_MODE_SCORE, OT_RESULT_LOGPROBS, l->scores, rows * 8);
  return OT_OK;
}

ot_status ot_rl_learner_score(ot_rl_learner *learner, ot_rl_document *documents, int64_t count) {
  OT_TRY(pack(learner, documents, count));
  for (int64_t m = 0, i = 0; m < learner->used; m++) {
    OT_TRY(score_batch(learner, m));
    for (; i < count && learner->places[i].micro_batch == m; i++) {
      const ot_rl_document *const d = &documents[i];
      const int64_t scored = ot_rl_document_tokens(d) - d->first;
      memcpy(d->values, learner->scores + learner->places[i].row + d->first - 1,
             (size_t)scored * sizeof *d->values);
    }
  }
  return OT_OK;
}

// ---- steps ----

static double give_scalars(ot_rl_learner *l, int64_t step, int64_t targets) {
  const ot_run *const run = l->run;
  const ot_progress progress = ot_run_progress(run, step);
  const double rate = ot_learning_rate(&run->learning_rate, run->optimizer.lr, &progress);
  const double t = (double)(step + 1), *const betas = run->optimizer.betas;
  ot_step_transfer_set_scalar(l->transfer, OT_SCALAR_LEARNING_RATE, rate);
  ot_step_transfer_set_scalar(l->transfer, OT_SCALAR_CORRECTION_1, 1 / (1 - ot_pow(betas[0], t)));
  ot_step_transfer_set_scalar(l->transfer, OT_SCALAR_CORRECTION_2, 1 / (1 - ot_pow(betas[1], t)));
  ot_step_transfer_set_scalar(l->transfer, OT_SCALAR_TARGETS, (double)targets);
  ot_step_transfer_set_scalar(l->transfer, OT_SCALAR_TARGET_SQUARES, 0);
  ot_step_transfer_set_scalar(l->transfer, OT_SCALAR_INVERSE_SEQUENCES, 1);
  return rate;
}

static int64_t give_batches(ot_rl_learner *l) {
  int64_t targets = 0;
  for (int64_t m = 0; m < l->used; m++) targets += l->batches[m].num_targets;
  for (int64_t m = 0; m < l->used; m++) {
    ot_micro_batch *const batch = &l->batches[m];
    // The head divides by the number of targets; weights are already what they are to be.
    for (int64_t r = 0; r < batch->B * batch->T; r++) batch->weights[r] *= (float)targets;
    const batch_fields fields = fields_of(batch);
    for (int i = 0; i < OT_BATCH_FIELDS; i++) {
      if (!fields.of[i]) continue;
      ot_step_transfer_set_field(l->transfer, (int)m, (ot_batch_field)i, fields.of[i]);
    }
  }
  return targets;
}

ot_status ot_rl_learner_step(ot_rl_learner *learner, const ot_rl_document *documents, int64_t count,
                             int64_t step, ot_rl_step *report) {
  ot_rl_learner *const l = learner;
  OT_TRY(pack(l, documents, count));
  const double rate = give_scalars(l, step, give_batches(l));
  ot_step_transfer_write(l->transfer, (int)l->used);
  OT_TRY(ot_runtime_run(l->runtime, OT_MODE_TRAIN, (int)l->used));
  ot_step_transfer_read(l->transfer);
  *report =
      (ot_rl_step){.loss = ot_step_transfer_scalar(l->transfer, OT_SCALAR_LOSS),
                   .gradient_norm = ot_step_transfer_scalar(l->transfer, OT_SCALAR_GRADIENT_NORM),
                   .learning_rate = rate,
                   .rows = l->used * l->run->batch.micro_batch_size * l->run->data.sequence_length};
  OT_CHECK(isfinite(report->loss) && isfinite(report->gradient_norm), OT_NUMERIC,
           "update %lld: the loss is %g and the gradient norm %g; nothing was updated",
           (long long)step + 1, report->loss, report->gradient_norm);
  return OT_OK;
}

ot_runtime *ot_rl_learner_runtime(ot_rl_learner *learner) { return learner->runtime; }
