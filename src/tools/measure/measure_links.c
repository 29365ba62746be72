// SPDX-License-Identifier: Apache-2.0
// In real steps ranks enter a collective at different times, and a rank that waits for long must be
// woken. In each round one rank, in turn, therefore enters late. The time from its entry until the
// last rank has its result is fitted by a latency and a rate for each kind.
//
// In a step, a sender has just written the bytes that it sends, their reader has not read them, and
// the memory where they arrive was used for something else. Data in the cache of its reader would
// move five times as fast. So each round writes the bytes that it sends, in memory that no round
// used for a while.
#include <stdlib.h>
#include <string.h>

#include "base/nonnegative_fit.h"
#include "comm/comm.h"
#include "host/clock.h"
#include "measure/measure_parts.h"
#include "ops/catalog.h"

enum { ROUNDS = 48, QUICK_ROUNDS = 8, MOST_RANKS = 64 };

const int64_t ot_link_bytes[OT_LINK_SIZES] = {1 << 10, 1 << 13, 1 << 16, 1 << 18,
                                              1 << 20, 1 << 22, 1 << 24};
static const double entry_delay_s = 60e-6;

const ot_link_call ot_link_calls[OT_LINK_CALLS] = {
    {OT_COMM_ALL_GATHER, OT_OP_ALL_GATHER, true},
    {OT_COMM_REDUCE_SCATTER, OT_OP_REDUCE_SCATTER, true},
    {OT_COMM_ALL_REDUCE, OT_OP_ALL_REDUCE, false},
    {OT_COMM_ALL_TO_ALL, OT_OP_ALL_TO_ALL, true},
    {OT_COMM_SHIFT, OT_OP_SHIFT, false},
    {OT_COMM_SEND, OT_OP_COUNT, false},
};

// The bytes of all ranks of a host together: more than caches hold.
static const int64_t far_bytes = 256 << 20;

ot_status ot_link_memory_create(int ranks, ot_link_memory *memory) {
  const int64_t least = 4 * ot_link_bytes[OT_LINK_SIZES - 1], far = far_bytes / ranks;
  *memory = (ot_link_memory){.bytes = far > least ? far : least};
  memory->block = malloc((size_t)memory->bytes);
  OT_CHECK(memory->block, OT_ENVIRONMENT, "bench: out of memory");
  // A compiler would turn zeros into calloc, and Linux would find the pages only in the first
  // calls.
  memset(memory->block, 1, (size_t)memory->bytes);
  return OT_OK;
}

void ot_link_memory_destroy(ot_link_memory *memory) {
  free(memory->block);
  memory->block = NULL;
}

ot_comm_call ot_link_call_make(const ot_link_call *call, int64_t bytes, int size,
                               ot_link_memory *memory) {
  const int64_t elements = bytes / (int64_t)sizeof(float);
  if (memory->next + 4 * bytes > memory->bytes) memory->next = 0;
  char *const part = memory->block + memory->next;
  memory->next += 4 * bytes;
  memset(part, OT_FLOAT_BYTE, (size_t)bytes);
  return (ot_comm_call){.kind = call->kind,
                        .group = OT_GROUP_WORLD,
                        .send = part,
                        .receive = part + bytes,
                        .count = call->of_blocks ? elements / size : elements,
                        .dtype = OT_F32,
                        .sum = OT_F32,
                        .workspace = part + 2 * bytes,
                        .name = "bench"};
}

ot_collective_rates ot_link_fit(const ot_link_call *call, const ot_timing *timings, int count,
                                ot_arena *arena) {
  ot_fit_sample samples[OT_LINK_SIZES] = {{{0}, 0}};
  double spread = 0;
  for (int i = 0; i < count; i++) {
    samples[i] =
        (ot_fit_sample){.term = {1, (double)ot_link_bytes[i]}, .value = timings[i].seconds};
    spread += timings[i].spread / count;
  }
  const ot_fit fit = ot_fit_nonnegative(samples, count, NULL, arena);
  return (ot_collective_rates){
      .op = call->op == OT_OP_COUNT ? "message" : ot_op_info_of(call->op)->name,
      .latency_s = fit.x[0],
      .bytes_per_s = fit.x[1] > 0 ? 1 / fit.x[1] : 0,
      .fit = {count, fit.residual, spread},
  };
}

// One kind and size among all ranks of a world; threads write their own rows.
typedef struct timed_call {
  const ot_link_call *call;
  int64_t bytes;
  int rounds;
  ot_link_memory memory[MOST_RANKS];
  double begin_s[MOST_RANKS][ROUNDS], end_s[MOST_RANKS][ROUNDS];
} timed_call;

static ot_comm_call call_of(const timed_call *c, const ot_comm *comm, ot_link_memory *memory) {
  ot_comm_call call = ot_link_call_make(c->call, c->bytes, ot_comm_size(comm), memory);
  if (c->call->kind != OT_COMM_SEND) return call;
  if (ot_comm_rank(comm) == 1) call.kind = OT_COMM_RECEIVE;
  call.peer = 1 - ot_comm_rank(comm);
  return call;
}

static void work(double seconds) {
  const double end_s = ot_clock_s() + seconds;
  while (ot_clock_s() < end_s) continue;
}

static ot_status rank_main(ot_comm *comm, void *context) {
  timed_call *const c = context;
  const int rank = ot_comm_rank(comm), n = ot_comm_size(comm);
  const ot_comm_call meet = {.kind = OT_COMM_BARRIER, .group = OT_GROUP_WORLD, .name = "meet"};
  for (int i = 0; i < c->rounds; i++) {
    const ot_comm_call call = call_of(c, comm, &c->memory[rank]);
    OT_ASSERT(ot_comm_workspace(&call, n) <= 2 * c->bytes);
    OT_TRY(ot_comm_run(comm, &meet));
    if (i % n == rank) work(entry_delay_s);
    c->begin_s[rank][i] = ot_clock_s();
    OT_TRY(ot_comm_run(comm, &call));
    c->end_s[rank][i] = ot_clock_s();
  }
  return OT_OK;
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
  ot_timing timings[OT_LINK_SIZES];
  const int sizes = c->rounds < ROUNDS ? OT_LINK_SIZES - 1 : OT_LINK_SIZES;
  for (int i = 0; i < sizes; i++) {
    c->bytes = ot_link_bytes[i];
    OT_TRY(time_call(c, ranks, &timings[i]));
  }
  *out = ot_link_fit(c->call, timings, sizes, arena);
  out->ranks = ranks;
  out->hosts = 1;
  return OT_OK;
}

static ot_status measure(timed_call *c, int most, ot_arena *arena, ot_measured_links *out) {
  for (int i = 0; i < most; i++) OT_TRY(ot_link_memory_create(most, &c->memory[i]));
  for (int ranks = 2; ranks <= most; ranks *= 2) {
    for (int i = 0; i < OT_LINK_CALLS; i++) {
      c->call = &ot_link_calls[i];
      if (c->call->kind == OT_COMM_SEND && ranks > 2) continue;
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
      .rates = ot_arena_array(arena, (int64_t)GROUPS * OT_LINK_CALLS, sizeof *out->rates)};
  const ot_status status = measure(c, most < MOST_RANKS ? most : MOST_RANKS, arena, out);
  for (int i = 0; i < MOST_RANKS; i++) ot_link_memory_destroy(&c->memory[i]);
  free(c);
  return status;
}
