// SPDX-License-Identifier: Apache-2.0
// Cost of an audit during training: the replica audit of `audit: {every: N, checks: [ranks]}`
// compared with the step, for a model of 44 M parameters on ranks of one thread, alternating: step,
// audit, step, audit... With zero 0 every rank holds all tensors, the most that an audit may have
// to read.
//   bench/audits [--ranks N] [--repeats R] [--every K] [--batch B] [--json]
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "audit/audit.h"
#include "audit/replicas.h"
#include "files/config_file.h"
#include "host/clock.h"
#include "support/bench_program.h"
#include "support/bench_step.h"

enum { TOKENS = 1 << 16, HEADER_BYTES = 1024 };

typedef struct settings {
  int ranks, repeats, every, batch;
  bool json;
} settings;

typedef struct timing {
  const settings *settings;
  ot_config config;
  double step_s[OT_BENCH_REPEATS], look_s[OT_BENCH_REPEATS];  // of rank 0
} timing;

static const char model[] =
    "{\"model\":{\"model_type\":\"llama\",\"vocab_size\":16384,\"hidden_size\":512,"
    "\"intermediate_size\":1536,\"num_hidden_layers\":8,\"num_attention_heads\":8,"
    "\"num_key_value_heads\":4,\"max_position_embeddings\":256},"
    "\"data\":{\"train\":\"%s\",\"sequence_length\":256,\"format\":\"llmc\"},"
    "\"batch\":{\"global_batch_size\":%d,\"micro_batch_size\":1},"
    "\"parallel\":{\"zero\":%d},\"steps\":1000,\"threads\":1,\"output\":\"unused\"}";

// ---- data ----

// A file in llm.c's format: 256 words of header, then 16-bit ids. The tokens do not matter.
static ot_status write_tokens(char path[]) {
  const int file = mkstemps(path, 4);
  OT_CHECK(file >= 0, OT_ENVIRONMENT, "cannot make %s", path);
  FILE *const out = fdopen(file, "wb");
  int32_t header[HEADER_BYTES / 4] = {20240520, 1, TOKENS};
  static uint16_t ids[TOKENS];
  for (int i = 0; i < TOKENS; i++) ids[i] = (uint16_t)((uint32_t)i * 2654435761u >> 18);
  const bool whole = fwrite(header, sizeof header, 1, out) == 1 && fwrite(ids, sizeof ids, 1, out);
  const bool closed = fclose(out) == 0;
  OT_CHECK(whole && closed, OT_ENVIRONMENT, "cannot write %s", path);
  return OT_OK;
}

// ---- measurement ----

static ot_status take_turns(timing *t, ot_trainer *trainer, ot_world *world, ot_arena *arena) {
  ot_replicas *replicas = NULL;
  ot_step_report step;
  ot_loop_findings findings;
  ot_status status = ot_trainer_step(trainer, &step);  // first touch of pages, here and in an audit
  if (status == OT_OK) status = ot_ranks_check(&replicas, trainer, arena, &findings);
  for (int i = 0; i < t->settings->repeats && status == OT_OK; i++) {
    status = ot_trainer_step(trainer, &step);
    const double start_s = ot_clock_s();
    if (status == OT_OK) status = ot_ranks_check(&replicas, trainer, arena, &findings);
    if (status == OT_OK && findings.count > 0) status = ot_fail(OT_FINDINGS, "%s", findings.worst);
    if (!ot_world_is_leader(world)) continue;
    t->look_s[i] = ot_clock_s() - start_s;
    t->step_s[i] = step.step_seconds;
  }
  ot_replicas_destroy(&replicas);
  return status;
}

static ot_status time_rank(ot_comm *comm, void *context) {
  timing *const t = context;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_world *world = NULL;
  ot_trainer *trainer = NULL;
  ot_status status = ot_world_create(&t->config.run.parallel, comm, &world);
  if (status == OT_OK) status = ot_trainer_create(&t->config.run, NULL, world, &trainer);
  if (status == OT_OK) status = take_turns(t, trainer, world, &arena);
  ot_trainer_destroy(&trainer);
  ot_world_destroy(&world);
  ot_heap_release(&heap);
  return status;
}

// ---- report ----

static void report(timing *t, int zero, bool last) {
  const settings *const s = t->settings;
  const double step_s = ot_bench_median(t->step_s, s->repeats),
               look_s = ot_bench_median(t->look_s, s->repeats);
  const double share = look_s / (s->every * step_s);
  if (s->json) {
    printf("\n  {\"zero\": %d, \"step_seconds\": %.6g, \"look_seconds\": %.6g, \"share\": %.6g}%s",
           zero, step_s, look_s, share, last ? "" : ",");
  } else {
    printf("zero %d  %8.3f s per step  %8.4f s per audit  %7.3f %% of time\n", zero, step_s, look_s,
           100 * share);
  }
}

static ot_status time_all(const settings *s, const char *tokens) {
  for (int zero = 0; zero <= 1; zero++) {
    ot_heap heap = {0};
    ot_arena arena = ot_heap_arena_create(&heap);
    timing *const t = ot_arena_take(&arena, sizeof *t);
    *t = (timing){.settings = s};
    const ot_config_request request = {
        .path = "bench", .text = ot_arena_format(&arena, model, tokens, s->batch, zero)};
    ot_status status = ot_config_load(&request, &arena, &t->config);
    if (status == OT_OK) status = ot_comm_run_threads(s->ranks, time_rank, t);
    if (status == OT_OK) report(t, zero, zero == 1);
    ot_heap_release(&heap);
    OT_TRY(status);
  }
  return OT_OK;
}

static ot_status run_program(const ot_options *options) {
  const settings s = {.ranks = (int)ot_options_integer(options, "ranks"),
                      .repeats = (int)ot_options_integer(options, "repeats"),
                      .every = (int)ot_options_integer(options, "every"),
                      .batch = (int)ot_options_integer(options, "batch"),
                      .json = ot_options_json(options)};
  char tokens[] = "/tmp/orthant-audits-XXXXXX.bin";
  OT_TRY(write_tokens(tokens));
  if (s.json) {
    printf("{\"ranks\": %d, \"every\": %d, \"sequences\": %d, \"layouts\": [", s.ranks, s.every,
           s.batch);
  } else {
    printf("%d ranks of 1 thread, %d sequences of 256 tokens per step, an audit every %d steps\n",
           s.ranks, s.batch, s.every);
  }
  const ot_status status = time_all(&s, tokens);
  if (s.json) printf("\n  ]}\n");
  unlink(tokens);
  return status;
}

static const ot_option options[] = {
    {"ranks", OT_OPTION_INTEGER, "N", "2", 2, 256, .help = "ranks of one thread"},
    {"repeats", OT_OPTION_INTEGER, "R", "5", 1, OT_BENCH_REPEATS, .help = "repetitions per median"},
    {"every", OT_OPTION_INTEGER, "K", "100", 1, 1000000, .help = "steps between two audits"},
    {"batch", OT_OPTION_INTEGER, "B", "8", 2, 65536,
     .help = "sequences per step, a multiple of the ranks"},
};

const ot_verb ot_bench_program = {
    .prefix = OT_BENCH_PREFIX,
    .name = "audits",
    .summary = "cost of the replica audit during training",
    .arguments = "",
    .options = options,
    .num_options = OT_COUNT(options),
    .json = true,
    .run = run_program,
};
