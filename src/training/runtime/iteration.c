// SPDX-License-Identifier: Apache-2.0
// The rank that leads sends each other rank what to compute, in a message of a size that all know
// and a second one if it is longer, and each rank of the last stage sends it what came out.
// Messages of an iteration have buffers of their own, so no rank waits for one before it must.
#include "runtime/iteration.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/elements.h"
#include "describe/mesh.h"
#include "ops/decode.h"

// The numbers at the beginning of a message.
enum { MODE, ROWS, PICKS, PAGES, HEAD_NUMBERS, DISMISSED = -1 };

// Tags of messages of the world; those between stages have 0.
enum { TAG_FIRST = 3, TAG_REST, TAG_RESULTS };

// Numbers of a row of scores that ranks send (ot_shard_score), 8 bytes each.
enum { SCORE_WORDS = 4 };

typedef struct ot_iteration_ranks {
  ot_comm *comm;
  bool leads, is_last;
  int leader;
  int num_others;  // of this engine
  int *others;     // [num_others] all but the leader
  int tp;
  int *last;               // [tp] of the last stage
  int64_t *first_vocab;    // [tp + 1]
  int64_t words;           // of the longest results of a rank
  ot_shard_score *shards;  // [tp] of a row
} ot_iteration_ranks;

// The messages of an iteration, and their memory.
typedef struct ot_flight_messages {
  int32_t *numbers;        // [longest_message]
  int64_t *results;        // [words] of this rank; on the leader [tp, words]
  ot_comm_request *calls;  // [most_calls] that have started
  int num_calls;
} ot_flight_messages;

static const ot_graph *graph_of(const ot_iteration *it) {
  return ot_runtime_graph(it->runtime, OT_MODE_PREFILL);
}

// ---- create ----

static int64_t logits_bytes(const ot_iteration *it, const ot_local_shape *share) {
  return it->slots * share->widest_vocab * ot_dtype_bytes(it->compute);
}

static int64_t whole_words(int64_t bytes) { return (bytes + 7) / 8; }

// 32-bit numbers of the longest message.
static int64_t longest_message(const ot_iteration *it) {
  return HEAD_NUMBERS + OT_ROW_FIELDS * it->chunk + it->slots + it->slots * it->table;
}

// The ranks of this engine: those of this replica of the model.
static ot_status find_ranks(ot_iteration_ranks *r, const ot_mesh *mesh, int self) {
  int at[] = {0, ot_mesh_coordinate(mesh, self, OT_AXIS_CP),
              ot_mesh_coordinate(mesh, self, OT_AXIS_DP_SHARD),
              ot_mesh_coordinate(mesh, self, OT_AXIS_DP_REPLICATE)};
  const int stages = mesh->degree[OT_AXIS_PP];
  r->tp = mesh->degree[OT_AXIS_TP];
  r->others = calloc((size_t)(stages * r->tp), sizeof *r->others);
  r->last = calloc((size_t)r->tp, sizeof *r->last);
  r->first_vocab = calloc((size_t)r->tp + 1, sizeof *r->first_vocab);
  r->shards = calloc((size_t)r->tp, sizeof *r->shards);
  OT_CHECK(r->others && r->last && r->first_vocab && r->shards, OT_ENVIRONMENT,
           "engine: out of memory");
  for (int stage = 0; stage < stages; stage++) {
    for (at[0] = 0; at[0] < r->tp; at[0]++) {
      const int rank = ot_mesh_rank(mesh, at, stage);
      if (stage + 1 == stages) r->last[at[0]] = rank;
      if (stage == 0 && at[0] == 0) {
        r->leader = rank;
      } else {
        r->others[r->num_others++] = rank;
      }
    }
  }
  r->leads = self == r->leader;
  r->is_last = ot_mesh_coordinate(mesh, self, OT_AXIS_PP) + 1 == stages;
  return OT_OK;
}

static ot_status create_ranks(ot_iteration *it) {
  const ot_graph *const graph = graph_of(it);
  ot_iteration_ranks *const r = calloc(1, sizeof *r);
  it->ranks = r;
  OT_CHECK(r, OT_ENVIRONMENT, "engine: out of memory");
  r->comm = ot_runtime_comm(it->runtime);
  OT_TRY(find_ranks(r, ot_runtime_mesh(it->runtime), ot_comm_rank(r->comm)));
  r->words = whole_words(logits_bytes(it, &graph->share)) + SCORE_WORDS * it->chunk;
  for (int i = 0; i < r->tp; i++) {
    ot_graph_request request = graph->request;
    ot_local_shape share;
    request.split.tp_index = i;
    OT_TRY(ot_local_shape_build(&request, &share));
    r->first_vocab[i + 1] = share.first_vocab + share.vocab;
  }
  return OT_OK;
}

static bool create_messages(ot_iteration *it, ot_flight *flight) {
  const ot_iteration_ranks *const r = it->ranks;
  ot_flight_messages *const m = calloc(1, sizeof *m);
  flight->messages = m;
  if (!m) return false;
  const size_t calls = r->leads ? (size_t)(2 * r->num_others + r->tp) : 1;
  m->numbers = calloc((size_t)longest_message(it), sizeof *m->numbers);
  m->results = calloc((size_t)(r->words * (r->leads ? r->tp : 1)), sizeof *m->results);
  m->calls = calloc(calls, sizeof *m->calls);
  return m->numbers && m->results && m->calls;
}

static bool create_flight(ot_iteration *it, ot_flight *f) {
  const size_t slots = (size_t)it->slots, chunk = (size_t)it->chunk, V = (size_t)it->V;
  bool ok = !it->ranks || create_messages(it, f);
  for (int i = 0; i < OT_ROW_FIELDS; i++) {
    f->row[i] = calloc(chunk, sizeof *f->row[i]);
    ok = ok && f->row[i];
  }
  // Read in the type of the batch field, which is as long as the rows of the mode.
  f->picks = calloc(chunk, sizeof *f->picks);
  f->logits = malloc(slots * V * sizeof(double));
  f->logprob = malloc(chunk * sizeof *f->logprob);
  f->best = malloc(chunk * sizeof *f->best);
  f->greedy = malloc(chunk * sizeof *f->greedy);
  return ok && f->picks && f->logits && f->logprob && f->best && f->greedy;
}

static ot_status create_flights(ot_iteration *it) {
  it->pages = calloc((size_t)(it->slots * it->table), sizeof *it->pages);
  it->flights = calloc((size_t)it->depth, sizeof *it->flights);
  bool ok = it->pages && it->flights;
  for (int i = 0; ok && i < it->depth; i++) ok = create_flight(it, &it->flights[i]);
  return ok ? OT_OK : ot_fail(OT_ENVIRONMENT, "engine: out of memory");
}

ot_status ot_iteration_create(ot_runtime *runtime, ot_iteration *out) {
  const ot_graph_request *const r = &ot_runtime_graph(runtime, OT_MODE_PREFILL)->request;
  const ot_mesh *const mesh = ot_runtime_mesh(runtime);
  *out = (ot_iteration){.runtime = runtime,
                        .slots = r->cache.sequences,
                        .chunk = r->sequence_length,
                        .table = r->cache.positions / OT_PAGE_SLOTS,
                        .V = r->model->vocab_size,
                        .compute = r->compute,
                        .depth = mesh ? mesh->degree[OT_AXIS_PP] : 1};
  if (ot_runtime_comm(runtime)) OT_TRY(create_ranks(out));
  return create_flights(out);
}

static void destroy_flight(ot_flight *f) {
  void *const owned[] = {f->picks, f->logits, f->logprob, f->best, f->greedy};
  for (int i = 0; i < OT_COUNT(owned); i++) free(owned[i]);
  for (int i = 0; i < OT_ROW_FIELDS; i++) free(f->row[i]);
  if (!f->messages) return;
  free(f->messages->numbers);
  free(f->messages->results);
  free(f->messages->calls);
  free(f->messages);
}

void ot_iteration_destroy(ot_iteration *iteration) {
  ot_iteration_ranks *const r = iteration->ranks;
  // After a failure messages may be on their way to memory that is freed here.
  if (r && iteration->begun > iteration->ended) ot_comm_fail(r->comm, OT_RANKS);
  for (int i = 0; iteration->flights && i < iteration->depth; i++) {
    destroy_flight(&iteration->flights[i]);
  }
  free(iteration->flights);
  free(iteration->pages);
  if (r) {
    free(r->others);
    free(r->last);
    free(r->first_vocab);
    free(r->shards);
    free(r);
  }
  *iteration = (ot_iteration){0};
}

// ---- this rank's part ----

// Idle rows follow those that are used.
static void load(ot_iteration *it, ot_flight *f) {
  static const ot_batch_field fields[] = {[OT_ROW_TOKENS] = OT_BATCH_TOKENS,
                                          [OT_ROW_POSITIONS] = OT_BATCH_POSITIONS,
                                          [OT_ROW_TARGETS] = OT_BATCH_TARGETS,
                                          [OT_ROW_SEQUENCES] = OT_BATCH_SEQUENCES};
  const int64_t rows = ot_runtime_graph(it->runtime, f->mode)->share.rows;
  for (int64_t r = f->num_rows; r < rows; r++) {
    f->row[OT_ROW_TOKENS][r] = f->row[OT_ROW_POSITIONS][r] = 0;
    f->row[OT_ROW_TARGETS][r] = f->row[OT_ROW_SEQUENCES][r] = -1;
  }
  for (int64_t i = f->num_picks; i < it->slots; i++) f->picks[i] = 0;
  for (int i = 0; i < OT_ROW_FIELDS; i++) {
    ot_runtime_load_batch(it->runtime, f->mode, 0, fields[i], f->row[i]);
  }
  ot_runtime_load_batch(it->runtime, f->mode, 0, OT_BATCH_PICKS, f->picks);
  ot_runtime_load_batch(it->runtime, f->mode, 0, OT_BATCH_PAGES, it->pages);
}

static bool has_scores(const ot_flight *f) { return ot_mode_is_prefill(f->mode); }

static int64_t num_logits(const ot_flight *f) { return has_scores(f) ? f->num_picks : f->num_rows; }

static void read_logits(ot_iteration *it, const ot_flight *f, void *to) {
  const int64_t columns = ot_runtime_graph(it->runtime, f->mode)->share.vocab;
  ot_runtime_read_result(it->runtime, f->mode, OT_RESULT_LOGITS, to,
                         num_logits(f) * columns * ot_dtype_bytes(it->compute));
}

// Reads the results, where one rank has the model.
static void read_results(ot_iteration *it, ot_flight *f) {
  const int64_t rows = f->num_rows;
  read_logits(it, f, f->logits);
  if (!has_scores(f)) return;
  ot_runtime_read_result(it->runtime, f->mode, OT_RESULT_LOGPROBS, f->logprob, rows * 8);
  ot_runtime_read_result(it->runtime, f->mode, OT_RESULT_BEST, f->best, rows * 8);
  ot_runtime_read_result(it->runtime, f->mode, OT_RESULT_GREEDY, f->greedy, rows * 4);
}

// ---- several ranks: what to compute ----

static void start(ot_iteration *it, ot_flight *f, const ot_comm_call *call) {
  ot_comm_start(it->ranks->comm, call, &f->messages->calls[f->messages->num_calls++]);
}

// Waits for all calls of an iteration; its memory is free then.
static ot_status wait_for_calls(ot_iteration *it, ot_flight *f) {
  for (int i = 0; i < f->messages->num_calls; i++) {
    OT_TRY(ot_comm_wait(it->ranks->comm, &f->messages->calls[i]));
  }
  f->messages->num_calls = 0;
  return OT_OK;
}

// A part of a message, and the array that it is written from or read into.
typedef struct message_part {
  int32_t *at;
  int64_t count;
} message_part;

enum { PARTS = OT_ROW_FIELDS + 2 };

static int64_t list_parts(const ot_iteration *it, const ot_flight *f, bool pages,
                          message_part parts[PARTS]) {
  int64_t count = HEAD_NUMBERS;
  for (int i = 0; i < OT_ROW_FIELDS; i++) parts[i] = (message_part){f->row[i], f->num_rows};
  parts[OT_ROW_FIELDS] = (message_part){f->picks, f->num_picks};
  parts[OT_ROW_FIELDS + 1] = (message_part){it->pages, pages ? it->slots * it->table : 0};
  for (int i = 0; i < PARTS; i++) count += parts[i].count;
  return count;
}

// The size of the first message, which holds an iteration with one row for each slot.
static int64_t first_message(const ot_iteration *it) {
  const int64_t numbers = HEAD_NUMBERS + (OT_ROW_FIELDS + 1) * it->slots;
  const int64_t longest = longest_message(it);
  return numbers < longest ? numbers : longest;
}

static ot_comm_call numbers_call(ot_comm_kind kind, int peer, int32_t *numbers, int64_t count) {
  return (ot_comm_call){.kind = kind,
                        .group = OT_GROUP_WORLD,
                        .peer = peer,
                        .tag = TAG_FIRST,
                        .send = numbers,
                        .receive = numbers,
                        .count = count,
                        .dtype = OT_I32,
                        .name = "rows of an iteration"};
}

static void announce(ot_iteration *it, ot_flight *f) {
  const ot_iteration_ranks *const ranks = it->ranks;
  message_part parts[PARTS];
  const int64_t first = first_message(it);
  const int64_t count = list_parts(it, f, it->pages_changed, parts);
  int32_t *const numbers = f->messages->numbers;
  numbers[MODE] = (int32_t)f->mode;
  numbers[ROWS] = (int32_t)f->num_rows;
  numbers[PICKS] = (int32_t)f->num_picks;
  numbers[PAGES] = it->pages_changed;
  int32_t *at = numbers + HEAD_NUMBERS;
  for (int i = 0; i < PARTS; at += parts[i++].count) {
    memcpy(at, parts[i].at, (size_t)parts[i].count * sizeof *at);
  }
  for (int i = 0; i < ranks->num_others; i++) {
    ot_comm_call call = numbers_call(OT_COMM_SEND, ranks->others[i], numbers, first);
    start(it, f, &call);
    if (count <= first) continue;
    call = numbers_call(OT_COMM_SEND, ranks->others[i], numbers + first, count - first);
    call.tag = TAG_REST;
    start(it, f, &call);
  }
  it->pages_changed = false;
}

static ot_status receive(ot_iteration *it, ot_flight *f, bool *dismissed) {
  const int64_t first = first_message(it);
  int32_t *const numbers = f->messages->numbers;
  message_part parts[PARTS];
  ot_comm_call call = numbers_call(OT_COMM_RECEIVE, it->ranks->leader, numbers, first);
  OT_TRY(ot_comm_run(it->ranks->comm, &call));
  *dismissed = numbers[MODE] == DISMISSED;
  if (*dismissed) return OT_OK;
  f->mode = (ot_mode)numbers[MODE];
  f->num_rows = numbers[ROWS];
  f->num_picks = numbers[PICKS];
  const int64_t count = list_parts(it, f, numbers[PAGES] != 0, parts);
  if (count > first) {
    call = numbers_call(OT_COMM_RECEIVE, it->ranks->leader, numbers + first, count - first);
    call.tag = TAG_REST;
    OT_TRY(ot_comm_run(it->ranks->comm, &call));
  }
  const int32_t *at = numbers + HEAD_NUMBERS;
  for (int i = 0; i < PARTS; at += parts[i++].count) {
    memcpy(parts[i].at, at, (size_t)parts[i].count * sizeof *at);
  }
  return OT_OK;
}

// ---- several ranks: what came out ----

// Words of a rank for the logits of an iteration, and for its scores, too.
static int64_t logits_words(const ot_iteration *it, const ot_flight *f) {
  const ot_local_shape *const share = &graph_of(it)->share;
  return whole_words(num_logits(f) * share->widest_vocab * ot_dtype_bytes(it->compute));
}

static int64_t result_words(const ot_iteration *it, const ot_flight *f) {
  return logits_words(it, f) + (has_scores(f) ? SCORE_WORDS * f->num_rows : 0);
}

// The logits, then of all rows the score, the most probable token's, with tp the sum, and greedy.
static void pack_results(ot_iteration *it, const ot_flight *f) {
  static const ot_result fields[SCORE_WORDS] = {OT_RESULT_LOGPROBS, OT_RESULT_BEST, OT_RESULT_SUM,
                                                OT_RESULT_GREEDY};
  int64_t *const scores = f->messages->results + logits_words(it, f);
  const int64_t rows = f->num_rows;
  read_logits(it, f, f->messages->results);
  for (int i = 0; i < SCORE_WORDS && has_scores(f); i++) {
    const bool absent = fields[i] == OT_RESULT_SUM && it->ranks->tp == 1;
    const int64_t bytes = rows * (fields[i] == OT_RESULT_GREEDY ? 4 : 8);
    if (absent) continue;
    ot_runtime_read_result(it->runtime, f->mode, fields[i], scores + i * rows, bytes);
  }
}

static ot_comm_call results_call(const ot_iteration *it, ot_flight *f, ot_comm_kind kind, int peer,
                                 int64_t *words) {
  return (ot_comm_call){.kind = kind,
                        .group = OT_GROUP_WORLD,
                        .peer = peer,
                        .tag = TAG_RESULTS,
                        .send = words,
                        .receive = words,
                        .count = result_words(it, f),
                        .dtype = OT_I64,
                        .name = "logits and scores"};
}

// Rows of the whole vocabulary.
static void join_logits(ot_iteration *it, ot_flight *f) {
  const ot_iteration_ranks *const ranks = it->ranks;
  const int64_t size = ot_dtype_bytes(it->compute);
  for (int i = 0; i < ranks->tp; i++) {
    const int64_t first = ranks->first_vocab[i], columns = ranks->first_vocab[i + 1] - first;
    const char *const from = (const char *)(f->messages->results + i * ranks->words);
    for (int64_t k = 0; k < num_logits(f); k++) {
      memcpy((char *)f->logits + (k * it->V + first) * size, from + k * columns * size,
             (size_t)(columns * size));
    }
  }
}

static ot_shard_score shard_of(const ot_iteration *it, const ot_flight *f, int shard, int64_t r) {
  const int64_t *const words =
      f->messages->results + shard * it->ranks->words + logits_words(it, f);
  const double *const value = (const double *)words;
  const int64_t rows = f->num_rows;
  return (ot_shard_score){value[r], value[rows + r], value[2 * rows + r],
                          ((const int32_t *)(words + 3 * rows))[r]};
}

static ot_row_score join_row(const ot_iteration *it, const ot_flight *f, int64_t r) {
  const ot_iteration_ranks *const ranks = it->ranks;
  for (int i = 0; i < ranks->tp; i++) ranks->shards[i] = shard_of(it, f, i, r);
  const ot_shard_score *const first = ranks->shards;
  if (ranks->tp == 1) return (ot_row_score){first->target, first->largest, first->greedy};
  return ot_head_join_scores(ranks->shards, ranks->tp);
}

static void join_scores(ot_iteration *it, ot_flight *f) {
  for (int64_t r = 0; r < f->num_rows; r++) {
    if (f->row[OT_ROW_TARGETS][r] < 0) continue;
    const ot_row_score joined = join_row(it, f, r);
    f->logprob[r] = joined.logprob;
    f->best[r] = joined.best;
    f->greedy[r] = joined.greedy;
  }
}

static void begin_results(ot_iteration *it, ot_flight *f) {
  const ot_iteration_ranks *const r = it->ranks;
  for (int i = 0; i < r->tp; i++) {
    if (r->last[i] == r->leader) continue;
    const ot_comm_call call =
        results_call(it, f, OT_COMM_RECEIVE, r->last[i], f->messages->results + i * r->words);
    start(it, f, &call);
  }
}

// ---- iterations ----

ot_mode ot_iteration_mode(const ot_iteration *iteration, int64_t rows, bool scores) {
  const ot_mode widest = scores ? OT_MODE_PREFILL : OT_MODE_DECODE;
  ot_mode found = widest;
  for (int i = 1; i < OT_MODE_WIDTHS; i++) {
    const ot_mode mode = (ot_mode)(widest + i);
    if (!ot_runtime_has_mode(iteration->runtime, mode)) continue;
    if (ot_runtime_graph(iteration->runtime, mode)->share.rows >= rows) found = mode;
  }
  return found;
}

ot_flight *ot_iteration_next(ot_iteration *iteration) {
  return &iteration->flights[iteration->begun % iteration->depth];
}

ot_flight *ot_iteration_oldest(ot_iteration *iteration) {
  return &iteration->flights[iteration->ended % iteration->depth];
}

ot_status ot_iteration_begin(ot_iteration *iteration) {
  ot_flight *const f = ot_iteration_next(iteration);
  OT_ASSERT(iteration->begun - iteration->ended < iteration->depth);
  if (iteration->ranks) announce(iteration, f);
  if (iteration->ranks) begin_results(iteration, f);
  iteration->begun++;
  load(iteration, f);
  OT_TRY(ot_runtime_run(iteration->runtime, f->mode, 0));
  if (!iteration->ranks) {
    read_results(iteration, f);
  } else if (iteration->ranks->is_last) {
    pack_results(iteration, f);
  }
  return OT_OK;
}

ot_status ot_iteration_wait(ot_iteration *iteration) {
  ot_flight *const f = ot_iteration_oldest(iteration);
  OT_ASSERT(iteration->begun > iteration->ended);
  if (!iteration->ranks) return OT_OK;
  OT_TRY(wait_for_calls(iteration, f));
  join_logits(iteration, f);
  if (has_scores(f)) join_scores(iteration, f);
  return OT_OK;
}

void ot_iteration_end(ot_iteration *iteration) { iteration->ended++; }

void ot_iteration_read_logits(ot_iteration *iteration, int pick, double *to) {
  const ot_dtype type = iteration->compute;
  const char *const logits = ot_iteration_oldest(iteration)->logits;
  ot_elements_convert(type, logits + pick * iteration->V * ot_dtype_bytes(type), OT_F64, to,
                      iteration->V);
}

ot_row_score ot_iteration_score_row(ot_iteration *iteration, int pick, int32_t target) {
  const int64_t V = iteration->V;
  const void *const logits = ot_iteration_oldest(iteration)->logits;
  return iteration->compute == OT_F64
             ? ot_head_score_row_f64((const double *)logits + pick * V, V, target)
             : ot_head_score_row_f32((const float *)logits + pick * V, V, target);
}

ot_status ot_iteration_dismiss(ot_iteration *iteration) {
  const ot_iteration_ranks *const r = iteration->ranks;
  OT_ASSERT(iteration->begun == iteration->ended);
  for (int i = 0; r && i < r->num_others; i++) {
    int32_t *const numbers = iteration->flights[0].messages->numbers;
    numbers[MODE] = DISMISSED;
    const ot_comm_call call =
        numbers_call(OT_COMM_SEND, r->others[i], numbers, first_message(iteration));
    OT_TRY(ot_comm_run(r->comm, &call));
  }
  // Those that follow again know nothing.
  iteration->pages_changed = true;
  return OT_OK;
}

static ot_status follow_once(ot_iteration *it, ot_flight *f) {
  load(it, f);
  OT_TRY(ot_runtime_run(it->runtime, f->mode, 0));
  if (!it->ranks->is_last) return OT_OK;
  pack_results(it, f);
  const ot_comm_call call =
      results_call(it, f, OT_COMM_SEND, it->ranks->leader, f->messages->results);
  start(it, f, &call);
  return OT_OK;
}

static ot_status follow(ot_iteration *it) {
  for (bool dismissed = false;; it->begun++) {
    ot_flight *const f = ot_iteration_next(it);
    OT_TRY(wait_for_calls(it, f));
    OT_TRY(receive(it, f, &dismissed));
    if (dismissed) break;
    OT_TRY(follow_once(it, f));
  }
  for (int i = 0; i < it->depth; i++) OT_TRY(wait_for_calls(it, &it->flights[i]));
  it->ended = it->begun;
  return OT_OK;
}

ot_status ot_iteration_follow(ot_runtime *runtime) {
  ot_iteration it;
  ot_status status = ot_iteration_create(runtime, &it);
  if (status == OT_OK) status = follow(&it);
  ot_iteration_destroy(&it);
  return status;
}
