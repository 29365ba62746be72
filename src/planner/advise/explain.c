// SPDX-License-Identifier: Apache-2.0
// Explains the best plan, problem by problem: each sentence states what would not fit or would be
// exposed, what the plan does about it, and what that costs.
#include "advise/explain.h"

#include "advise/explain_crossing.h"
#include "advise/what_if.h"
#include "base/quantity.h"
#include "base/text_builder.h"
#include "describe/expert_load.h"
#include "describe/pipeline_rules.h"
#include "describe/residuals.h"

enum { MAX_SENTENCES = 16 };

const char ot_explain_barrier[] =
    "zb-h2 helps only where the input-gradient pass is longer than the weight-gradient pass: the "
    "norm for gradient clipping synchronises all stages at the end of the step";

// Collects the sentences.
typedef struct speaker {
  const ot_explanation *e;
  const ot_candidate *c;
  ot_what_if what_if;
  ot_arena *arena;
  ot_reasons *out;
} speaker;

static speaker speaker_create(const ot_explanation *e, ot_arena *arena, ot_reasons *out) {
  out->num = 0;
  out->text = ot_arena_array(arena, MAX_SENTENCES, sizeof *out->text);
  const ot_what_if what_if = {e->estimator, e->job, e->best, e->others, e->plans, e->num_plans};
  return (speaker){e, &e->best->candidate, what_if, arena, out};
}

static void add_reason(speaker *s, const char *sentence) {
  OT_ASSERT(s->out->num < MAX_SENTENCES);
  s->out->text[s->out->num++] = sentence;
}

// Appends to the last sentence.
static void add(speaker *s, const char *text) {
  const char **const last = &s->out->text[s->out->num - 1];
  *last = ot_arena_format(s->arena, "%s%s", *last, text);
}

// ---- links ----

// Name of the links that connect `ways` ranks at distance `stride`.
static const char *links_of(const ot_cluster *cluster, int stride, int ways) {
  const int reach = stride * (ways - 1);
  if (reach >= cluster->num_devices) return "links";
  const int level = ot_cluster_level(cluster, 0, reach);
  return level < 0 ? "links" : cluster->level[level].name;
}

// "exposes 156 ms a step" on this axis. Other stages may expose more or less.
static const char *exposes(const speaker *s, ot_timeline_axis axis) {
  return ot_arena_format(s->arena, "exposes %s a step%s",
                         ot_figure_seconds(s->arena, s->e->best->exposed_s[axis]),
                         s->c->pp > 1 ? " on the busiest stage" : "");
}

// ---- problem and fix ----

static void explain_memory_breakdown(speaker *s) {
  const ot_model_totals *const b = s->e->totals;
  const ot_recipe *const r = &s->e->job->recipe;
  ot_arena *const a = s->arena;
  const char *const parameters = ot_figure_count(a, (double)b->parameters);
  const char *const state = ot_figure_bytes(a, (double)b->state_bytes);
  const char *const parts =
      ot_arena_format(a, "%s parameters x %g bytes (weights %g, gradients %g, optimizer %g) = %s",
                      parameters, b->bytes_per_parameter, r->weight_bytes, r->gradient_bytes,
                      r->master_bytes + b->moment_bytes_per_parameter, state);
  if (b->min_devices_for_state <= 1) {
    add_reason(s, ot_arena_format(a, "%s: fits a device, before activations", parts));
    return;
  }
  add_reason(s, ot_arena_format(a, "%s: needs at least %lld devices, before activations", parts,
                                (long long)b->min_devices_for_state));
}

// States sharded over all devices, without any other parallelism.
static void explain_sharding(speaker *s) {
  const ot_job *const job = s->e->job;
  if (job->devices == 1) return;
  ot_arena *const a = s->arena;
  if (job->global_batch_size < job->devices) {
    add_reason(s, ot_arena_format(a,
                                  "%lld sequences for %d devices: some devices must share a "
                                  "sequence (tp, cp) or its layers (pp)",
                                  (long long)job->global_batch_size, job->devices));
    return;
  }
  if (s->c->zero == 3 && s->c->dp == job->devices) return;
  const char *const sharded = ot_what_if_sharded(&s->what_if, a);
  if (sharded[0] == '\0') return;
  add_reason(s, ot_arena_format(a, "zero 3 alone, weights sharded over all %d devices: %s",
                                job->devices, sharded));
}

static void explain_tensor(speaker *s) {
  const ot_candidate *const c = s->c;
  const ot_job *const job = s->e->job;
  ot_arena *const a = s->arena;
  if (job->devices == 1) return;
  if (c->tp == 1) {
    add_reason(s, "tp 1: weights are not sharded over tp, so activations need no reduction");
    add(s, ot_what_if_tp(&s->what_if, 2, a));
    return;
  }
  const bool experts = job->model->moe.num_experts > 0;
  add_reason(
      s, ot_arena_format(a,
                         "tp %d over %s: weights%s and activations of a layer are sharded %d ways; "
                         "reducing activations %s",
                         c->tp, links_of(job->cluster, 1, c->tp),
                         experts ? " (except experts)" : "", c->tp, exposes(s, OT_TIMELINE_TP)));
  add(s, ot_what_if_tp(&s->what_if, 1, a));
  if (c->tp > 2) add(s, ot_what_if_tp(&s->what_if, c->tp / 2, a));
}

static void explain_context(speaker *s) {
  const ot_candidate *const c = s->c;
  const ot_job *const job = s->e->job;
  ot_arena *const a = s->arena;
  if (c->cp == 1) return;
  add_reason(
      s, ot_arena_format(a,
                         "cp %d over %s: each device has %lld of the %lld tokens of a sequence and "
                         "exchanges keys and values; %s",
                         c->cp, links_of(job->cluster, c->tp, c->cp),
                         (long long)(job->sequence_length / c->cp), (long long)job->sequence_length,
                         exposes(s, OT_TIMELINE_CP)));
  add(s, ot_what_if_cp(&s->what_if, 1, a));
}

// ", in 3 passes of 1.25 even shares": the all-to-all needs overflow passes.
static const char *rounds_text(const speaker *s) {
  ot_run_lists lists;
  ot_run run;
  ot_candidate_run(s->e->job, s->c, &lists, &run);
  const int more =
      ot_expert_overflow_passes(&s->e->job->model->moe, &run.parallel, s->e->job->expert_imbalance);
  if (more == 0) return "";
  return ot_arena_format(s->arena, ", in %d passes of %g even shares", more + 1,
                         run.parallel.expert_buffer);
}

static void explain_experts(speaker *s) {
  const ot_candidate *const c = s->c;
  const ot_job *const job = s->e->job;
  ot_arena *const a = s->arena;
  if (job->devices == 1 || job->model->moe.num_experts == 0) return;
  if (c->ep * c->etp == 1) {
    add_reason(s,
               "ep 1: each device holds all experts of its layers, so tokens need no all-to-all");
    add(s, ot_what_if_ep(&s->what_if, 2, a));
    return;
  }
  add_reason(
      s, ot_arena_format(
             a,
             "ep %d%s: experts are sharded over the ranks of a stage; all-to-alls send tokens to "
             "them%s; %s",
             c->ep, c->etp > 1 ? ot_arena_format(a, " x etp %d", c->etp) : "", rounds_text(s),
             exposes(s, OT_TIMELINE_EP)));
  if (c->ep > 1) add(s, ot_what_if_ep(&s->what_if, 1, a));
  if (c->ep > 2) add(s, ot_what_if_ep(&s->what_if, c->ep / 2, a));
}

// The bubble formula of balanced stages, for the schedules that it applies to.
static const char *balanced_bubble(const speaker *s) {
  const ot_candidate *const c = s->c;
  if (ot_pipeline_rules_of(c->pipeline)->splits) return "";
  const double share = ot_pipeline_bubble(c->pipeline, c->pp, c->vpp, c->micro_batches);
  return ot_arena_format(s->arena, " ((p-1)/(%sm+p-1) = %s)", c->vpp > 1 ? "v" : "",
                         ot_figure_share(s->arena, share));
}

static void explain_pipeline(speaker *s) {
  const ot_candidate *const c = s->c;
  const ot_job *const job = s->e->job;
  ot_arena *const a = s->arena;
  if (job->devices == 1) return;
  if (c->pp == 1) {
    add_reason(s, "pp 1: no pipeline, so no bubble");
    add(s, ot_what_if_pp(&s->what_if, 2, a));
    return;
  }
  const double rows = (double)c->micro_batch_size * (double)job->sequence_length / c->cp / c->tp;
  const ot_residual_position end = ot_residual_position_of(job->model, job->model->num_layers);
  const double activations = end.finished > 0 ? (double)(end.finished + end.begun) : 1;
  const double message =
      activations * rows * (double)job->model->hidden_size * job->recipe.activation_bytes;
  const int stride = job->devices / c->pp;
  add_reason(s, ot_arena_format(
                    a,
                    "pp %d across %s: stages send each other %s%s a micro-batch, which "
                    "%s; %s with %lld micro-batches leaves %s of the step "
                    "idle%s",
                    c->pp, links_of(job->cluster, stride, c->pp), activations > 1 ? "up to " : "",
                    ot_figure_bytes(a, message), exposes(s, OT_TIMELINE_PP),
                    ot_pipeline_name(c->pipeline), (long long)c->micro_batches,
                    ot_figure_share(a, s->e->best->bubble_fraction), balanced_bubble(s)));
  add(s, ot_what_if_pp(&s->what_if, 1, a));
  if (c->pp > 2) add(s, ot_what_if_pp(&s->what_if, c->pp / 2, a));
  if (c->pipeline != OT_PIPELINE_1F1B) {
    add(s, ot_what_if_pipeline(&s->what_if, OT_PIPELINE_1F1B, a));
  }
}

static void explain_crossing(speaker *s) {
  const char *const text = ot_explain_division(s->e->job, s->e->best, s->arena);
  if (text) add_reason(s, text);
}

// The gradient norm synchronises all stages at the end of each step. zb-h2 has a bubble of 0 only
// if consecutive steps overlap (Qi et al. 2023, arXiv 2401.10241, sec. 4); docs/parallel.md
// compares the idle time of both.
static void explain_barrier(speaker *s) {
  const bool h1 = s->c->pipeline == OT_PIPELINE_ZB_H1;
  if (!h1 && s->c->pipeline != OT_PIPELINE_ZB_H2) return;
  add_reason(s, ot_explain_barrier);
  add(s, ot_what_if_pipeline(&s->what_if, h1 ? OT_PIPELINE_ZB_H2 : OT_PIPELINE_ZB_H1, s->arena));
}

static void explain_states(speaker *s) {
  static const char *const kept[] = {"nothing sharded", "optimizer states sharded",
                                     "optimizer states and gradients sharded",
                                     "weights, gradients and optimizer states sharded"};
  const ot_candidate *const c = s->c;
  const ot_memory_estimate *const m = &s->e->best->memory;
  ot_arena *const a = s->arena;
  if (c->dp == 1) return;
  char dp[64];
  ot_candidate_print_dp(c, dp, sizeof dp);
  add_reason(
      s, ot_arena_format(a,
                         "zero %d over dp %s: %s; a device holds %s of weights, %s of gradients, "
                         "%s of optimizer; %s",
                         c->zero, dp, kept[c->zero], ot_figure_bytes(a, (double)m->weights),
                         ot_figure_bytes(a, (double)m->gradients),
                         ot_figure_bytes(a, (double)m->optimizer), exposes(s, OT_TIMELINE_DP)));
  for (int zero = 0; zero <= 3; zero++) {
    if (zero != c->zero && zero != 2) add(s, ot_what_if_zero(&s->what_if, zero, a));
  }
}

static void explain_activations(speaker *s) {
  static const char *const modes[] = {"every activation is saved",
                                      "norms and activation functions are recomputed",
                                      "each layer saves only its input and is recomputed"};
  const ot_estimate *const e = s->e->best;
  ot_arena *const a = s->arena;
  const bool parts = s->c->modules != 0;
  const char *const mode = parts ? "these parts are recomputed" : modes[s->c->recompute];
  char recompute[OT_MODULES_BYTES];
  ot_candidate_print_recompute(s->c, recompute, sizeof recompute);
  const char *const bytes = ot_figure_bytes(a, (double)e->memory.activations);
  if (s->c->recompute == OT_RECOMPUTE_NONE) {
    add_reason(s, ot_arena_format(a, "recompute none: %s, %s, and that fits", mode, bytes));
    return;
  }
  add_reason(
      s, ot_arena_format(a, "recompute %s: %s, so activations take %s; costs %s (%s of the step)",
                         recompute, mode, bytes, ot_figure_seconds(a, e->recompute_s),
                         ot_figure_share(a, e->recompute_s / e->step_s)));
  add(s, ot_what_if_recompute(&s->what_if, OT_RECOMPUTE_NONE, a));
}

static void explain_memory(speaker *s) {
  const ot_memory_estimate *const m = &s->e->best->memory;
  ot_arena *const a = s->arena;
  const double used = (double)(m->reserved + m->context);
  const char *const stage =
      s->c->pp > 1 ? ot_arena_format(a, " on stage %d, the fullest", m->stage) : "";
  const char *const margin =
      s->e->job->memory_margin > 0
          ? ot_arena_format(a, "; up to %s leaves a margin of %s for errors of the estimate",
                            ot_figure_bytes(a, (double)m->allowed),
                            ot_figure_share(a, s->e->job->memory_margin))
          : "";
  add_reason(s,
             ot_arena_format(a, "memory: %s planned, %s with allocator and runtime, of %s (%s)%s%s",
                             ot_figure_bytes(a, (double)m->peak), ot_figure_bytes(a, used),
                             ot_figure_bytes(a, (double)m->capacity),
                             ot_figure_share(a, used / (double)m->capacity), stage, margin));
}

static void explain_batch(speaker *s) {
  const ot_job *const job = s->e->job;
  const ot_limits *const l = s->e->limits;
  ot_arena *const a = s->arena;
  const double tokens = (double)(job->global_batch_size * job->sequence_length);
  const char *const critical =
      l->critical_batch_tokens > 0
          ? ot_arena_format(a, ", %s of the critical batch of %s",
                            ot_figure_share(a, tokens / l->critical_batch_tokens),
                            ot_figure_count(a, l->critical_batch_tokens))
          : "";
  add_reason(s, ot_arena_format(a,
                                "batch: %lld sequences of %lld = %s tokens%s, as dp %d x %lld "
                                "micro-batches of %lld",
                                (long long)job->global_batch_size, (long long)job->sequence_length,
                                ot_figure_count(a, tokens), critical, s->c->dp,
                                (long long)s->c->micro_batches, (long long)s->c->micro_batch_size));
}

// ", most of it tp (1.05 s), cp (386 ms)": axes of at least a hundredth of the step, by size, and
// always the largest.
static const char *exposed_axes(const speaker *s) {
  const ot_estimate *const e = s->e->best;
  ot_text_builder text = {.arena = s->arena};
  bool told[OT_TIMELINE_AXES] = {false};
  for (;;) {
    int most = -1;
    for (int i = 0; i < OT_TIMELINE_AXES; i++) {
      if (!told[i] && (most < 0 || e->exposed_s[i] > e->exposed_s[most])) most = i;
    }
    const bool enough = most < 0 || e->exposed_s[most] < 0.01 * e->step_s;
    if (enough && text.length > 0) return ot_text_builder_text(&text);
    told[most] = true;
    ot_text_appendf(&text, "%s %s (%s)", text.length > 0 ? "," : ", most of it",
                    ot_timeline_axis_name((ot_timeline_axis)most),
                    ot_figure_seconds(s->arena, e->exposed_s[most]));
  }
}

static void explain_result(speaker *s) {
  const ot_estimate *const e = s->e->best;
  ot_arena *const a = s->arena;
  double exposed = 0;
  for (int i = 0; i < OT_TIMELINE_AXES; i++) exposed += e->exposed_s[i];
  const char *const waits =
      exposed > 0 ? ot_arena_format(a, "%s is exposed communication%s",
                                    ot_figure_share(a, exposed / e->step_s), exposed_axes(s))
                  : "no communication is exposed";
  add_reason(s, ot_arena_format(a, "step %s at MFU %s: %s of it computes%s, %s",
                                ot_figure_seconds(a, e->step_s), ot_figure_share(a, e->mfu),
                                ot_figure_share(a, e->compute_s / e->step_s),
                                s->c->pp > 1 ? " on the busiest stage" : "", waits));
}

void ot_explain_best(const ot_explanation *e, ot_arena *arena, ot_reasons *out) {
  speaker s = speaker_create(e, arena, out);
  explain_memory_breakdown(&s);
  explain_sharding(&s);
  explain_tensor(&s);
  explain_context(&s);
  explain_experts(&s);
  explain_pipeline(&s);
  explain_crossing(&s);
  explain_barrier(&s);
  explain_states(&s);
  explain_activations(&s);
  explain_memory(&s);
  explain_batch(&s);
  explain_result(&s);
}
