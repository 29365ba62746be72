// SPDX-License-Identifier: Apache-2.0
// Cost of parallelism: one training step on N ranks of one thread each, compared with the same step
// on one rank of N threads at the same global batch, alternating in one process: whole, split,
// whole, split... A ratio of 1 means no overhead; the exposed time explains the rest.
//   bench/scaling [--ranks N] [--repeats R] [--micro-batches M] [--sequence T] [--layout NAME]
//                 [--json]
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sort.h"
#include "describe/groups.h"
#include "describe/run_keys.h"
#include "host/clock.h"
#include "support/bench_program.h"
#include "support/bench_step.h"

typedef struct settings {
  int ranks, repeats, micro_batches, sequence;
  int layout;  // the only one to run, -1: all
  bool json;
} settings;

typedef struct layout {
  const char *name;
  bool experts;  // uses the MoE model
  ot_run_parallel parallel;
} layout;

enum { VOCABULARY = 16384, EXPERTS = 8, EXPERTS_PER_TOKEN = 2 };

// ---- the models: 44 M parameters; with experts, as many active per token ----

static ot_model small_llama(int sequence) {
  return (ot_model){
      .family = OT_FAMILY_LLAMA,
      .model_type = "llama",
      .architecture = "LlamaForCausalLM",
      .vocab_size = VOCABULARY,
      .hidden_size = 512,
      .intermediate_size = 1536,
      .num_layers = 8,
      .num_heads = 8,
      .num_kv_heads = 4,
      .head_dim = 64,
      .max_positions = sequence,
      .activation = OT_ACTIVATION_SILU,
      .gated_mlp = true,
      .norm = OT_NORM_RMSNORM,
      .norm_epsilon = 1e-5,
      .embedding_scale = 1,
      .attention_scale = 0.125,
      .rotary_dim = 64,
      .rope = {.type = OT_ROPE_DEFAULT, .theta = 10000, .factor = 1},
      .rope_local = {.type = OT_ROPE_DEFAULT, .theta = 10000, .factor = 1},
      .initializer_range = 0.02,
      .dtype = OT_F32,
      .bos_id = -1,
      .pad_id = -1,
  };
}

static ot_model small_mixtral(int sequence) {
  ot_model model = small_llama(sequence);
  model.family = OT_FAMILY_MIXTRAL;
  model.model_type = "mixtral";
  model.architecture = "MixtralForCausalLM";
  model.moe = (ot_moe){.num_experts = EXPERTS,
                       .experts_per_token = EXPERTS_PER_TOKEN,
                       .expert_size = model.intermediate_size / EXPERTS_PER_TOKEN,
                       .renormalise = true,
                       .scale = 1,
                       .num_groups = 1,
                       .groups_per_token = 1};
  for (int i = 0; i < model.num_layers; i++) model.moe.layer[i] = true;
  return model;
}

static ot_run run_of(const ot_run *base, const ot_run_parallel *parallel) {
  ot_run run = *base;
  run.parallel = *parallel;
  return run;
}

// ---- ranks ----

static ot_status create(const settings *s, const ot_run *run, ot_mesh *mesh, ot_comm *comm,
                        ot_runtime **out) {
  const int dp = mesh ? mesh->degree[OT_AXIS_DP_SHARD] * mesh->degree[OT_AXIS_DP_REPLICATE] : 1;
  const int micro_batches[] = {s->micro_batches / dp};
  const ot_runtime_request request = {.rank = {.modes = 1u << OT_MODE_TRAIN,
                                               .graph = {.model = &run->model,
                                                         .micro_batch_size = 1,
                                                         .sequence_length = s->sequence,
                                                         .compute = OT_F32,
                                                         .storage = OT_F32,
                                                         .threads = mesh ? 1 : s->ranks,
                                                         .seed = 1},
                                               .schedule = {.run = run,
                                                            .micro_batches = micro_batches,
                                                            .num_micro_batches = 1,
                                                            .mesh = mesh,
                                                            .rank = comm ? ot_comm_rank(comm) : 0}},
                                      .comm = comm};
  OT_TRY(ot_runtime_create(&request, out));
  return ot_runtime_initialize(*out, 1);
}

static ot_status step(ot_runtime *runtime, int micro_batches, double *seconds) {
  ot_bench_set_scalars(runtime, 4096, 1);
  const double start_s = ot_clock_s();
  const ot_status status = ot_runtime_run(runtime, OT_MODE_TRAIN, micro_batches);
  *seconds = ot_clock_s() - start_s;
  return status;
}

// ---- measurement ----

typedef struct contest {
  const settings *settings;
  const ot_run *run;
  ot_runtime *whole;  // one rank with all threads, run by rank 0 while the others wait
  double whole_s[OT_BENCH_REPEATS], split_s[OT_BENCH_REPEATS];
  ot_timeline_summary summary;  // of rank 0, last step
} contest;

static ot_status meet(ot_comm *comm) {
  const ot_comm_call call = {.kind = OT_COMM_BARRIER, .group = OT_GROUP_WORLD, .name = "turn"};
  return ot_comm_run(comm, &call);
}

static ot_status take_turns(contest *c, ot_comm *comm, ot_runtime *split, int micro_batches) {
  const bool first = ot_comm_rank(comm) == 0;
  double seconds = 0;
  OT_TRY(step(split, micro_batches, &seconds));  // first touch of pages
  for (int i = 0; i < c->settings->repeats; i++) {
    OT_TRY(meet(comm));
    if (first) OT_TRY(step(c->whole, c->settings->micro_batches, &c->whole_s[i]));
    OT_TRY(meet(comm));
    OT_TRY(step(split, micro_batches, &seconds));
    OT_TRY(meet(comm));
    if (first) c->split_s[i] = seconds;
  }
  ot_executor_set_trace(ot_runtime_executor(split), true);
  OT_TRY(step(split, micro_batches, &seconds));
  if (first) {
    c->summary = ot_timeline_summarize(ot_executor_timeline(ot_runtime_executor(split)),
                                       ot_runtime_schedule(split));
  }
  return OT_OK;
}

static ot_status rank_main(ot_comm *comm, void *context) {
  contest *const c = context;
  ot_mesh mesh;
  OT_TRY(ot_mesh_build(&c->run->parallel, ot_comm_size(comm), &mesh));
  const int dp = mesh.degree[OT_AXIS_DP_SHARD] * mesh.degree[OT_AXIS_DP_REPLICATE];
  const int micro_batches = c->settings->micro_batches / dp;
  ot_runtime *split = NULL;
  OT_TRY(create(c->settings, c->run, &mesh, comm, &split));
  for (int m = 0; m < micro_batches; m++) ot_bench_load(split, m, VOCABULARY);
  const ot_status status = take_turns(c, comm, split, micro_batches);
  ot_runtime_destroy(&split);
  return status;
}

// ---- report ----

// Median of the ratios of the pairs.
static double paired_ratio(const contest *c) {
  double ratios[OT_BENCH_REPEATS];
  for (int i = 0; i < c->settings->repeats; i++) ratios[i] = c->split_s[i] / c->whole_s[i];
  return ot_bench_median(ratios, c->settings->repeats);
}

static void report(const contest *c, const char *name, bool first) {
  const settings *const s = c->settings;
  const double whole = ot_bench_median(c->whole_s, s->repeats),
               split = ot_bench_median(c->split_s, s->repeats);
  const double ratio = paired_ratio(c);
  if (s->json) {
    printf(
        "%s\n    {\"layout\": \"%s\", \"whole_seconds\": %.6f, \"split_seconds\": %.6f, "
        "\"ratio\": %.4f, \"exposed_seconds\": %.6f, \"bubble_fraction\": %.4f}",
        first ? "" : ",", name, whole, split, ratio, c->summary.exposed_s,
        c->summary.bubble_fraction);
    return;
  }
  printf("%-22s %9.3f %9.3f %8.3f %12.1f %8.1f %%\n", name, whole, split, ratio,
         1e3 * c->summary.exposed_s, 100 * c->summary.bubble_fraction);
  fflush(stdout);
}

// In the order of the words of --layout.
static int layouts_for(int ranks, const ot_run_parallel *base, layout *layouts) {
  const char *const names[] = {"dp", "zero3", "tp", "cp", "pp", "pp-zb-h1", "experts-dp", "ep"};
  for (int i = 0; i < OT_COUNT(names); i++) layouts[i] = (layout){names[i], i >= 6, *base};
  layouts[0].parallel.zero = 0;
  layouts[1].parallel.zero = 3;
  layouts[1].parallel.accumulate = OT_ACCUMULATE_SHARDED;
  layouts[2].parallel.tp = ranks;
  layouts[3].parallel.cp = ranks;
  layouts[4].parallel.pp = layouts[5].parallel.pp = ranks;
  layouts[5].parallel.pipeline = OT_PIPELINE_ZB_H1;
  layouts[7].parallel.ep = ranks;
  return OT_COUNT(names);
}

// One rank with all threads, after one step.
static ot_status create_whole(const settings *s, const ot_run *run, ot_runtime **whole) {
  double seconds = 0;
  OT_TRY(create(s, run, NULL, NULL, whole));
  for (int m = 0; m < s->micro_batches; m++) ot_bench_load(*whole, m, VOCABULARY);
  return step(*whole, s->micro_batches, &seconds);
}

// Runs the requested layouts of one model.
static ot_status contest_model(const settings *s, const ot_run *base, const layout *layouts,
                               int count, bool *first) {
  const ot_run whole_run = run_of(base, &layouts[0].parallel);
  ot_runtime *whole = NULL;
  ot_status status = create_whole(s, &whole_run, &whole);
  for (int i = 0; i < count && status == OT_OK; i++) {
    const ot_run run = run_of(base, &layouts[i].parallel);
    contest c = {.settings = s, .run = &run, .whole = whole};
    status = ot_comm_run_threads(s->ranks, rank_main, &c);
    if (status == OT_OK) report(&c, layouts[i].name, *first);
    *first = false;
  }
  ot_runtime_destroy(&whole);
  return status;
}

static ot_status contest_all(const settings *s, ot_arena *arena) {
  layout layouts[8], wanted[8];
  bool first = true;
  for (int experts = 0; experts < 2; experts++) {
    const ot_model model = experts ? small_mixtral(s->sequence) : small_llama(s->sequence);
    ot_run base;
    OT_TRY(ot_run_defaults(&model, OT_F32, arena, &base));
    const int count = layouts_for(s->ranks, &base.parallel, layouts);
    int found = 0;
    for (int i = 0; i < count; i++) {
      const bool asked = s->layout < 0 || s->layout == i;
      if (asked && layouts[i].experts == (experts == 1)) wanted[found++] = layouts[i];
    }
    if (found > 0) OT_TRY(contest_model(s, &base, wanted, found, &first));
  }
  return OT_OK;
}

static ot_status run_program(const ot_options *options) {
  const settings s = {.ranks = (int)ot_options_integer(options, "ranks"),
                      .repeats = (int)ot_options_integer(options, "repeats"),
                      .micro_batches = (int)ot_options_integer(options, "micro-batches"),
                      .sequence = (int)ot_options_integer(options, "sequence"),
                      .layout = ot_options_choice(options, "layout"),
                      .json = ot_options_json(options)};
  OT_CHECK(s.micro_batches % s.ranks == 0, OT_USAGE,
           "--micro-batches %d is not a multiple of --ranks %d", s.micro_batches, s.ranks);
  if (s.json) {
    printf("{\"ranks\": %d, \"micro_batches\": %d, \"tokens\": %d, \"layouts\": [", s.ranks,
           s.micro_batches, s.micro_batches * s.sequence);
  } else {
    printf("%d ranks of 1 thread and 1 rank of %d threads; %d micro-batches of %d tokens\n",
           s.ranks, s.ranks, s.micro_batches, s.sequence);
    printf("%-22s %9s %9s %8s %12s %10s\n", "layout", "whole s", "split s", "ratio", "exposed ms",
           "bubble");
  }
  const ot_status status = contest_all(&s, ot_options_arena(options));
  if (s.json) printf("\n  ]}\n");
  return status;
}

static const ot_option options[] = {
    {"ranks", OT_OPTION_INTEGER, "N", "2", 2, 256,
     .help = "ranks of one thread, and threads of one rank"},
    {"repeats", OT_OPTION_INTEGER, "R", "5", 1, OT_BENCH_REPEATS, .help = "repetitions per median"},
    {"micro-batches", OT_OPTION_INTEGER, "M", "32", 1, 65536,
     .help = "micro-batches per step, a multiple of the ranks"},
    {"sequence", OT_OPTION_INTEGER, "T", "256", 1, 65536, .help = "tokens of a sequence"},
    {"layout", OT_OPTION_CHOICE, "dp|zero3|tp|cp|pp|pp-zb-h1|experts-dp|ep",
     .help = "the only layout to run; default: all"},
};

const ot_verb ot_bench_program = {
    .prefix = OT_BENCH_PREFIX,
    .name = "scaling",
    .summary = "training on ranks of one thread, compared with one rank of all threads",
    .arguments = "",
    .options = options,
    .num_options = OT_COUNT(options),
    .json = true,
    .run = run_program,
};
