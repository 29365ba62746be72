// SPDX-License-Identifier: Apache-2.0
// Launches of the same op with the same work share one timing over all steps and layers. Rank 0
// represents all ranks. Its caches are as in a real step and the other ranks run concurrently,
// unlike in a loop over one kernel.
#include <assert.h>
#include <string.h>

#include "base/nonnegative_fit.h"
#include "base/sort.h"
#include "base/text.h"
#include "files/config_file.h"
#include "measure/measure_parts.h"
#include "measure/trial.h"
#include "ops/catalog.h"
#include "schedule/joined.h"
#include "simulate/price_measured.h"

static_assert((int)OT_KERNEL_TERMS <= (int)OT_FIT_TERMS, "a fit has room for all terms");

// ---- the models ----

#define LLAMA "model.model_type=llama model.max_position_embeddings=4096 "
#define GPT2                                                                             \
  "model.model_type=gpt2 model.n_positions=1024 model.resid_pdrop=0 model.embd_pdrop=0 " \
  "model.attn_pdrop=0 "

typedef struct subject {
  int multiple;  // of ranks: the number of ranks must be a multiple of it
  bool quick;    // part of a quick measurement
  int64_t micro_batch, sequence;
  const char *sets;
} subject;

static const subject subjects[] = {
    {1, false, 2, 256,
     LLAMA "model.vocab_size=4096 model.hidden_size=256 model.intermediate_size=768 "
           "model.num_hidden_layers=2 model.num_attention_heads=8 model.num_key_value_heads=4"},
    {1, false, 4, 64,
     GPT2 "model.vocab_size=2048 model.n_embd=384 model.n_layer=2 model.n_head=6 "
          "parallel.zero=1"},
    {1, false, 1, 512,
     LLAMA "model.vocab_size=8192 model.hidden_size=512 model.intermediate_size=1536 "
           "model.num_hidden_layers=1 model.num_attention_heads=8 model.num_key_value_heads=8 "
           "parallel.recompute=full"},
    {1, true, 1, 128,
     LLAMA "model.vocab_size=1024 model.hidden_size=128 model.intermediate_size=384 "
           "model.num_hidden_layers=2 model.num_attention_heads=4 model.num_key_value_heads=2"},
    {1, false, 4, 256,
     GPT2 "model.vocab_size=4096 model.n_embd=192 model.n_layer=1 model.n_head=3 "},
    {2, false, 2, 256,
     LLAMA "model.vocab_size=4096 model.hidden_size=256 model.intermediate_size=768 "
           "model.num_hidden_layers=2 model.num_attention_heads=8 model.num_key_value_heads=4 "
           "parallel.tp=2"},
    {2, false, 4, 64,
     GPT2 "model.vocab_size=2048 model.n_embd=384 model.n_layer=1 model.n_head=6 "
          "parallel.tp=2"},
    {2, false, 1, 512,
     LLAMA "model.vocab_size=2048 model.hidden_size=256 model.intermediate_size=512 "
           "model.num_hidden_layers=2 model.num_attention_heads=4 model.num_key_value_heads=2 "
           "parallel.cp=2"},
    {2, true, 2, 128,
     GPT2 "model.vocab_size=1024 model.n_embd=128 model.n_layer=1 model.n_head=2 "
          "parallel.cp=2"},
};

// Of a GPU: large enough that it never waits for the host.
static const subject gpu_subjects[] = {
    {1, false, 4, 2048,
     LLAMA "model.vocab_size=32768 model.hidden_size=2048 model.intermediate_size=5632 "
           "model.num_hidden_layers=2 model.num_attention_heads=16 model.num_key_value_heads=8"},
    {1, false, 8, 1024,
     GPT2 "model.vocab_size=50304 model.n_embd=1536 model.n_layer=2 model.n_head=24"},
    {1, false, 1, 4096,
     LLAMA "model.vocab_size=16384 model.hidden_size=4096 model.intermediate_size=14336 "
           "model.num_hidden_layers=1 model.num_attention_heads=32 model.num_key_value_heads=8 "
           "parallel.recompute=full"},
    {1, false, 16, 512,
     LLAMA "model.vocab_size=32768 model.hidden_size=1024 model.intermediate_size=2816 "
           "model.num_hidden_layers=2 model.num_attention_heads=16 model.num_key_value_heads=16"},
    {1, false, 4, 1024,
     "model.model_type=mixtral model.max_position_embeddings=4096 model.vocab_size=32768 "
     "model.hidden_size=1024 model.intermediate_size=2816 model.num_hidden_layers=2 "
     "model.num_attention_heads=16 model.num_key_value_heads=8 model.num_local_experts=8 "
     "model.num_experts_per_tok=2"},
    {1, true, 2, 16,
     LLAMA "model.vocab_size=64 model.hidden_size=32 model.intermediate_size=64 "
           "model.num_hidden_layers=1 model.num_attention_heads=2 model.num_key_value_heads=1"},
};

enum { MAX_SETS = 32, STEPS = 8, QUICK_STEPS = 2, MICRO_BATCHES = 2 };

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
      (long long)(s->micro_batch * MICRO_BATCHES * ranks / s->multiple),
      ot_dtype_name(trials->dtype), s->sets);
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

// Runs of equal tasks.
typedef struct task_timings {
  ot_op_kind op;
  double terms[OT_KERNEL_TERMS];
  ot_timings *timings;
} task_timings;

typedef struct collection {
  ot_arena *arena;
  task_timings *task_timings;
  int64_t count, capacity;
  ot_timings *gaps;  // between kernels of a segment
  double event_s;    // see ot_kernel_trials
} collection;

static ot_timings *find(collection *c, ot_op_kind op, const double terms[OT_KERNEL_TERMS]) {
  for (int64_t i = 0; i < c->count; i++) {
    const task_timings *const l = &c->task_timings[i];
    if (l->op == op && memcmp(l->terms, terms, sizeof l->terms) == 0) return l->timings;
  }
  c->task_timings =
      ot_arena_grow(c->arena, c->task_timings, c->count, &c->capacity, sizeof *c->task_timings);
  task_timings *const added = &c->task_timings[c->count++];
  *added = (task_timings){.op = op};
  memcpy(added->terms, terms, sizeof added->terms);
  added->timings = ot_arena_array(c->arena, 1, sizeof *added->timings);
  return added->timings;
}

static const ot_segment *segment_of(const ot_trial_step *step, const ot_span *span) {
  const ot_order *const order = &step->schedule->orders[step->timeline->order];
  return &step->schedule->segments[order->entries[span->entry].segment];
}

// The times of launches with the work of the one that begins at `task`.
static ot_timings *find_launch(collection *c, const ot_segment *segment, int task) {
  double sums[OT_KERNEL_TERMS] = {0};
  for (int i = 0; i < ot_segment_launch(segment, task); i++) {
    double terms[OT_KERNEL_TERMS];
    ot_kernel_terms(&segment->tasks[task + i], terms);
    for (int k = 0; k < OT_KERNEL_TERMS; k++) sums[k] += terms[k];
  }
  return find(c, segment->tasks[task].op, sums);
}

static bool follows(const ot_span *span, const ot_span *before) {
  return span->lane == OT_LANE_COMPUTE && before->lane == OT_LANE_COMPUTE &&
         span->entry == before->entry && span->task == before->task + 1;
}

static ot_status on_step(void *context, const ot_trial_step *step) {
  collection *const c = context;
  if (step->rank != 0 || step->step == 0) return OT_OK;
  const ot_span *const spans = step->timeline->spans;
  for (int64_t i = 0; i < step->timeline->num_spans; i++) {
    const ot_segment *const segment = segment_of(step, &spans[i]);
    if (segment->tasks[spans[i].task].kind != OT_TASK_COMPUTE) continue;
    ot_timings_add(find_launch(c, segment, spans[i].task),
                   spans[i].end_s - spans[i].start_s - c->event_s);
    if (i > 0 && follows(&spans[i], &spans[i - 1])) {
      ot_timings_add(c->gaps, spans[i].start_s - spans[i - 1].end_s);
    }
  }
  return OT_OK;
}

static ot_status run_subject(const subject *s, const ot_kernel_trials *trials, collection *c) {
  ot_heap heap = {0};
  ot_arena scratch = ot_heap_arena_create(&heap);
  ot_config config;
  ot_status status = load(s, trials, &scratch, &config);
  const ot_trial trial = {.run = &config.run,
                          .ranks = trials->ranks,
                          .threads = trials->threads,
                          .backend = trials->backend,
                          .steps = trials->quick ? QUICK_STEPS : STEPS,
                          .on_step = on_step,
                          .context = c};
  if (status == OT_OK) status = ot_trial_run(&trial);
  ot_heap_release(&heap);
  return status;
}

// ---- fits ----

static double rate_of(double seconds_each) { return seconds_each > 0 ? 1 / seconds_each : 0; }

static int by_value(const void *a, const void *b, const void *context) {
  (void)context;
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static ot_kernel_rates fit_op(const collection *c, ot_op_kind op, const ot_kernel_trials *trials,
                              ot_arena *arena) {
  ot_fit_sample *const samples = ot_arena_array(arena, c->count, sizeof *samples);
  double *const spreads = ot_arena_array(arena, c->count, sizeof *spreads);
  int64_t count = 0;
  for (int64_t i = 0; i < c->count; i++) {
    if (c->task_timings[i].op != op) continue;
    const ot_timing timing = ot_timings_read(c->task_timings[i].timings);
    if (timing.seconds <= 0) continue;
    memcpy(samples[count].term, c->task_timings[i].terms, sizeof c->task_timings[i].terms);
    samples[count].value = timing.seconds;
    spreads[count++] = timing.spread;
  }
  if (count == 0) return (ot_kernel_rates){0};
  const ot_fit fit = ot_fit_nonnegative(samples, count, arena);
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

ot_status ot_measure_kernels(const ot_kernel_trials *trials, ot_arena *arena,
                             ot_measured_kernels *out) {
  const bool gpu = trials->backend != OT_BACKEND_CPU;
  const subject *const all = gpu ? gpu_subjects : subjects;
  const int count = gpu ? OT_COUNT(gpu_subjects) : OT_COUNT(subjects);
  collection c = {.arena = arena, .event_s = trials->event_s};
  c.gaps = ot_arena_array(arena, 1, sizeof *c.gaps);
  for (int i = 0; i < count; i++) {
    if (trials->ranks % all[i].multiple != 0) continue;
    if (trials->quick != all[i].quick && (gpu || trials->quick)) continue;
    OT_TRY(run_subject(&all[i], trials, &c));
  }
  *out = (ot_measured_kernels){.rates = ot_arena_array(arena, OT_OP_COUNT, sizeof *out->rates)};
  for (int op = 0; op < OT_OP_COUNT; op++) {
    const ot_kernel_rates rates = fit_op(&c, (ot_op_kind)op, trials, arena);
    if (rates.op) out->rates[out->num_rates++] = rates;
  }
  out->launch_s = ot_timings_read(c.gaps).seconds;
  return OT_OK;
}
