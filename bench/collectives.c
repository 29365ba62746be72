// SPDX-License-Identifier: Apache-2.0
// Time of every collective by size, each awaited immediately: on ranks that are threads, or under
// an MPI launcher on its processes, then alternating with MPI's own call. Bandwidths as nccl-tests
// defines them: algbw = S / time, where S is the larger of the bytes sent and received by a rank;
// busbw = algbw times the part of S that leaves a rank. For comparison, a plain copy of S bytes by
// all ranks at once. An all-to-all-v sends equally many rows to every rank, in separate runs.
// Reports the best of the rounds.
//   bench/collectives [--ranks N] [--max BYTES] [--rounds K] [--bf16] [--json]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "host/clock.h"
#include "support/bench_program.h"

enum { COPY = OT_COMM_KINDS, KINDS };  // index of the plain copy, after the kinds of calls
enum { ROW = 256, RUNS = 8 };          // all-to-all-v: elements per row, runs per rank

typedef struct {
  int ranks;  // threads; 0: 2 and then 4
  int64_t max_bytes;
  int rounds;
  ot_dtype dtype;
  bool json;
  int printed;  // rows
} bench_settings;

// Buffers of one rank and the current measurement.
typedef struct {
  ot_comm *comm;
  const bench_settings *settings;
  int kind;
  int64_t bytes;  // S
  ot_comm_call call;
  char *send, *receive;
  int32_t *run;  // [size][RUNS][2]
} bench_case;

// ---- MPI's own calls, for comparison ----

#if OT_MPI
#include <mpi.h>

enum { HAS_OWN = 1 };

// False if MPI has no such call or type.
static bool run_own(const bench_case *b) {
  const int count = (int)b->call.count;
  const bool sums = b->kind == OT_COMM_ALL_REDUCE || b->kind == OT_COMM_REDUCE_SCATTER;
  if (b->call.dtype != OT_F32 && sums) return false;
  const MPI_Datatype type = b->call.dtype == OT_F32 ? MPI_FLOAT : MPI_INT16_T;
  const int size = ot_comm_size(b->comm), rank = ot_comm_rank(b->comm);
  switch (b->kind) {
    case OT_COMM_ALL_GATHER:
      return !MPI_Allgather(b->send, count, type, b->receive, count, type, MPI_COMM_WORLD);
    case OT_COMM_REDUCE_SCATTER:
      return !MPI_Reduce_scatter_block(b->send, b->receive, count, type, MPI_SUM, MPI_COMM_WORLD);
    case OT_COMM_ALL_REDUCE:
      return !MPI_Allreduce(b->send, b->receive, count, type, MPI_SUM, MPI_COMM_WORLD);
    case OT_COMM_ALL_TO_ALL:
      return !MPI_Alltoall(b->send, count, type, b->receive, count, type, MPI_COMM_WORLD);
    case OT_COMM_SHIFT:
      return !MPI_Sendrecv(b->send, count, type, (rank + 1) % size, 0, b->receive, count, type,
                           (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    case OT_COMM_BARRIER:
      return !MPI_Barrier(MPI_COMM_WORLD);
    default:
      return false;
  }
}
#else
enum { HAS_OWN = 0 };
static bool run_own(const bench_case *b) {
  (void)b;
  return false;
}
#endif

// ---- measuring ----

static bool run_ours(const bench_case *b) {
  if (b->kind != COPY) return ot_comm_run(b->comm, &b->call) == OT_OK;
  memcpy(b->receive, b->send, (size_t)b->bytes);
  __asm__ volatile("" : : "r"(b->receive) : "memory");
  return true;
}

typedef bool (*runner)(const bench_case *b);

// Seconds per run on this rank, or -1.
static double time_runs(const bench_case *b, runner run) {
  const int64_t fit = (32 << 20) / (b->bytes + 1);
  const int runs = fit < 3 ? 3 : fit > 1000 ? 1000 : (int)fit;
  const ot_comm_call barrier = {.kind = OT_COMM_BARRIER, .name = "begin"};
  if (!run(b) || ot_comm_run(b->comm, &barrier) != OT_OK) return -1.0;
  const double start = ot_clock_s();
  for (int i = 0; i < runs; i++) {
    if (!run(b)) return -1.0;
  }
  return (ot_clock_s() - start) / runs;
}

static double better(double best, double time) {
  return time > 0.0 && (best < 0.0 || time < best) ? time : best;
}

static const char *const names[] = {
    [OT_COMM_ALL_GATHER] = "all_gather", [OT_COMM_REDUCE_SCATTER] = "reduce_scatter",
    [OT_COMM_ALL_REDUCE] = "all_reduce", [OT_COMM_ALL_TO_ALL] = "all_to_all",
    [OT_COMM_SHIFT] = "shift",           [OT_COMM_ALL_TO_ALL_V] = "all_to_all_v",
    [OT_COMM_BARRIER] = "barrier",       [COPY] = "copy",
};

// Part of S that leaves a rank (nccl-tests, PERFORMANCE.md).
static double bus_factor(int kind, int size) {
  const double others = (double)(size - 1) / (double)size;
  return kind == OT_COMM_ALL_REDUCE              ? 2.0 * others
         : kind == OT_COMM_SHIFT || kind == COPY ? 1.0
         : kind == OT_COMM_BARRIER               ? 0.0
                                                 : others;
}

static void print_row(const bench_case *b, double seconds, double own, bool processes) {
  bench_settings *const settings = (bench_settings *)b->settings;
  const double algbw = (double)b->bytes / seconds;
  const int size = ot_comm_size(b->comm);
  const double busbw = algbw * bus_factor(b->kind, size);
  const bool first = settings->printed++ == 0;
  if (settings->json) {
    printf(
        "%s\n  {\"ranks\": %d, \"backend\": \"%s\", \"kind\": \"%s\", \"dtype\": \"%s\", "
        "\"bytes\": %lld, \"seconds\": %.4g, \"algbw\": %.5g, \"busbw\": %.5g, ",
        first ? "{\"results\": [" : ",", size, processes ? "mpi" : "threads", names[b->kind],
        ot_dtype_name(b->call.dtype), (long long)b->bytes, seconds, algbw, busbw);
    printf("\"mpi_seconds\": ");
    printf(own > 0.0 ? "%.4g}" : "null}", own);
    return;
  }
  if (first) {
    printf("%5s %-8s %-15s %10s %12s %12s %12s %12s\n", "ranks", "are", "call", "bytes", "time us",
           "algbw GB/s", "busbw GB/s", "MPI us");
  }
  printf("%5d %-8s %-15s %10lld %12.2f %12.3f %12.3f ", size, processes ? "mpi" : "threads",
         names[b->kind], (long long)b->bytes, seconds * 1e6, algbw * 1e-9, busbw * 1e-9);
  if (own > 0.0) printf("%12.2f", own * 1e6);
  printf("\n");
}

// `count` elements for each rank, as rows: first one run per rank, then the next per rank.
static void set_rows(bench_case *b, int64_t count) {
  const int size = ot_comm_size(b->comm);
  const int64_t rows = count / b->call.count;
  int64_t first = 0;
  for (int i = 0; i < RUNS; i++) {
    const int64_t some = rows * (i + 1) / RUNS - rows * i / RUNS;
    for (int peer = 0; peer < size; peer++, first += some) {
      b->run[(peer * RUNS + i) * 2] = (int32_t)first;
      b->run[(peer * RUNS + i) * 2 + 1] = (int32_t)some;
    }
  }
  b->call.sends = b->call.receives = (ot_comm_splits){RUNS, b->run, rows * size};
}

static ot_status measure(bench_case *b, bool processes) {
  const int size = ot_comm_size(b->comm);
  const int64_t element = ot_dtype_bytes(b->settings->dtype);
  const bool whole = b->kind == OT_COMM_ALL_REDUCE || b->kind == OT_COMM_SHIFT;
  const int64_t count = b->bytes / element / (whole ? 1 : size);
  if (b->kind == OT_COMM_BARRIER ? b->bytes > 8 : count == 0) return OT_OK;
  if (b->kind == OT_COMM_BARRIER) b->bytes = 0;
  b->call.kind = (ot_comm_kind)b->kind;
  b->call.count = count;
  b->call.send = b->send;
  b->call.receive = b->receive;
  if (b->kind == OT_COMM_ALL_TO_ALL_V) {
    b->call.count = count < ROW ? count : ROW;
    set_rows(b, count);
  }
  double best = -1.0, own = -1.0;
  for (int i = 0; i < b->settings->rounds; i++) {
    best = better(best, time_runs(b, run_ours));
    if (processes && HAS_OWN) own = better(own, time_runs(b, run_own));
  }
  if (best < 0.0) return ot_fail(OT_RANKS, "%s failed: %s", names[b->kind], ot_fail_message());
  if (ot_comm_rank(b->comm) == 0) print_row(b, best, own, processes);
  return OT_OK;
}

// ---- the program ----

static ot_status measure_all(bench_case *b, bool processes) {
  for (int kind = 0; kind < KINDS; kind++) {
    if (!names[kind]) continue;
    for (int64_t bytes = 8; bytes <= b->settings->max_bytes; bytes *= bytes == 8 ? 128 : 4) {
      b->kind = kind;
      b->bytes = bytes;
      OT_TRY(measure(b, processes));
    }
  }
  return OT_OK;
}

static ot_status run_rank(ot_comm *comm, bench_settings *settings, bool processes) {
  if (ot_comm_size(comm) < 2) return ot_fail(OT_USAGE, "collectives need two ranks");
  // A bf16 reduce_scatter returns fp32.
  const size_t bytes = (size_t)settings->max_bytes * 2 + 4096;
  char *const memory[] = {malloc(bytes), malloc(bytes), malloc(bytes)};
  int32_t *const run = calloc((size_t)ot_comm_size(comm) * RUNS, 2 * sizeof *run);
  ot_status status = ot_fail(OT_ENVIRONMENT, "out of memory");
  if (memory[0] && memory[1] && memory[2] && run) {
    for (int i = 0; i < 3; i++) memset(memory[i], 0, bytes);
    bench_case b = {
        .comm = comm,
        .settings = settings,
        .call = {.dtype = settings->dtype, .sum = OT_F32, .workspace = memory[2], .name = "bench"},
        .send = memory[0],
        .receive = memory[1],
        .run = run};
    status = measure_all(&b, processes);
  }
  for (int i = 0; i < 3; i++) free(memory[i]);
  free(run);
  return status;
}

static ot_status thread_main(ot_comm *comm, void *context) {
  return run_rank(comm, context, false);
}

static ot_status process_main(ot_comm *comm, void *context) {
  return run_rank(comm, context, true);
}

static ot_status run(bench_settings *settings, bool processes) {
  if (processes) return ot_comm_run_mpi(process_main, settings);
  if (settings->ranks > 0) return ot_comm_run_threads(settings->ranks, thread_main, settings);
  OT_TRY(ot_comm_run_threads(2, thread_main, settings));
  return ot_comm_run_threads(4, thread_main, settings);
}

static ot_status run_program(const ot_options *options) {
  bench_settings settings = {.ranks = (int)ot_options_integer(options, "ranks"),
                             .max_bytes = ot_options_integer(options, "max"),
                             .rounds = (int)ot_options_integer(options, "rounds"),
                             .dtype = ot_options_flag(options, "bf16") ? OT_BF16 : OT_F32,
                             .json = ot_options_json(options)};
  int launched = 1;
  const bool processes = ot_comm_launched(&launched) && launched > 1;
  const ot_status status = run(&settings, processes);
  if (settings.json && settings.printed > 0) printf("\n]}\n");
  return status;
}

static const ot_option options[] = {
    {"ranks", OT_OPTION_INTEGER, "N", NULL, 2, 4096,
     .help = "ranks as threads, default 2 and then 4; under mpirun its processes"},
    {"max", OT_OPTION_INTEGER, "BYTES", "64MiB", 8, INT64_C(1) << 40, .help = "largest message"},
    {"rounds", OT_OPTION_INTEGER, "K", "3", 1, 1000000, .help = "rounds; the best is reported"},
    {"bf16", OT_OPTION_FLAG, .help = "bf16 instead of fp32"},
};

const ot_verb ot_bench_program = {
    .prefix = OT_BENCH_PREFIX,
    .name = "collectives",
    .summary = "collectives by size; under mpirun compared with MPI's own",
    .arguments = "",
    .options = options,
    .num_options = OT_COUNT(options),
    .json = true,
    .run = run_program,
};
