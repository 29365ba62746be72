// SPDX-License-Identifier: Apache-2.0
// Documents are placed in order, each in the current row if it fits, else in the next one: what
// they compute does not depend on the place, except for the order of sums of gradients. The leader
// packs; with more ranks it tells the others what to do, and micro-batch i is that of rank i % dp.
#include "rl/learner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/text.h"
#include "data/micro_batch.h"
#include "describe/learning_rate.h"
#include "host/heap.h"
#include "ops/head.h"
#include "runtime/model_files.h"
#include "runtime/step_transfer.h"

// Where a document begins.
typedef struct place {
  int64_t micro_batch, row;  // its first row of tokens in the micro-batch
} place;

// The kinds of results that a row is joined from: of one shard, the first is all.
static const ot_result shard_results[] = {OT_RESULT_LOGPROBS, OT_RESULT_BEST, OT_RESULT_SUM};
enum { SHARD_RESULTS = OT_COUNT(shard_results) };

struct ot_rl_learner {
  const ot_run *run;
  ot_world *world;     // null: one rank
  int64_t ways, turn;  // ranks of dp, and this one's number among them
  ot_runtime *runtime;
  ot_step_transfer *transfer;
  int64_t most_documents, most_micro_batches;
  ot_micro_batch *batches;  // [most_micro_batches]
  place *places;            // [most_documents]
  int64_t used;             // micro-batches, of all ranks
  double *scores;           // [B * T] of the micro-batch that was scored last, on the leader
  double *own, *received;   // [3 * B * T], and as many for each rank of tp: shards of them
  ot_shard_score *shards;   // [tp] of a row
  ot_micro_batch part;      // with cp > 1: of a micro-batch
  ot_micro_batch numbers;   // tokens: their places
};

int64_t ot_rl_document_tokens(const ot_rl_document *document) {
  return document->num_prompt + document->num_rest + document->num_last;
}

// ---- create ----

static ot_status load_weights(ot_rl_learner *l, ot_arena *arena) {
  ot_model_files files = {0};
  bool damaged = false;
  OT_TRY(ot_world_agree(l->world,
                        ot_model_files_open_init(l->run, OT_CHECKPOINT_HASH_ALL, arena, &files)));
  if (!files.path) return ot_runtime_initialize(l->runtime, (uint64_t)l->run->seed);
  return ot_world_agree(l->world, ot_runtime_load_weights(l->runtime, &files, &damaged));
}

// Micro-batches of each rank, for `count` of all.
static int64_t share_of(const ot_rl_learner *l, int64_t count) {
  return (count + l->ways - 1) / l->ways;
}

static int threads_of(const ot_rl_learner *l) {
  const bool shared = l->run->threads == 0 && ot_world_size(l->world) > 1;
  return shared ? ot_world_threads(l->world) : l->run->threads;
}

static ot_status create_runtime(ot_rl_learner *l, ot_arena *arena) {
  const ot_run *const run = l->run;
  const int ranks = ot_world_size(l->world);
  const int most = (int)share_of(l, l->most_micro_batches);
  int *const counts = ot_arena_array(arena, most, sizeof *counts);
  for (int i = 0; i < most; i++) counts[i] = i + 1;
  const ot_runtime_request request = {
      .rank = {.modes = 1u << OT_MODE_TRAIN | 1u << OT_MODE_SCORE,
               .graph = {.model = &run->model,
                         .micro_batch_size = run->batch.micro_batch_size,
                         .sequence_length = run->data.sequence_length,
                         .compute = ot_run_compute(&run->precision),
                         .storage = ot_run_storage(&run->precision),
                         .threads = threads_of(l),
                         .backend = ot_runtime_choose_device(run->device, ranks),
                         .seed = (uint64_t)run->seed},
               .schedule = {.run = run,
                            .micro_batches = counts,
                            .num_micro_batches = most,
                            .mesh = ranks > 1 ? ot_world_mesh(l->world) : NULL,
                            .rank = ot_world_rank(l->world)}},
      .may_fall_back = run->device == OT_DEVICE_AUTO && ranks == 1,
      .comm = ot_world_comm(l->world)};
  OT_TRY(ot_runtime_create(&request, &l->runtime));
  OT_TRY(ot_world_agree(l->world, ot_step_transfer_create(l->runtime, false, &l->transfer)));
  return load_weights(l, arena);
}

static ot_status allocate(ot_rl_learner *l) {
  const int64_t B = l->run->batch.micro_batch_size, T = l->run->data.sequence_length;
  l->most_micro_batches = share_of(l, (l->most_documents + B - 1) / B) * l->ways;
  l->batches = calloc((size_t)l->most_micro_batches, sizeof *l->batches);
  l->places = calloc((size_t)l->most_documents, sizeof *l->places);
  const size_t shares = SHARD_RESULTS * (size_t)ot_world_degree(l->world, OT_AXIS_TP);
  l->scores = calloc((size_t)(B * T), sizeof *l->scores);
  l->own = calloc(SHARD_RESULTS * (size_t)(B * T), sizeof *l->own);
  l->received = calloc(shares * (size_t)(B * T), sizeof *l->received);
  l->shards = calloc(shares, sizeof *l->shards);
  OT_CHECK(l->batches && l->places && l->scores && l->own && l->received && l->shards,
           OT_ENVIRONMENT, "out of memory for batches");
  OT_TRY(ot_micro_batch_create_weighted(B, T, 1, &l->numbers));
  for (int64_t r = 0; r < B * T; r++) l->numbers.tokens[r] = (int32_t)r;
  const int64_t cp = ot_world_degree(l->world, OT_AXIS_CP);
  if (cp > 1) OT_TRY(ot_micro_batch_create_weighted(B, T / cp, 1, &l->part));
  for (int64_t i = 0; i < l->most_micro_batches; i++) {
    OT_TRY(ot_micro_batch_create_weighted(B, T, 1, &l->batches[i]));
  }
  return OT_OK;
}

static ot_status create(ot_rl_learner *l) {
  OT_TRY(ot_world_agree(l->world, allocate(l)));
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = create_runtime(l, &arena);
  ot_heap_release(&heap);
  return status;
}

ot_status ot_rl_learner_create(const ot_run *run, ot_world *world, int64_t most_documents,
                               ot_rl_learner **out) {
  ot_rl_learner *const l = calloc(1, sizeof *l);
  *out = l;
  OT_TRY(ot_world_agree(world, l ? OT_OK : ot_fail(OT_ENVIRONMENT, "out of memory (trainer)")));
  *l = (ot_rl_learner){.run = run,
                       .world = world,
                       .ways = ot_world_data_degree(world),
                       .turn = ot_world_data_index(world),
                       .most_documents = most_documents};
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
  ot_micro_batch_release(&l->part);
  ot_micro_batch_release(&l->numbers);
  free(l->scores);
  free(l->own);
  free(l->received);
  free(l->shards);
  free(l);
  *learner = NULL;
}

// ---- shards of sequences ----

static ot_sequence_shard piece_of(const ot_rl_learner *l, int index) {
  return (ot_sequence_shard){.size = ot_world_degree(l->world, OT_AXIS_CP),
                             .index = index,
                             .context = ot_runtime_any_graph(l->runtime)->request.split.context};
}

// The rows of a micro-batch that rank `cp` has, in its order: those of a batch whose tokens are
// their places.
static const int32_t *places_of(ot_rl_learner *l, int cp) {
  const ot_sequence_shard piece = piece_of(l, cp);
  if (piece.size == 1) return l->numbers.tokens;
  ot_micro_batch_shard(&l->numbers, &piece, &l->part);
  return l->part.tokens;
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
  for (; l->used % l->ways != 0; l->used++) clear(&l->batches[l->used], l->used);
  return OT_OK;
}

// This rank's part of a micro-batch, valid until the next call.
static const ot_micro_batch *own_part(ot_rl_learner *l, int64_t m) {
  const ot_sequence_shard piece = piece_of(l, ot_world_index(l->world, OT_AXIS_CP));
  if (piece.size == 1) return &l->batches[m];
  ot_micro_batch_shard(&l->batches[m], &piece, &l->part);
  return &l->part;
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

// ---- ranks ----

typedef enum command { SCORE, STEP, PUBLISH, SAVE, LOAD, DISMISS } command;

// The command of the leader to the others.
typedef struct order {
  int64_t command, used, step;
  ot_position position;
} order;

enum { TAG = 7 };

static ot_status pass(ot_rl_learner *l, ot_comm_call call) {
  call.group = OT_GROUP_WORLD;
  call.tag = TAG;
  call.patient = true;
  call.name = "learner";
  return ot_comm_run(ot_world_comm(l->world), &call);
}

// The leader's `data` for all.
static ot_status broadcast(ot_rl_learner *l, void *data, int64_t count, ot_dtype dtype) {
  const int ranks = ot_world_size(l->world);
  const ot_comm_call from = {
      .kind = OT_COMM_RECEIVE, .peer = 0, .receive = data, .count = count, .dtype = dtype};
  if (!ot_world_is_leader(l->world)) return pass(l, from);
  for (int rank = 1; rank < ranks; rank++) {
    const ot_comm_call to = {
        .kind = OT_COMM_SEND, .peer = rank, .send = data, .count = count, .dtype = dtype};
    OT_TRY(pass(l, to));
  }
  return OT_OK;
}

static ot_status send_order(ot_rl_learner *l, order o) {
  return broadcast(l, &o, sizeof o / sizeof(int64_t), OT_I64);
}

static ot_status share_batches(ot_rl_learner *l) {
  const int64_t R = l->run->batch.micro_batch_size * l->run->data.sequence_length;
  if (ot_world_size(l->world) == 1) return OT_OK;
  for (int64_t m = 0; m < l->used; m++) {
    ot_micro_batch *const batch = &l->batches[m];
    if (!ot_world_is_leader(l->world)) clear(batch, m);
    OT_TRY(broadcast(l, batch->tokens, 4 * R, OT_I32));
    OT_TRY(broadcast(l, batch->ids, R, OT_I32));
    OT_TRY(broadcast(l, batch->weights, R, OT_F32));
    batch->num_targets = 0;
    for (int64_t r = 0; r < R; r++) batch->num_targets += batch->targets[r] >= 0;
  }
  return OT_OK;
}

// ---- scores ----

// Where the scores of one micro-batch are: rank (data, cp, tp) of the last stage has those of its
// tokens, by its shard of the vocabulary.
static int scorer_of(const ot_rl_learner *l, int64_t data, int cp, int tp) {
  const ot_mesh *const mesh = ot_world_mesh(l->world);
  for (int rank = 0; mesh && rank < mesh->ranks; rank++) {
    const int at =
        ot_mesh_coordinate(mesh, rank, OT_AXIS_DP_REPLICATE) * mesh->degree[OT_AXIS_DP_SHARD] +
        ot_mesh_coordinate(mesh, rank, OT_AXIS_DP_SHARD);
    const bool last = ot_mesh_coordinate(mesh, rank, OT_AXIS_PP) + 1 == mesh->degree[OT_AXIS_PP];
    if (last && at == data && ot_mesh_coordinate(mesh, rank, OT_AXIS_CP) == cp &&
        ot_mesh_coordinate(mesh, rank, OT_AXIS_TP) == tp) {
      return rank;
    }
  }
  return 0;
}

static int num_results(const ot_rl_learner *l) {
  return ot_world_degree(l->world, OT_AXIS_TP) > 1 ? SHARD_RESULTS : 1;
}

static int64_t rows_of(const ot_rl_learner *l) {
  return l->batches[0].B * l->batches[0].T / ot_world_degree(l->world, OT_AXIS_CP);
}

static bool has_head(const ot_rl_learner *l) {
  return ot_world_index(l->world, OT_AXIS_PP) + 1 == ot_world_degree(l->world, OT_AXIS_PP);
}

static ot_status score_batch(ot_rl_learner *l, int64_t m) {
  const batch_fields fields = fields_of(own_part(l, m));
  for (int i = 0; i <= OT_BATCH_SAMPLE_IDS; i++) {
    ot_runtime_load_batch(l->runtime, OT_MODE_SCORE, 0, (ot_batch_field)i, fields.of[i]);
  }
  OT_TRY(ot_runtime_run(l->runtime, OT_MODE_SCORE, 0));
  const int64_t rows = rows_of(l);
  for (int i = 0; has_head(l) && i < num_results(l); i++) {
    ot_runtime_read_result(l->runtime, OT_MODE_SCORE, shard_results[i], l->own + i * rows,
                           rows * 8);
  }
  return OT_OK;
}

// Sends the scores of rank `from` to `to` on the leader. Called by both.
static ot_status pass_scores(ot_rl_learner *l, int from, double *to) {
  const bool leads = ot_world_is_leader(l->world);
  const int64_t count = num_results(l) * rows_of(l);
  if (from == 0) {
    if (leads) memcpy(to, l->own, (size_t)count * sizeof *to);
    return OT_OK;
  }
  const ot_comm_call call = {.kind = leads ? OT_COMM_RECEIVE : OT_COMM_SEND,
                             .peer = leads ? from : 0,
                             .send = leads ? NULL : l->own,
                             .receive = leads ? to : NULL,
                             .count = count,
                             .dtype = OT_F64};
  return leads || ot_world_rank(l->world) == from ? pass(l, call) : OT_OK;
}

// On the leader: the scores of the rows of shard `cp`, from those of all ranks of tp.
static void join_scores(ot_rl_learner *l, int cp) {
  const int tp = ot_world_degree(l->world, OT_AXIS_TP);
  const int64_t rows = rows_of(l), each = num_results(l) * rows;
  const int32_t *const places = places_of(l, cp);
  for (int64_t r = 0; r < rows; r++) {
    for (int t = 0; tp > 1 && t < tp; t++) {
      const double *const from = l->received + t * each + r;
      l->shards[t] = (ot_shard_score){from[0], from[rows], from[2 * rows], 0};
    }
    l->scores[places[r]] = tp > 1 ? ot_head_join_scores(l->shards, tp).logprob : l->received[r];
  }
}

static ot_status gather_scores(ot_rl_learner *l, int64_t data) {
  const int64_t each = num_results(l) * rows_of(l);
  for (int cp = 0; cp < ot_world_degree(l->world, OT_AXIS_CP); cp++) {
    for (int tp = 0; tp < ot_world_degree(l->world, OT_AXIS_TP); tp++) {
      OT_TRY(pass_scores(l, scorer_of(l, data, cp, tp), l->received + tp * each));
    }
    if (ot_world_is_leader(l->world)) join_scores(l, cp);
  }
  return OT_OK;
}

// Runs the micro-batches of all ranks in turn, and calls `take` on the leader with the scores of
// each.
static ot_status score_all(ot_rl_learner *l, void (*take)(void *context, int64_t m),
                           void *context) {
  for (int64_t first = 0; first < l->used; first += l->ways) {
    OT_TRY(score_batch(l, first + l->turn));
    for (int64_t data = 0; data < l->ways; data++) {
      OT_TRY(gather_scores(l, data));
      if (take) take(context, first + data);
    }
  }
  return OT_OK;
}

typedef struct scored {
  const ot_rl_learner *learner;
  ot_rl_document *documents;
  int64_t count, next;
} scored;

static void read_scores(void *context, int64_t m) {
  scored *const s = context;
  for (; s->next < s->count && s->learner->places[s->next].micro_batch == m; s->next++) {
    const ot_rl_document *const d = &s->documents[s->next];
    const int64_t values = ot_rl_document_tokens(d) - d->first;
    memcpy(d->values, s->learner->scores + s->learner->places[s->next].row + d->first - 1,
           (size_t)values * sizeof *d->values);
  }
}

ot_status ot_rl_learner_score(ot_rl_learner *learner, ot_rl_document *documents, int64_t count) {
  ot_rl_learner *const l = learner;
  scored s = {l, documents, count, 0};
  OT_TRY(pack(l, documents, count));
  OT_TRY(send_order(l, (order){.command = SCORE, .used = l->used}));
  OT_TRY(share_batches(l));
  return score_all(l, read_scores, &s);
}

// ---- steps ----

static double set_scalars(ot_rl_learner *l, int64_t step, int64_t targets) {
  const ot_run *const run = l->run;
  const double rate = ot_learning_rate_at(run, step);
  const double t = (double)(step + 1), *const betas = run->optimizer.betas;
  ot_step_transfer_set_scalar(l->transfer, OT_SCALAR_LEARNING_RATE, rate);
  ot_step_transfer_set_scalar(l->transfer, OT_SCALAR_CORRECTION_1, 1 / (1 - ot_pow(betas[0], t)));
  ot_step_transfer_set_scalar(l->transfer, OT_SCALAR_CORRECTION_2, 1 / (1 - ot_pow(betas[1], t)));
  ot_step_transfer_set_scalar(l->transfer, OT_SCALAR_TARGETS, (double)targets);
  ot_step_transfer_set_scalar(l->transfer, OT_SCALAR_TARGET_SQUARES, 0);
  ot_step_transfer_set_scalar(l->transfer, OT_SCALAR_INVERSE_SEQUENCES, 1);
  return rate;
}

// Returns the number of targets.
static int64_t set_batch(ot_rl_learner *l, int64_t m, int64_t all_targets) {
  ot_micro_batch *const batch = &l->batches[m];
  // The head divides by the number of targets; weights are already what they are to be.
  for (int64_t r = 0; r < batch->B * batch->T; r++) batch->weights[r] *= (float)all_targets;
  const ot_micro_batch *const part = own_part(l, m);
  const batch_fields fields = fields_of(part);
  for (int i = 0; i < OT_BATCH_FIELDS; i++) {
    if (!fields.of[i]) continue;
    ot_step_transfer_set_field(l->transfer, (int)(m / l->ways), (ot_batch_field)i, fields.of[i]);
  }
  return part->num_targets;
}

// Returns the number of this rank's targets.
static int64_t set_batches(ot_rl_learner *l) {
  int64_t all = 0, own = 0;
  for (int64_t m = 0; m < l->used; m++) all += l->batches[m].num_targets;
  for (int64_t m = l->turn; m < l->used; m += l->ways) {
    own += set_batch(l, m, all);
  }
  return own;
}

static ot_status run_step(ot_rl_learner *l, int64_t step, ot_rl_step *report) {
  const int64_t share = share_of(l, l->used);
  const double rate = set_scalars(l, step, set_batches(l));
  ot_step_transfer_write(l->transfer, (int)share);
  OT_TRY(ot_runtime_run(l->runtime, OT_MODE_TRAIN, (int)share));
  ot_step_transfer_read(l->transfer);
  *report =
      (ot_rl_step){.loss = ot_step_transfer_scalar(l->transfer, OT_SCALAR_LOSS),
                   .gradient_norm = ot_step_transfer_scalar(l->transfer, OT_SCALAR_GRADIENT_NORM),
                   .learning_rate = rate,
                   .rows = l->used * l->run->batch.micro_batch_size * l->run->data.sequence_length};
  return OT_OK;
}

ot_status ot_rl_learner_step(ot_rl_learner *learner, const ot_rl_document *documents, int64_t count,
                             int64_t step, ot_rl_step *report) {
  ot_rl_learner *const l = learner;
  OT_TRY(pack(l, documents, count));
  OT_TRY(send_order(l, (order){.command = STEP, .used = l->used, .step = step}));
  OT_TRY(share_batches(l));
  OT_TRY(run_step(l, step, report));
  OT_CHECK(isfinite(report->loss) && isfinite(report->gradient_norm), OT_NUMERIC,
           "update %lld: the loss is %g and the gradient norm %g; nothing was updated",
           (long long)step + 1, report->loss, report->gradient_norm);
  return OT_OK;
}

// ---- weights and state ----

ot_status ot_rl_learner_publish(ot_rl_learner *learner, const ot_weight_taker *taker) {
  OT_TRY(send_order(learner, (order){.command = PUBLISH}));
  return ot_runtime_publish(learner->runtime, taker);
}

// Saves or loads the state, on the leader or on a rank that follows it.
static ot_status run_state(ot_rl_learner *l, command what, ot_state_request *state) {
  char path[OT_WORLD_TEXT] = "";
  if (state->path) ot_text_format(path, sizeof path, "%s", state->path);
  OT_TRY(ot_world_broadcast(l->world, path));
  state->path = path;
  state->run = l->run;
  state->world = ot_world_size(l->world) > 1 ? l->world : NULL;
  return what == SAVE ? ot_training_state_save(l->runtime, state)
                      : ot_training_state_load(l->runtime, state);
}

ot_status ot_rl_learner_save(ot_rl_learner *learner, ot_state_request *state) {
  OT_TRY(send_order(learner, (order){.command = SAVE, .position = state->position}));
  return run_state(learner, SAVE, state);
}

ot_status ot_rl_learner_load(ot_rl_learner *learner, ot_state_request *state) {
  OT_TRY(send_order(learner, (order){.command = LOAD}));
  return run_state(learner, LOAD, state);
}

ot_runtime *ot_rl_learner_runtime(ot_rl_learner *learner) { return learner->runtime; }

// ---- ranks that follow ----

static ot_status follow(ot_rl_learner *l, const order *o) {
  ot_rl_step unread;
  ot_state_request state = {.position = o->position};
  l->used = o->used;
  switch ((command)o->command) {
    case SCORE:
      OT_TRY(share_batches(l));
      return score_all(l, NULL, NULL);
    case STEP:
      OT_TRY(share_batches(l));
      return run_step(l, o->step, &unread);
    case PUBLISH:
      return ot_runtime_publish(l->runtime, NULL);
    case SAVE: {
      // The leading rank decides what a failed save means; it has the same failure.
      const ot_status status = run_state(l, SAVE, &state);
      return status == OT_ENVIRONMENT ? OT_OK : status;
    }
    case LOAD:
      return run_state(l, LOAD, &state);
    case DISMISS:
      break;
  }
  return OT_OK;
}

ot_status ot_rl_learner_follow(ot_rl_learner *learner) {
  order o = {.command = SCORE};
  while (o.command != DISMISS) {
    OT_TRY(broadcast(learner, &o, sizeof o / sizeof(int64_t), OT_I64));
    OT_TRY(follow(learner, &o));
  }
  return OT_OK;
}

ot_status ot_rl_learner_dismiss(ot_rl_learner *learner) {
  return send_order(learner, (order){.command = DISMISS});
}
