// SPDX-License-Identifier: Apache-2.0
// Launches of the same op with the same work share one timing over all steps and layers. Rank 0
// represents all ranks. Its caches are as in a real step and the other ranks run concurrently,
// unlike in a loop over one kernel.
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/backend_rules.h"
#include "base/nonnegative_fit.h"
#include "base/sort.h"
#include "base/text.h"
#include "files/config_file.h"
#include "measure/measure_parts.h"
#include "measure/task_timings.h"
#include "measure/trial.h"
#include "ops/catalog.h"

static_assert((int)OT_KERNEL_TERMS <= (int)OT_FIT_TERMS, "a fit has room for all terms");

// ---- the models ----

#define LLAMA "model.model_type=llama model.max_position_embeddings=4096 "
#define GPT2                                                                             \
  "model.model_type=gpt2 model.n_positions=1024 model.resid_pdrop=0 model.embd_pdrop=0 " \
  "model.attn_pdrop=0 "
#define MIXTRAL "model.model_type=mixtral model.max_position_embeddings=4096 "

typedef struct subject {
  int multiple;  // of ranks: the number of ranks must be a multiple of it
  int alike;     // ranks with the same data
  bool quick;    // part of a quick measurement
  bool small;    // only part of one with small models
  int64_t micro_batch, sequence;
  const char *sets;
} subject;

static const subject subjects[] = {
    {1, 1, false, false, 2, 256,
     LLAMA "model.vocab_size=4096 model.hidden_size=256 model.intermediate_size=768 "
           "model.num_hidden_layers=1 model.num_attention_heads=8 model.num_key_value_heads=4"},
    {1, 1, false, false, 4, 64,
     GPT2 "model.vocab_size=2048 model.n_embd=384 model.n_layer=1 model.n_head=6 "
          "parallel.zero=1"},
    {1, 1, false, false, 1, 512,
     LLAMA "model.vocab_size=8192 model.hidden_size=512 model.intermediate_size=1536 "
           "model.num_hidden_layers=1 model.num_attention_heads=8 model.num_key_value_heads=8 "
           "parallel.recompute=full"},
    {1, 1, true, false, 1, 128,
     LLAMA "model.vocab_size=1024 model.hidden_size=128 model.intermediate_size=384 "
           "model.num_hidden_layers=1 model.num_attention_heads=4 model.num_key_value_heads=2"},
    {1, 1, false, false, 4, 256,
     GPT2 "model.vocab_size=4096 model.n_embd=192 model.n_layer=1 model.n_head=3 "},
    {2, 2, false, false, 2, 256,
     LLAMA "model.vocab_size=4096 model.hidden_size=256 model.intermediate_size=768 "
           "model.num_hidden_layers=1 model.num_attention_heads=8 model.num_key_value_heads=4 "
           "parallel.tp=2"},
    {2, 2, false, false, 4, 64,
     GPT2 "model.vocab_size=2048 model.n_embd=384 model.n_layer=1 model.n_head=6 "
          "parallel.tp=2"},
    {2, 2, false, false, 1, 512,
     LLAMA "model.vocab_size=2048 model.hidden_size=256 model.intermediate_size=512 "
           "model.num_hidden_layers=1 model.num_attention_heads=4 model.num_key_value_heads=2 "
           "parallel.cp=2"},
    {2, 2, true, false, 2, 128,
     GPT2 "model.vocab_size=1024 model.n_embd=128 model.n_layer=1 model.n_head=2 "
          "parallel.cp=2"},
    {1, 1, false, false, 2, 512,
     GPT2 "model.vocab_size=8192 model.n_embd=256 model.n_layer=1 model.n_head=4 "},
    {2, 2, false, false, 2, 256,
     GPT2 "model.vocab_size=8192 model.n_embd=256 model.n_layer=1 model.n_head=4 "
          "parallel.tp=2"},
    {2, 2, false, false, 1, 1024,
     GPT2 "model.vocab_size=4096 model.n_embd=256 model.n_layer=1 model.n_head=4 "
          "parallel.cp=2"},
    {1, 1, false, false, 4, 256,
     MIXTRAL "model.vocab_size=1024 model.hidden_size=128 model.intermediate_size=320 "
             "model.num_hidden_layers=1 model.num_attention_heads=4 model.num_key_value_heads=2 "
             "model.num_local_experts=8 model.num_experts_per_tok=2"},
    {1, 1, true, false, 2, 128,
     MIXTRAL "model.vocab_size=1024 model.hidden_size=256 model.intermediate_size=512 "
             "model.num_hidden_layers=1 model.num_attention_heads=4 model.num_key_value_heads=2 "
             "model.num_local_experts=4 model.num_experts_per_tok=2"},
    {2, 1, false, false, 2, 256,
     MIXTRAL "model.vocab_size=1024 model.hidden_size=192 model.intermediate_size=256 "
             "model.num_hidden_layers=1 model.num_attention_heads=4 model.num_key_value_heads=2 "
             "model.num_local_experts=8 model.num_experts_per_tok=2 parallel.ep=2"},
};

// Subjects of a GPU: large enough that it never waits for the host.
static const subject gpu_subjects[] = {
    {1, 1, true, false, 4, 2048,
     LLAMA "model.vocab_size=32768 model.hidden_size=2048 model.intermediate_size=5632 "
           "model.num_hidden_layers=2 model.num_attention_heads=16 model.num_key_value_heads=8"},
    {1, 1, true, false, 8, 1024,
     GPT2 "model.vocab_size=50304 model.n_embd=1536 model.n_layer=2 model.n_head=24"},
    {1, 1, true, false, 1, 4096,
     LLAMA "model.vocab_size=16384 model.hidden_size=4096 model.intermediate_size=14336 "
           "model.num_hidden_layers=1 model.num_attention_heads=32 model.num_key_value_heads=8 "
           "parallel.recompute=full"},
    {1, 1, true, false, 16, 512,
     LLAMA "model.vocab_size=32768 model.hidden_size=1024 model.intermediate_size=2816 "
           "model.num_hidden_layers=2 model.num_attention_heads=16 model.num_key_value_heads=16"},
    {1, 1, true, false, 4, 1024,
     MIXTRAL "model.vocab_size=32768 "
             "model.hidden_size=1024 model.intermediate_size=2816 model.num_hidden_layers=2 "
             "model.num_attention_heads=16 model.num_key_value_heads=8 model.num_local_experts=8 "
             "model.num_experts_per_tok=2"},
    {1, 1, true, true, 2, 16,
     LLAMA "model.vocab_size=64 model.hidden_size=32 model.intermediate_size=64 "
           "model.num_hidden_layers=1 model.num_attention_heads=2 model.num_key_value_heads=1"},
};

enum { MAX_SETS = 32, ROUNDS = 3, STEPS = 2, QUICK_STEPS = 1, MICRO_BATCHES = 2 };

static ot_status load(const subject *s, const ot_kernel_trials *trials, ot_arena *arena,
                      ot_config *out) {
  const int ranks = trials->ranks;
  const char *sets[MAX_SETS];
  int count = 0;
  const char *words = ot_arena_format(
      arena,
      "data.train=none data.tokenizer=bytes output=none steps=1 data.sequence_length=%lld "
      "batch.micro_batch_size=%lld batch.global_batch_size=%lld precision.compute=%s %s",
      (long long)s->sequence, (long long)s->micro_batch,
      (long long)(s->micro_batch * MICRO_BATCHES * ranks / s->alike), ot_dtype_name(trials->dtype),
      s->sets);
  while (*words) {
    const size_t length = strcspn(words, " ");
    OT_ASSERT(count < MAX_SETS);
    if (length > 0) sets[count++] = ot_arena_text(arena, words, (int64_t)length);
    words += length + (words[length] == ' ');
  }
  const ot_config_request request = {.sets = sets, .num_sets = count};
  return ot_config_load(&request, arena, out);
}

// ---- times of its tasks ----

// Rounds of steps of one subject, at different times.
typedef struct collection {
  ot_task_timings times[ROUNDS];
  double seconds[ROUNDS];  // of all steps of a round
  int count;
  double event_s;  // see ot_kernel_trials
} collection;

static ot_status on_step(void *context, const ot_trial_step *step) {
  collection *const c = context;
  if (step->rank != 0 || step->step == 0) return OT_OK;
  c->seconds[c->count] += step->seconds;
  ot_task_timings_add(&c->times[c->count], step->timeline, step->schedule, c->event_s);
  return OT_OK;
}

static int rounds_of(const ot_kernel_trials *trials) {
  return trials->quick || !ot_backend_rules_of(trials->backend)->host ? 1 : ROUNDS;
}

// One round; its times in `arena`.
static ot_status run_subject(const subject *s, const ot_kernel_trials *trials, ot_arena *arena,
                             collection *c) {
  ot_heap heap = {0};
  ot_arena scratch = ot_heap_arena_create(&heap);
  ot_config config;
  ot_status status = load(s, trials, &scratch, &config);
  const ot_trial trial = {.run = &config.run,
                          .ranks = trials->ranks,
                          .threads = trials->threads,
                          .backend = trials->backend,
                          .steps = 1 + (trials->quick ? QUICK_STEPS : STEPS),
                          .on_step = on_step,
                          .context = c};
  c->times[c->count].arena = arena;
  c->event_s = trials->event_s;
  if (status == OT_OK) status = ot_trial_run(&trial);
  c->count++;
  ot_heap_release(&heap);
  return status;
}

// The kernels of the fastest round of each subject. In `arena`.
static ot_status run_subjects(const ot_kernel_trials *trials, ot_arena *arena,
                              ot_task_timings *out) {
  const bool gpu = !ot_backend_rules_of(trials->backend)->host;
  const subject *const all = gpu ? gpu_subjects : subjects;
  const int count = gpu ? OT_COUNT(gpu_subjects) : OT_COUNT(subjects);
  collection *const each = ot_arena_array(arena, count, sizeof *each);
  for (int i = 0; i < count * rounds_of(trials); i++) {
    const subject *const s = &all[i % count];
    if (trials->ranks % s->multiple != 0) continue;
    if (trials->small != s->small || (trials->quick && !s->quick)) continue;
    OT_TRY(run_subject(s, trials, arena, &each[i % count]));
  }
  out->arena = arena;
  for (int i = 0; i < count; i++) {
    int fastest[ROUNDS];
    const int n = ot_timings_fastest(each[i].seconds, each[i].count, fastest);
    for (int k = 0; k < n; k++) ot_task_timings_join(out, &each[i].times[fastest[k]]);
  }
  return OT_OK;
}

// ---- fits ----

static double rate_of(double seconds_each) { return seconds_each > 0 ? 1 / seconds_each : 0; }

static int by_value(const void *a, const void *b, const void *context) {
  (void)context;
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Time of all runs over that of as many runs at the medians: interruptions hit few runs, but the
// time of a step is a sum that contains them.
static double interruptions_of(const ot_task_timings *t) {
  double all_s = 0, typical_s = 0;
  for (int64_t i = 0; i < t->count; i++) {
    ot_timings *const runs = t->rows[i].runs;
    all_s += runs->total_s;
    typical_s += (double)runs->count * ot_timings_median(runs);
  }
  return all_s > typical_s ? all_s / typical_s : 1;
}

static ot_kernel_rates fit_op(const ot_task_timings *t, ot_op_kind op,
                              const ot_kernel_trials *trials, double interruptions,
                              ot_arena *arena) {
  ot_fit_sample *const samples = ot_arena_array(arena, t->count, sizeof *samples);
  double *const spreads = ot_arena_array(arena, t->count, sizeof *spreads);
  int64_t count = 0;
  for (int64_t i = 0; i < t->count; i++) {
    if (t->rows[i].op != op) continue;
    const ot_timing timing = ot_timings_read(t->rows[i].runs);
    if (timing.seconds <= 0) continue;
    memcpy(samples[count].term, t->rows[i].terms, sizeof t->rows[i].terms);
    samples[count].value = interruptions * ot_timings_median(t->rows[i].runs);
    spreads[count++] = timing.spread;
  }
  if (count == 0) return (ot_kernel_rates){0};
  double least[OT_FIT_TERMS] = {0};
  if (trials->peak_flops_per_s > 0) least[OT_KERNEL_MATRIX] = 1 / trials->peak_flops_per_s;
  const ot_fit fit = ot_fit_nonnegative(samples, count, least, arena);
  ot_sort(spreads, count, sizeof *spreads, (ot_ordering){by_value, NULL}, arena);
  return (ot_kernel_rates){
      .op = ot_op_info_of(op)->name,
      .threads = trials->threads,
      .dtype = trials->dtype,
      .call_s = fit.x[OT_KERNEL_CALL],
      .fork_s = fit.x[OT_KERNEL_FORK],
      .matrix_flops_per_s = rate_of(fit.x[OT_KERNEL_MATRIX]),
      .other_flops_per_s = rate_of(fit.x[OT_KERNEL_OTHER]),
      .bytes_per_s = rate_of(fit.x[OT_KERNEL_BYTES]),
      .fit = {(int)count, fit.residual, spreads[count / 2]},
  };
}

static void fit_kernels(const ot_task_timings *times, const ot_kernel_trials *trials,
                        ot_arena *arena, ot_measured_kernels *out) {
  const double interruptions = interruptions_of(times);
  *out = (ot_measured_kernels){.rates = ot_arena_array(arena, OT_OP_COUNT, sizeof *out->rates)};
  for (int op = 0; op < OT_OP_COUNT; op++) {
    const ot_kernel_rates rates = fit_op(times, (ot_op_kind)op, trials, interruptions, arena);
    if (rates.op) out->rates[out->num_rates++] = rates;
  }
}

ot_status ot_measure_kernels(const ot_kernel_trials *trials, ot_arena *arena,
                             ot_measured_kernels *out) {
  ot_heap heap = {0};
  ot_arena scratch = ot_heap_arena_create(&heap);
  ot_task_timings times = {0};
  const ot_status status = run_subjects(trials, &scratch, &times);
  fit_kernels(&times, trials, arena, out);
  out->launch_s = ot_timings_read(&times.gaps).seconds;
  ot_heap_release(&heap);
  return status;
}

// ---- ranks that share cores ----

enum { PAIRS = 5, QUICK_PAIRS = 1 };

static ot_status time_steps(const subject *s, int ranks, bool quick, double *seconds) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  collection *const all = ot_arena_array(&arena, 1, sizeof *all);
  const ot_kernel_trials trials = {.dtype = OT_F32, .ranks = ranks, .threads = 1, .quick = quick};
  const ot_status status = run_subject(s, &trials, &arena, all);
  *seconds = all->seconds[0];
  ot_heap_release(&heap);
  return status;
}

static const subject *find_subject(bool quick) {
  const subject *s = subjects;
  while (quick && !s->quick) s++;
  return s;
}

// In pairs: what disturbs the machine for longer than a pair does not change their ratio.
ot_status ot_measure_sharing(int cores, bool quick, double *sharing) {
  const subject *const s = find_subject(quick);
  ot_timings ratios = {0};
  for (int i = 0; i < (quick ? QUICK_PAIRS : PAIRS); i++) {
    double alone_s, shared_s;
    OT_TRY(time_steps(s, cores, quick, &alone_s));
    OT_TRY(time_steps(s, 2 * cores, quick, &shared_s));
    ot_timings_add(&ratios, shared_s / (2 * alone_s));
  }
  *sharing = ot_timings_median(&ratios);
  return OT_OK;
}
