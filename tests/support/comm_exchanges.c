// SPDX-License-Identifier: Apache-2.0
// All-to-all-v with different row counts for each pair of ranks. Every rank draws the runs of all
// ranks from a seed, so it knows what it must receive; the reference copies row by row.
#include <stdlib.h>
#include <string.h>

#include "support/comm_cases.h"
#include "support/comm_place.h"

enum {
  FEW_ROWS = 9,
  MANY_ROWS = 650,   // most rows between two ranks
  SEND_ROWS = 31,    // rows of the send buffer; a row may go to several ranks
  MANY_RUNS = 700,   // runs of a rank in some cases, most of them empty if rows are few
  GUARD_BYTES = 64,  // after the receive buffer
};

// A call, known to all ranks.
typedef struct {
  comm_members m;
  ot_dtype dtype;
  int64_t count;  // elements per row
  int64_t most;   // most rows between two ranks
  int seed;
} plan;

// ---- drawn values ----

enum { NOTHING_SENT, NOTHING_COMES, NO_ROWS, ROWS, RUNS, EMPTY, SPLIT, FIRST, GAP };

// A number in [0, limit), the same on all ranks.
static int64_t draw(const plan *p, int what, int64_t which, int64_t limit) {
  uint64_t bits;
  comm_value(p->seed, (int64_t)what << 40 | which, OT_I64, &bits);
  return (int64_t)(bits >> 20) % limit;
}

// Rows from member `from` to member `to`.
static int64_t rows_between(const plan *p, int from, int to) {
  const int64_t pair = from * 64 + to;
  if (draw(p, NOTHING_SENT, from, 5) == 0 || draw(p, NOTHING_COMES, to, 5) == 0) return 0;
  return draw(p, NO_ROWS, pair, 4) == 0 ? 0 : 1 + draw(p, ROWS, pair, p->most);
}

// Number of runs that describe what `member` sends or receives.
static int runs_of(const plan *p, int member, bool receives) {
  const int64_t which = member * 2 + receives;
  const bool many = p->most > FEW_ROWS || draw(p, RUNS, which, 6) == 0;
  return many ? MANY_RUNS : 1 + (int)draw(p, RUNS, 1000 + which, 5);
}

// Number of rows in a run if `left` remain. Long tables have rows in all runs, not only in the
// first ones.
static int64_t draw_run(const plan *p, int64_t which, int runs, int64_t left) {
  if (p->most == MANY_ROWS) return draw(p, SPLIT, which, left < 2 ? left + 1 : 3);
  const bool empty = runs == MANY_RUNS && draw(p, EMPTY, which, 64) > 0;
  return empty ? 0 : draw(p, SPLIT, which, left + 1);
}

// Splits the rows of each pair into runs; their offsets are set later.
static void split_rows(const plan *p, int member, bool receives, int32_t *run, int runs) {
  for (int peer = 0; peer < p->m.size; peer++) {
    int64_t left = rows_between(p, receives ? peer : member, receives ? member : peer);
    for (int i = 0; i < runs; i++) {
      const int64_t which = (((int64_t)member * 64 + peer) * 1024 + i) * 2 + receives;
      const int64_t rows = i == runs - 1 ? left : draw_run(p, which, runs, left);
      run[((int64_t)peer * runs + i) * 2 + 1] = (int32_t)rows;
      left -= rows;
    }
  }
}

static void place_sent(const plan *p, int member, int32_t *run, int runs) {
  for (int64_t i = 0; i < (int64_t)p->m.size * runs; i++) {
    run[2 * i] = (int32_t)draw(p, FIRST, member * 100000 + i, SEND_ROWS - run[2 * i + 1] + 1);
  }
}

static int64_t common_factor(int64_t a, int64_t b) { return b == 0 ? a : common_factor(b, a % b); }

// Assigns disjoint offsets to the receive runs, in another order than the runs, some with a gap
// between them. Returns the rows of the receive buffer.
static int64_t place_received(const plan *p, int member, int32_t *run, int runs) {
  const int64_t total = (int64_t)p->m.size * runs;
  int64_t stride = 1 + draw(p, FIRST, member, total), row = 0;
  while (common_factor(total, stride) != 1) stride++;
  for (int64_t i = 0; i < total; i++) {
    int32_t *const next = run + 2 * (i * stride % total);
    if (next[1] > 0) row += draw(p, GAP, member * 100000 + i, 3);
    next[0] = (int32_t)row;
    row += next[1];
  }
  return row + draw(p, GAP, 50000 + member, 2);
}

// Builds the runs of `member`; the caller frees `run`. With seeds that 3 divides, a rank without
// rows passes no runs.
static ot_status make_runs(const plan *p, int member, bool receives, ot_comm_splits *out) {
  int64_t rows = 0;
  for (int i = 0; i < p->m.size; i++) {
    rows += rows_between(p, receives ? i : member, receives ? member : i);
  }
  *out = (ot_comm_splits){.rows = receives ? 0 : SEND_ROWS};
  if (rows == 0 && p->seed % 3 == 0) return OT_OK;
  const int runs = runs_of(p, member, receives);
  int32_t *const run = calloc((size_t)p->m.size * (size_t)runs * 2, sizeof *run);
  COMM_EXPECT(run != NULL);
  split_rows(p, member, receives, run, runs);
  *out = (ot_comm_splits){.runs = runs, .run = run, .rows = SEND_ROWS};
  if (receives) {
    out->rows = place_received(p, member, run, runs);
  } else {
    place_sent(p, member, run, runs);
  }
  return OT_OK;
}

// ---- the reference ----

// Offset of row `which` for `member`.
static int64_t row_at(const ot_comm_splits *runs, int member, int64_t which) {
  const int32_t *run = runs->run + (int64_t)member * runs->runs * 2;
  for (; which >= run[1]; run += 2) which -= run[1];
  return run[0] + which;
}

// expected = what member `from` sends; its runs are built for this.
static ot_status expect_rows(const plan *p, int from, const ot_comm_splits *receives,
                             unsigned char *expected) {
  ot_comm_splits sends;
  OT_TRY(make_runs(p, from, false, &sends));
  const int64_t bytes = p->count * ot_dtype_bytes(p->dtype);
  for (int64_t i = 0; i < rows_between(p, from, p->m.index); i++) {
    const int64_t source = row_at(&sends, p->m.index, i), target = row_at(receives, from, i);
    comm_values(p->m.ranks[from], source * p->count, p->count, p->dtype, expected + target * bytes);
  }
  free((int32_t *)sends.run);
  return OT_OK;
}

// ---- a call and its buffers ----

typedef struct {
  plan p;
  ot_comm_call call;
  ot_comm_request request;
  unsigned char *send, *receive, *expected;
  int64_t receive_bytes;
} trial;

static void trial_drop(trial *t) {
  free(t->send);
  free(t->receive);
  free(t->expected);
  free((int32_t *)t->call.sends.run);
  free((int32_t *)t->call.receives.run);
}

// The caller drops it even after an error.
static ot_status trial_make(trial *t, const plan *p) {
  const int64_t bytes = p->count * ot_dtype_bytes(p->dtype);
  *t = (trial){.p = *p};
  t->call = (ot_comm_call){
      .kind = OT_COMM_ALL_TO_ALL_V, .group = p->m.kind, .count = p->count, .dtype = p->dtype};
  t->call.name = "rows";
  OT_TRY(make_runs(p, p->m.index, false, &t->call.sends));
  OT_TRY(make_runs(p, p->m.index, true, &t->call.receives));
  t->receive_bytes = t->call.receives.rows * bytes + GUARD_BYTES;
  t->call.send = t->send = malloc((size_t)(SEND_ROWS * bytes) + 1);
  t->call.receive = t->receive = malloc((size_t)t->receive_bytes);
  t->expected = malloc((size_t)t->receive_bytes);
  COMM_EXPECT(t->send && t->receive && t->expected);
  comm_values(p->m.ranks[p->m.index], 0, SEND_ROWS * p->count, p->dtype, t->send);
  memset(t->receive, 0xee, (size_t)t->receive_bytes);
  memset(t->expected, 0xee, (size_t)t->receive_bytes);
  for (int from = 0; from < p->m.size; from++) {
    OT_TRY(expect_rows(p, from, &t->call.receives, t->expected));
  }
  return OT_OK;
}

static ot_status trial_check(const trial *t) {
  const int64_t bytes = t->p.count * ot_dtype_bytes(t->p.dtype);
  for (int64_t i = 0; i < t->receive_bytes; i++) {
    if (t->receive[i] == t->expected[i]) continue;
    return ot_fail(OT_BUG, "all-to-all-v %d, rows of %lld %s: row %lld is wrong", t->p.seed,
                   (long long)t->p.count, ot_dtype_name(t->p.dtype),
                   (long long)(bytes > 0 ? i / bytes : i));
  }
  return OT_OK;
}

static double bytes_to_others(const plan *p) {
  int64_t rows = 0;
  for (int to = 0; to < p->m.size; to++) {
    if (to != p->m.index) rows += rows_between(p, p->m.index, to);
  }
  return (double)(rows * p->count * ot_dtype_bytes(p->dtype));
}

static ot_status trial_run(ot_comm *comm, trial *t) {
  const double before = ot_comm_sent_bytes(comm, t->p.m.kind, OT_COMM_ALL_TO_ALL_V);
  COMM_EXPECT(ot_comm_workspace(&t->call, t->p.m.size) == 0);
  OT_TRY(comm_run(comm, &t->call));
  const double sent = ot_comm_sent_bytes(comm, t->p.m.kind, OT_COMM_ALL_TO_ALL_V) - before;
  COMM_EXPECT(sent == bytes_to_others(&t->p));
  return trial_check(t);
}

static ot_status check(ot_comm *comm, const plan *p) {
  trial *const t = malloc(sizeof *t);
  COMM_EXPECT(t != NULL);
  ot_status status = trial_make(t, p);
  if (status == OT_OK) status = trial_run(comm, t);
  trial_drop(t);
  free(t);
  return status;
}

ot_status comm_check_exchange(ot_comm *comm, const comm_members *members, ot_dtype dtype,
                              int64_t count, int seed) {
  const plan p = {.m = *members, .dtype = dtype, .count = count, .most = FEW_ROWS, .seed = seed};
  return check(comm, &p);
}

// ---- cases ----

ot_status comm_exchanges_of_any_rows(ot_comm *comm) {
  static const ot_dtype dtypes[] = {OT_F32, OT_F64, OT_BF16, OT_I32, OT_I64};
  static const int64_t counts[] = {1, 3, 0, 501, 5003};
  const comm_members all = comm_world_of(comm);
  if (all.size == 1) return OT_OK;
  int seed = 0;
  for (int c = 0; c < OT_COUNT(counts); c++) {
    for (int d = 0; d < OT_COUNT(dtypes); d++) {
      OT_TRY(comm_check_exchange(comm, &all, dtypes[d], counts[c], seed++));
    }
  }
  for (; seed < 60; seed++) OT_TRY(comm_check_exchange(comm, &all, OT_BF16, 7, seed));
  return OT_OK;
}

// Hundreds of runs per pair of ranks.
ot_status comm_exchanges_of_many_runs(ot_comm *comm) {
  plan p = {.m = comm_world_of(comm), .dtype = OT_I32, .count = 3, .most = MANY_ROWS};
  for (p.seed = 2000; p.seed < 2006 && p.m.size > 1; p.seed++) OT_TRY(check(comm, &p));
  return OT_OK;
}

ot_status comm_exchange_of_nothing(ot_comm *comm) {
  const ot_comm_call call = {.kind = OT_COMM_ALL_TO_ALL_V, .count = 5, .name = "nothing"};
  return ot_comm_size(comm) == 1 ? OT_OK : comm_run(comm, &call);
}

enum { TRIALS = 40, ROW = 1031 };

// Starts all calls, each followed by an all-reduce, then waits for them in another order on each
// rank.
static ot_status run_together(ot_comm *comm, trial *trials, int made) {
  static const double one = 1.0;
  const comm_members all = comm_world_of(comm);
  ot_comm_request sums[TRIALS];
  double sum[TRIALS], workspaces[TRIALS][64];
  for (int i = 0; i < made; i++) {
    ot_comm_start(comm, &trials[i].call, &trials[i].request);
    ot_comm_start(comm,
                  &(ot_comm_call){.kind = OT_COMM_ALL_REDUCE,
                                  .send = &one,
                                  .receive = &sum[i],
                                  .count = 1,
                                  .dtype = OT_F64,
                                  .sum = OT_F64,
                                  .workspace = workspaces[i],
                                  .name = "between"},
                  &sums[i]);
  }
  for (int i = 0; i < made; i++) {
    const int j = (i * (2 * all.index + 7) + all.index) % TRIALS;
    OT_TRY(ot_comm_wait(comm, &trials[j].request));
    OT_TRY(trial_check(&trials[j]));
  }
  for (int i = 0; i < made; i++) {
    OT_TRY(ot_comm_wait(comm, &trials[i].request));
    OT_TRY(ot_comm_wait(comm, &sums[i]));
    COMM_EXPECT(sum[i] == all.size);
  }
  return OT_OK;
}

ot_status comm_exchanges_at_once(ot_comm *comm) {
  const comm_members all = comm_world_of(comm);
  if (all.size == 1) return OT_OK;
  trial *const trials = calloc(TRIALS, sizeof *trials);
  COMM_EXPECT(trials != NULL);
  ot_status status = OT_OK;
  for (int i = 0; i < TRIALS && status == OT_OK; i++) {
    const plan p = {.m = all,
                    .dtype = OT_F32,
                    .count = i % 5 == 0 ? ROW : 3,
                    .most = FEW_ROWS,
                    .seed = 1000 + i};
    status = trial_make(&trials[i], &p);
  }
  if (status == OT_OK) status = run_together(comm, trials, TRIALS);
  for (int i = 0; i < TRIALS; i++) trial_drop(&trials[i]);
  free(trials);
  return status;
}

// ---- mismatched row counts ----

// Every pair has rows; for the pair in `uneven` the two ends disagree about their number.
static ot_status run_uneven(ot_comm *comm, const comm_row_mismatch *u, int32_t *run,
                            float *memory) {
  const int size = ot_comm_size(comm), rank = ot_comm_rank(comm);
  for (int i = 0; i < size; i++) {
    int32_t *const sent = run + 2 * i, *const expected = run + 2 * (size + i);
    sent[0] = 0;
    sent[1] = rank == u->from && i == u->to ? u->sent : 2;
    expected[0] = i * u->most;
    expected[1] = rank == u->to && i == u->from ? u->expected : 2;
  }
  const int64_t rows = (int64_t)size * u->most;
  return ot_comm_run(comm, &(ot_comm_call){.kind = OT_COMM_ALL_TO_ALL_V,
                                           .send = memory,
                                           .receive = memory + u->most * u->count,
                                           .count = u->count,
                                           .sends = {.runs = 1, .run = run, .rows = u->most},
                                           .receives = {1, run + 2 * size, rows},
                                           .name = "uneven rows"});
}

ot_status comm_uneven_exchange(ot_comm *comm, const comm_row_mismatch *uneven) {
  const int64_t rows = (ot_comm_size(comm) + 1) * uneven->most;
  float *const memory = calloc((size_t)(rows * uneven->count), sizeof *memory);
  int32_t *const run = calloc((size_t)ot_comm_size(comm) * 4, sizeof *run);
  COMM_EXPECT(memory && run);
  const ot_status status = run_uneven(comm, uneven, run, memory);
  free(memory);
  free(run);
  return status;
}
