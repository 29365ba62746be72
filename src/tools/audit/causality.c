// SPDX-License-Identifier: Apache-2.0
// `audit causality`: no token may depend on its future, another document or another sequence. Pairs
// of forward passes of equal shape, on the layout of the run, differ in some tokens (swap.h);
// outputs that may not depend on these must have the same bits. Gradients would not suffice: expert
// choice, which can leak, has none.
//
// Routing with a capacity leaks only when tokens are dropped. So its trials are repeated at a
// quarter of the capacity, which drops many: by reliability's figures a test without that detects
// 3 % of the cases that one with it detects at 77 %.
//
// A leak is located by keeping fewer and fewer layers, the others acting as identity, and then
// zeroing the MLP of the first layer that leaks: a leak that remains is in its attention.
//
// Then gradients (gradient_leak.h), which detect faults of the backward alone.
#include <stdlib.h>

#include "audit/audit.h"
#include "audit/gradient_leak.h"
#include "audit/layout_probe.h"
#include "audit/swap.h"
#include "base/text.h"
#include "base/text_builder.h"

enum { TRIALS = 16, SEQUENCES = 4, MOST_TOKENS = 64, GRADIENT_TRIALS = 8 };

static const char *const leak_sentences[] = {
    [OT_LEAK_FUTURE] = "tokens depend on later tokens of their sequence",
    [OT_LEAK_DOCUMENT] = "documents of a sequence depend on each other",
    [OT_LEAK_BATCH] = "a sequence depends on the others of its batch",
};

typedef struct leak {
  int trials, found;
  int64_t positions, changed;  // that were protected, that differed anyway
  double largest;
  ot_swap example;  // the largest
  ot_swap_difference difference;
  bool saturated;  // the example is at a quarter of the capacity
} leak;

// Gradients that reached tokens which they may not reach.
typedef struct gradient_leak {
  int found;  // of GRADIENT_TRIALS
  double largest;
  ot_gradient_trial example;  // the largest
} gradient_leak;

// Trials of one kind, and how many of them leaked.
typedef struct trial_count {
  int trials, own, others;  // within the sequence, to other sequences
} trial_count;

typedef struct causality_audit {
  const ot_audit_request *request;
  ot_world *world;
  ot_audit_report *report;
  const ot_run *run;
  int trials;  // of each kind
  int64_t rank_sequences, vocab;
  ot_micro_batch rows, changed;
  double *changes;  // [sequences * tokens]
  leak leaks[OT_LEAK_KINDS];
  trial_count counts[2][OT_SWAP_KINDS];  // [saturated]
  int64_t forwards;
  gradient_leak gradients[OT_LEAK_KINDS];
  int64_t steps;  // of training
  int reached;    // trials whose gradient was nonzero
  int blind;      // trials in which other tokens changed nothing
} causality_audit;

// ---- forward passes ----

static ot_status create_probe(const causality_audit *c, bool saturated, ot_layout_probe **probe) {
  ot_model model = c->run->model;
  if (saturated) model.moe.capacity_factor /= 4;
  const ot_layout_probe_request request = {.trainer = c->request->trainer,
                                           .model = &model,
                                           .rank_sequences = c->rank_sequences,
                                           .tokens = c->rows.T};
  return ot_layout_probe_create(&request, probe);
}

// Runs the current tokens; try_swap and check_repeats compare with the result.
static ot_status query(causality_audit *c, ot_layout_probe *probe) {
  c->forwards++;
  return ot_layout_probe_ask(probe, &c->rows);
}

static ot_status try_swap(causality_audit *c, ot_layout_probe *probe, const ot_swap *swap,
                          ot_swap_difference *difference) {
  ot_swap_apply(swap, c->vocab, &c->rows, &c->changed);
  c->forwards++;
  OT_TRY(ot_layout_probe_compare(probe, &c->changed, c->changes));
  *difference = ot_swap_compare(swap, &c->rows, c->changes);
  return OT_OK;
}

// ---- trials ----

// A trial, and whether it was at a quarter of the capacity.
typedef struct trial {
  ot_swap swap;
  ot_swap_difference difference;
  bool saturated;
} trial;

static void count(leak *l, const trial *t, bool own) {
  const ot_swap_difference *const d = &t->difference;
  const int64_t positions = own ? d->own_protected : d->others_protected;
  const int64_t changed = own ? d->own : d->others;
  if (positions == 0) return;
  l->trials++;
  l->positions += positions;
  if (changed == 0) return;
  if (l->found++ == 0 || d->largest > l->largest) {
    l->example = t->swap;
    l->difference = *d;
    l->saturated = t->saturated;
  }
  l->changed += changed;
  if (d->largest > l->largest) l->largest = d->largest;
}

static ot_status run_trials(causality_audit *c, ot_layout_probe *probe, bool saturated) {
  trial_count *const counts = c->counts[saturated];
  for (int kind = 0; kind < OT_SWAP_KINDS; kind++) {
    for (int i = 0; i < c->trials; i++) {
      trial t = {.swap = ot_swap_choose(c->request->seed, (ot_swap_kind)kind, i, &c->rows),
                 .saturated = saturated};
      OT_TRY(try_swap(c, probe, &t.swap, &t.difference));
      count(&c->leaks[kind == OT_SWAP_DOCUMENT ? OT_LEAK_DOCUMENT : OT_LEAK_FUTURE], &t, true);
      count(&c->leaks[OT_LEAK_BATCH], &t, false);
      c->blind += t.difference.seen == 0;
      counts[kind].trials++;
      counts[kind].own += t.difference.own > 0;
      counts[kind].others += t.difference.others > 0;
    }
  }
  return OT_OK;
}

// Equal inputs must give equal outputs, or there is no conclusion.
static ot_status check_repeats(causality_audit *c, ot_layout_probe *probe, bool *repeats) {
  OT_TRY(query(c, probe));
  c->forwards++;
  OT_TRY(ot_layout_probe_compare(probe, &c->rows, c->changes));
  *repeats = true;
  for (int64_t i = 0; i < c->rows.B * c->rows.T; i++) *repeats = *repeats && c->changes[i] == 0;
  return OT_OK;
}

static ot_status try_model(causality_audit *c, bool saturated, bool *repeats) {
  ot_layout_probe *probe = NULL;
  ot_status status = create_probe(c, saturated, &probe);
  if (status == OT_OK) status = check_repeats(c, probe, repeats);
  if (status == OT_OK && *repeats) status = run_trials(c, probe, saturated);
  ot_layout_probe_destroy(&probe);
  return status;
}

// ---- locating a leak ----

typedef struct leak_place {
  int64_t layer;   // -1: before the first, in the embedding
  bool attention;  // else the layer's MLP
} leak_place;

// The trial that is repeated on the first layers of the model.
typedef struct place_search {
  causality_audit *c;
  ot_leak_kind kind;
  ot_layout_probe *probe;        // of the forward example, or null
  ot_gradient_probe *gradients;  // of the gradient example
} place_search;

static ot_status forward_leaks(const place_search *s, bool *leaks) {
  causality_audit *const c = s->c;
  ot_swap_difference d = {0};
  OT_TRY(query(c, s->probe));
  OT_TRY(try_swap(c, s->probe, &c->leaks[s->kind].example, &d));
  *leaks = d.own + d.others > 0;
  return OT_OK;
}

static ot_status gradient_leaks(const place_search *s, bool *leaks) {
  ot_gradient_leaks reach;
  s->c->steps++;
  OT_TRY(ot_gradient_probe_ask(s->gradients, &s->c->gradients[s->kind].example, &reach));
  *leaks = reach.largest[s->kind] > 0;
  return OT_OK;
}

// With `layers` layers kept, the MLP or experts of the last of them zeroed or not. The input of
// attention does not depend on that; the input of an MLP would depend on attention.
static ot_status leaks_through(const place_search *s, int64_t layers, bool silenced, bool *leaks) {
  if (s->probe) {
    OT_TRY(ot_layout_probe_keep(s->probe, layers, silenced));
    return forward_leaks(s, leaks);
  }
  OT_TRY(ot_gradient_probe_keep(s->gradients, layers, silenced));
  return gradient_leaks(s, leaks);
}

static ot_status bisect(const place_search *s, leak_place *place) {
  int64_t clean = 0, leaking = s->c->run->model.num_layers;
  bool leaks = false;
  while (leaking - clean > 1) {
    const int64_t middle = clean + (leaking - clean) / 2;
    OT_TRY(leaks_through(s, middle, false, &leaks));
    *(leaks ? &leaking : &clean) = middle;
  }
  OT_TRY(leaks_through(s, leaking, true, &leaks));
  *place = (leak_place){.layer = leaking - 1, .attention = leaks};
  if (leaking > 1) return OT_OK;
  OT_TRY(leaks_through(s, 0, false, &leaks));
  if (leaks) place->layer = -1;
  return OT_OK;
}

static ot_status find_place(causality_audit *c, ot_leak_kind kind, leak_place *place) {
  place_search search = {.c = c, .kind = kind};
  ot_status status = create_probe(c, c->leaks[kind].saturated, &search.probe);
  if (status == OT_OK) status = bisect(&search, place);
  ot_layout_probe_destroy(&search.probe);
  return status;
}

// ---- gradients ----

static ot_status run_gradient_trials(causality_audit *c, ot_gradient_probe *probe) {
  for (int i = 0; i < GRADIENT_TRIALS; i++) {
    const ot_gradient_trial loss = ot_gradient_trial_choose(c->request->seed, i, &c->rows);
    ot_gradient_leaks reach;
    OT_TRY(ot_gradient_probe_ask(probe, &loss, &reach));
    c->steps++;
    c->reached += reach.own;
    for (int kind = 0; kind < OT_LEAK_KINDS; kind++) {
      gradient_leak *const g = &c->gradients[kind];
      if (reach.largest[kind] == 0) continue;
      g->found++;
      if (reach.largest[kind] <= g->largest) continue;
      g->largest = reach.largest[kind];
      g->example = loss;
    }
  }
  return OT_OK;
}

// ---- findings ----

static const char *const routing_names[] = {
    [OT_MOE_DROPLESS] = "routing",
    [OT_MOE_DROP_BY_POSITION] = "drop_by_position",
    [OT_MOE_DROP_BY_SCORE] = "drop_by_score",
    [OT_MOE_EXPERT_CHOICE] = "expert_choice",
};

static const char *mechanism_of(const causality_audit *c, ot_leak_kind kind,
                                const leak_place *place) {
  const ot_model *const model = &c->run->model;
  static const char *const masks[] = {
      [OT_LEAK_FUTURE] = "attention_mask",
      [OT_LEAK_DOCUMENT] = "document_mask",
      [OT_LEAK_BATCH] = "attention_across_sequences",
  };
  if (place->layer < 0) return "embedding";
  if (place->attention) return masks[kind];
  if (model->moe.num_experts > 0 && model->moe.layer[place->layer]) {
    return routing_names[model->moe.routing];
  }
  return "mlp";
}

static const char *advice_of(const char *mechanism) {
  static const struct {
    const char *what, *advice;
  } table[] = {
      {"expert_choice",
       "experts choose among all tokens of a batch, later ones included; with "
       "model.moe_routing: dropless each token chooses by itself"},
      {"drop_by_score",
       "whether a token is dropped depends on the scores of others, later ones included; use "
       "model.moe_routing: dropless, or a capacity that can never be exceeded"},
      {"drop_by_position",
       "whether a token is dropped depends on those before it, of other documents, too, so that "
       "training and inference differ; use model.moe_routing: dropless"},
      {"document_mask",
       "set data.document_mask: true, and check that the loader marks where documents begin"},
  };
  for (int i = 0; i < OT_COUNT(table); i++) {
    if (ot_text_equal(table[i].what, mechanism)) return table[i].advice;
  }
  return "compare which rows and keys the operator reads with those it may read";
}

static const char *op_of(const leak_place *place) {
  if (place->layer < 0) return "embedding";
  return place->attention ? "attention" : "mlp";
}

static const char *where_of(const causality_audit *c, const leak_place *place) {
  if (place->layer < 0) return "the embedding";
  return ot_arena_format(c->report->arena, "layer %lld, %s", (long long)place->layer,
                         place->attention ? "attention" : "MLP");
}

static const char *const leak_names[] = {"future", "document", "batch"};

static const char *details_of(const causality_audit *c, ot_leak_kind kind, const leak *l,
                              const leak_place *place) {
  ot_json_writer json = ot_json_begin(c->report->arena, 0);
  ot_json_object(&json, NULL);
  ot_json_text(&json, "leak", leak_names[kind]);
  ot_json_integer(&json, "layer", place->layer);
  ot_json_text(&json, "op", op_of(place));
  ot_json_integer(&json, "trials", l->trials);
  ot_json_integer(&json, "found", l->found);
  ot_json_real(&json, "changed_share", (double)l->changed / (double)l->positions);
  ot_json_real(&json, "largest_change", l->largest);
  ot_json_end(&json);
  return json.text;
}

static ot_status report_leak(causality_audit *c, ot_leak_kind kind) {
  const leak *const l = &c->leaks[kind];
  if (l->found == 0) return OT_OK;
  leak_place place;
  OT_TRY(find_place(c, kind, &place));
  const char *const what = mechanism_of(c, kind, &place);
  ot_audit_find(c->report, what, where_of(c, &place), advice_of(what),
                "%s: in %d of %d trials%s; %.3g %% of the protected positions changed, the head's "
                "input by up to %.3g; first after a change of the %s in sequence %lld: "
                "sequence %lld, position %lld",
                leak_sentences[kind], l->found, l->trials,
                l->saturated ? " (at a quarter of the capacity, too)" : "",
                100.0 * (double)l->changed / (double)l->positions, l->largest,
                ot_swap_name(l->example.kind), (long long)l->example.sequence,
                (long long)l->difference.sequence, (long long)l->difference.position)
      ->details = details_of(c, kind, l, &place);
  return OT_OK;
}

// A leak of the forward also appears in gradients: it is reported once.
static ot_status report_gradient(causality_audit *c, ot_gradient_probe *probe, ot_leak_kind kind) {
  if (c->gradients[kind].found == 0 || c->leaks[kind].found > 0) return OT_OK;
  const place_search search = {.c = c, .kind = kind, .gradients = probe};
  leak_place place;
  OT_TRY(bisect(&search, &place));
  const gradient_leak *const g = &c->gradients[kind];
  ot_audit_find(c->report, mechanism_of(c, kind, &place),
                ot_arena_format(c->report->arena, "%s, backward", where_of(c, &place)),
                "the forward is correct: compare which rows and keys the gradient of the operator "
                "reads and writes with those of its forward",
                "%s in the backward alone: in %d of %d trials a loss has a gradient to their "
                "embeddings, of up to %.3g; largest for positions %lld to %lld of sequence %lld",
                leak_sentences[kind], g->found, GRADIENT_TRIALS, g->largest,
                (long long)g->example.first, (long long)g->example.last,
                (long long)g->example.sequence);
  return OT_OK;
}

static ot_status check_gradients(causality_audit *c) {
  ot_gradient_probe *probe = NULL;
  OT_TRY(ot_gradient_probe_create(c->request->trainer, &c->rows, &probe));
  if (!probe) return OT_OK;
  ot_status status = run_gradient_trials(c, probe);
  for (int kind = 0; status == OT_OK && kind < OT_LEAK_KINDS; kind++) {
    status = report_gradient(c, probe, (ot_leak_kind)kind);
  }
  ot_gradient_probe_destroy(&probe);
  // A forward that leaks may well have a NaN gradient.
  return status == OT_NUMERIC && c->report->num_findings > 0 ? OT_OK : status;
}

// Trials of each kind, and those that detected a leak.
static const char *figures_of(const causality_audit *c) {
  ot_json_writer json = ot_json_begin(c->report->arena, 0);
  ot_json_object(&json, NULL);
  ot_json_integer(&json, "forwards", c->forwards);
  ot_json_array(&json, "trials");
  for (int i = 0; i < 2 * OT_SWAP_KINDS; i++) {
    const trial_count *const count = &c->counts[i / OT_SWAP_KINDS][i % OT_SWAP_KINDS];
    if (count->trials == 0) continue;
    ot_json_object(&json, NULL);
    ot_json_text(&json, "changed", ot_swap_name((ot_swap_kind)(i % OT_SWAP_KINDS)));
    ot_json_boolean(&json, "at_a_quarter_of_the_capacity", i >= OT_SWAP_KINDS);
    ot_json_integer(&json, "trials", count->trials);
    ot_json_integer(&json, "leaked_within_the_sequence", count->own);
    ot_json_integer(&json, "leaked_to_other_sequences", count->others);
    ot_json_end(&json);
  }
  ot_json_end(&json);
  ot_json_object(&json, "gradients");
  ot_json_integer(&json, "steps", c->steps);
  for (int kind = 0; kind < OT_LEAK_KINDS; kind++) {
    ot_json_integer(&json, ot_arena_format(c->report->arena, "reached_%s", leak_names[kind]),
                    c->gradients[kind].found);
  }
  ot_json_end(&json);
  ot_json_end(&json);
  return json.text;
}

// A capacity that holds all tokens drops none.
static bool can_drop(const ot_model *model) {
  const ot_moe *const moe = &model->moe;
  if (moe->num_experts == 0) return false;
  if (moe->routing != OT_MOE_DROP_BY_POSITION && moe->routing != OT_MOE_DROP_BY_SCORE) return false;
  return moe->capacity_factor * (double)moe->experts_per_token < (double)moe->num_experts;
}

static const char *summary_of(const causality_audit *c) {
  const int ranks = ot_world_size(c->world);
  const char *const gradients =
      c->steps == 0
          ? "no gradients: too little memory or too small a vocabulary"
          : ot_arena_format(c->report->arena, "the gradients of %d losses", GRADIENT_TRIALS);
  return ot_arena_format(
      c->report->arena,
      "%lld forwards of %lld sequence%s of %lld tokens on %d rank%s; %d trials of each kind; %s",
      (long long)c->forwards, (long long)c->rows.B, ot_text_plural(c->rows.B, "s"),
      (long long)c->rows.T, ranks, ot_text_plural(ranks, "s"), c->trials, gradients);
}

// Why the lack of findings is not conclusive, or null.
static const char *open_question(const causality_audit *c, bool repeats) {
  const ot_model *const model = &c->run->model;
  const bool chooses = model->moe.num_experts > 0 && model->moe.routing == OT_MOE_EXPERT_CHOICE;
  if (!repeats) return "two equal forwards gave different bits, so that nothing can be compared";
  if (chooses || can_drop(model)) {
    return ot_arena_format(c->report->arena,
                           "no trial found a leak, but %s is not causal by construction",
                           routing_names[model->moe.routing]);
  }
  if (c->blind > 0)
    return "changed tokens do not affect the head's input, even at their own positions";
  for (int kind = 0; kind < OT_LEAK_KINDS; kind++) {
    if (c->leaks[kind].positions > 0) continue;
    return ot_arena_format(c->report->arena, "no position was compared that would show whether %s",
                           leak_sentences[kind]);
  }
  if (c->steps == 0) return "leaks of the backward alone were not checked";
  return c->reached < GRADIENT_TRIALS ? "a loss has no gradient to the embeddings of its own tokens"
                                      : NULL;
}

static void conclude(causality_audit *c, bool repeats) {
  c->report->summary = summary_of(c);
  const char *const why = c->report->num_findings > 0 ? NULL : open_question(c, repeats);
  if (why) ot_audit_inconclusive(c->report, "%s", why);
}

// ---- the audit ----

static ot_status run_checks(causality_audit *c) {
  bool repeats = false;
  OT_TRY(try_model(c, false, &repeats));
  if (repeats && can_drop(&c->run->model)) OT_TRY(try_model(c, true, &repeats));
  for (int kind = 0; kind < OT_LEAK_KINDS; kind++) OT_TRY(report_leak(c, (ot_leak_kind)kind));
  if (repeats) OT_TRY(check_gradients(c));
  conclude(c, repeats);
  c->report->figures = figures_of(c);
  return OT_OK;
}

static ot_status load_rows(causality_audit *c) {
  ot_world *const world = c->world;
  const int64_t sequence = c->run->data.sequence_length;
  OT_CHECK(sequence >= 8, OT_USAGE,
           "audit causality: sequence_length=%lld; at least 8 are needed to hold documents",
           (long long)sequence);
  c->vocab = c->run->model.vocab_size;
  c->rank_sequences = ot_layout_sequences(world, SEQUENCES);
  const int64_t tokens = ot_layout_tokens(world, sequence, MOST_TOKENS);
  const int64_t sequences = c->rank_sequences * ot_world_data_degree(world);
  OT_TRY(ot_micro_batch_create(sequences, tokens, &c->rows));
  OT_TRY(ot_micro_batch_create(sequences, tokens, &c->changed));
  c->changes = malloc((size_t)(sequences * tokens) * sizeof *c->changes);
  OT_CHECK(c->changes, OT_ENVIRONMENT, "out of memory");
  for (int64_t i = 0; i < sequences * tokens; i++) {
    c->rows.targets[i] = c->changed.targets[i] = -1;
  }
  ot_swap_fill(c->request->seed, c->vocab, c->run->data.document_mask, &c->rows);
  if (c->request->amend_rows) c->request->amend_rows(&c->rows);
  return OT_OK;
}

ot_status ot_audit_causality(const ot_audit_request *request, ot_arena *arena,
                             ot_audit_report *report) {
  *report = (ot_audit_report){.audit = "causality", .arena = arena};
  causality_audit c = {.request = request,
                       .world = ot_trainer_world(request->trainer),
                       .report = report,
                       .run = ot_trainer_run(request->trainer),
                       .trials = request->trials > 0 ? request->trials : TRIALS};
  ot_status status = ot_world_agree(c.world, load_rows(&c));
  if (status == OT_OK) status = run_checks(&c);
  ot_micro_batch_release(&c.rows);
  ot_micro_batch_release(&c.changed);
  free(c.changes);
  return status;
}
