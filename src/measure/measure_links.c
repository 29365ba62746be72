// SPDX-License-Identifier: Apache-2.0
// In real steps ranks enter a collective at different times, and a rank that waits for long must be
// woken. In each round one rank, in turn, therefore enters late. The time from its entry until the
// last rank has its result is fitted by a latency and a rate for each kind.
#include <stdlib.h>

#include "base/nonnegative_fit.h"
#include "comm/comm.h"
#include "host/clock.h"
#include "measure/measure_parts.h"
#include "ops/catalog.h"

enum { ROUNDS = 48, QUICK_ROUNDS = 8, MOST_RANKS = 64 };

static const int64_t sizes[] = {1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 22};  // bytes
static const double entry_delay_s = 60e-6;

typedef struct named_call {
  ot_comm_kind kind;
  ot_op_kind op;   // OT_OP_COUNT: a message
  bool of_blocks;  // call.count is a block of the whole, one for each rank
} named_call;

static const named_call calls[] = {
    {OT_COMM_ALL_GATHER, OT_OP_ALL_GATHER, true},
    {OT_COMM_REDUCE_SCATTER, OT_OP_REDUCE_SCATTER, true},
    {OT_COMM_ALL_REDUCE, OT_OP_ALL_REDUCE, false},
    {OT_COMM_ALL_TO_ALL, OT_OP_ALL_TO_ALL, true},
    {OT_COMM_SHIFT, OT_OP_SHIFT, false},
    {OT_COMM_SEND, OT_OP_COUNT, false},
};

// One kind and size among all ranks of a world; threads write their own rows.
typedef struct timed_call {
  named_call call;
  int64_t bytes;
  int rounds;
  double begin_s[MOST_RANKS][ROUNDS], end_s[MOST_RANKS][ROUNDS];
} timed_call;

static ot_comm_call call_of(const timed_call *c, const ot_comm *comm, char *memory) {
  const int n = ot_comm_size(comm);
  const int64_t elements = c->bytes / (int64_t)sizeof(float);
  ot_comm_call call = {.kind = c->call.kind,
                       .group = OT_GROUP_WORLD,
                       .send = memory,
                       .receive = memory + c->bytes,
                       .count = c->call.of_blocks ? elements / n : elements,
                       .dtype = OT_F32,
                       .sum = OT_F32,
                       .workspace = memory + 2 * c->bytes,
                       .name = "bench"};
  if (c->call.kind != OT_COMM_SEND) return call;
  if (ot_comm_rank(comm) == 1) call.kind = OT_COMM_RECEIVE;
  call.peer = 1 - ot_comm_rank(comm);
  return call;
}

static void work(double seconds) {
  const double end_s = ot_clock_s() + seconds;
  while (ot_clock_s() < end_s) continue;
}

static ot_status run_rounds(timed_call *c, ot_comm *comm, const ot_comm_call *call) {
  const int rank = ot_comm_rank(comm), n = ot_comm_size(comm);
  const ot_comm_call meet = {.kind = OT_COMM_BARRIER, .group = OT_GROUP_WORLD, .name = "meet"};
  for (int i = 0; i < c->rounds; i++) {
    OT_TRY(ot_comm_run(comm, &meet));
    if (i % n == rank) work(entry_delay_s);
    c->begin_s[rank][i] = ot_clock_s();
    OT_TRY(ot_comm_run(comm, call));
    c->end_s[rank][i] = ot_clock_s();
  }
  return OT_OK;
}

static ot_status rank_main(ot_comm *comm, void *context) {
  timed_call *const c = context;
  char *const memory = calloc(4, (size_t)c->bytes + 64);
  OT_CHECK(memory, OT_ENVIRONMENT, "bench: out of memory");
  const ot_comm_call call = call_of(c, comm, memory);
  OT_ASSERT(ot_comm_workspace(&call, ot_comm_size(comm)) <= 2 * c->bytes);
  const ot_status status = run_rounds(c, comm, &call);
  free(memory);
  return status;
}

static double latest(double row[MOST_RANKS][ROUNDS], int ranks, int round) {
  double last = row[0][round];
  for (int i = 1; i < ranks; i++) last = row[i][round] > last ? row[i][round] : last;
  return last;
}

static ot_status time_call(timed_call *c, int ranks, ot_timing *out) {
  ot_timings timings = {0};
  OT_TRY(ot_comm_run_threads(ranks, rank_main, c));
  for (int i = 1; i < c->rounds; i++) {
    ot_timings_add(&timings, latest(c->end_s, ranks, i) - latest(c->begin_s, ranks, i));
  }
  *out = ot_timings_read(&timings);
  return OT_OK;
}

static ot_status fit_call(timed_call *c, int ranks, ot_arena *arena, ot_collective_rates *out) {
  ot_fit_sample samples[OT_COUNT(sizes)] = {{{0}, 0}};
  double spread = 0;
  for (int i = 0; i < OT_COUNT(sizes); i++) {
    ot_timing timing;
    c->bytes = sizes[i];
    OT_TRY(time_call(c, ranks, &timing));
    samples[i] = (ot_fit_sample){.term = {1, (double)sizes[i]}, .value = timing.seconds};
    spread += timing.spread / OT_COUNT(sizes);
  }
  const ot_fit fit = ot_fit_nonnegative(samples, OT_COUNT(sizes), arena);
  const bool message = c->call.op == OT_OP_COUNT;
  *out = (ot_collective_rates){
      .op = message ? "message" : ot_op_info_of(c->call.op)->name,
      .ranks = ranks,
      .latency_s = fit.x[0],
      .bytes_per_s = fit.x[1] > 0 ? 1 / fit.x[1] : 0,
      .fit = {OT_COUNT(sizes), fit.residual, spread},
  };
  return OT_OK;
}

static ot_status measure(timed_call *c, int most, ot_arena *arena, ot_measured_links *out) {
  for (int ranks = 2; ranks <= most && ranks <= MOST_RANKS; ranks *= 2) {
    for (int i = 0; i < OT_COUNT(calls); i++) {
      c->call = calls[i];
      if (calls[i].kind == OT_COMM_SEND && ranks > 2) continue;
      OT_TRY(fit_call(c, ranks, arena, &out->rates[out->num_rates++]));
    }
  }
  return OT_OK;
}

ot_status ot_measure_links(int most, bool quick, ot_arena *arena, ot_measured_links *out) {
  enum { GROUPS = 6 };  // 2 to MOST_RANKS
  timed_call *const c = calloc(1, sizeof *c);
  OT_CHECK(c, OT_ENVIRONMENT, "bench: out of memory");
  c->rounds = quick ? QUICK_ROUNDS : ROUNDS;
  *out = (ot_measured_links){
      .rates = ot_arena_array(arena, (int64_t)GROUPS * OT_COUNT(calls), sizeof *out->rates)};
  const ot_status status = measure(c, most, arena, out);
  free(c);
  return status;
}
