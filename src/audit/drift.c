// SPDX-License-Identifier: Apache-2.0
// One sequence of the training data, asked for in several ways. The forward of the whole sequence
// is the truth that the others are compared with.
#include "audit/drift.h"

#include <math.h>
#include <stdlib.h>

#include "audit/layout_probe.h"
#include "audit/log_probability.h"
#include "audit/probe.h"
#include "audit/probe_text.h"
#include "base/text_builder.h"

enum { NEIGHBOURS = 3, MOST_LENGTHS = 8, LAYOUT_TOKENS = 32 };

typedef struct drift_audit {
  const ot_drift_request *request;
  ot_arena *arena;
  ot_audit_report *report;
  const ot_run *run;
  ot_probe_weights weights;
  ot_rows rows;  // one sequence, one document
  int64_t tokens, vocab;
  double *truth, *other;      // [tokens, vocab]
  ot_dtype compute, storage;  // of the stage
  int64_t layout_tokens;      // 0: one rank
  double *layout;             // [layout_tokens] -ln p of targets on the layout of the run
  ot_text_builder table;
} drift_audit;

ot_drift_bounds ot_drift_bounds_of(ot_dtype compute) {
  // float32: 1.4e-6 mean and 2.1e-5 at most were seen of other orders of sums in a correct model,
  // 2.3e-5 and 3.7e-4 of an epsilon of 1e-6 in place of 1e-5.
  if (compute == OT_F64) return (ot_drift_bounds){.mean = 1e-12, .max = 1e-10};
  return (ot_drift_bounds){.mean = 1e-5, .max = 1e-3};
}

// ---- asking ----

static ot_probe_request probe_request(const drift_audit *d, const ot_model *model,
                                      int64_t sequences, int64_t tokens) {
  return (ot_probe_request){.model = model,
                            .sequences = sequences,
                            .tokens = tokens,
                            .compute = d->compute,
                            .storage = d->storage,
                            .weights = &d->weights};
}

// Logits of the first `tokens` tokens, forward.
static ot_status ask_forward(const drift_audit *d, const ot_model *model, int64_t tokens,
                             double *logits) {
  const ot_probe_request request = probe_request(d, model, 1, tokens);
  ot_probe *probe = NULL;
  ot_rows rows = d->rows;
  rows.T = tokens;
  ot_status status = ot_probe_create(&request, &probe);
  if (status == OT_OK) status = ot_probe_forward(probe, &rows, logits);
  ot_probe_destroy(&probe);
  return status;
}

static ot_status ask_decode(const drift_audit *d, const ot_model *model, double *logits) {
  ot_probe_request request = probe_request(d, model, 1, d->tokens);
  request.decodes = true;
  ot_probe *probe = NULL;
  ot_status status = ot_probe_create(&request, &probe);
  if (status == OT_OK) status = ot_probe_decode(probe, d->rows.tokens, d->tokens, logits);
  ot_probe_destroy(&probe);
  return status;
}

// ---- comparing ----

static ot_drift_figures compare(const drift_audit *d, int64_t tokens) {
  const ot_logit_pair pair = {
      .a = d->truth, .b = d->other, .targets = d->rows.targets, .rows = tokens, .vocab = d->vocab};
  return ot_drift_compare(&pair);
}

static void note(drift_audit *d, const char *what, const ot_drift_figures *f) {
  ot_text_appendf(&d->table, "  %-5s %-18s %7lld %12.3g %12.3g %12.3g %9.4f %6lld\n",
                  ot_dtype_name(d->storage), what, (long long)f->tokens, f->mean, f->max,
                  f->divergence, f->sample_size, (long long)f->flips);
}

static const char *details(const drift_audit *d, const ot_drift_figures *f) {
  ot_json_writer json = ot_json_begin(d->arena, 0);
  ot_json_object(&json, NULL);
  ot_json_text(&json, "storage", ot_dtype_name(d->storage));
  ot_json_integer(&json, "tokens", f->tokens);
  ot_json_real(&json, "mean_log_ratio", f->mean);
  ot_json_real(&json, "max_log_ratio", f->max);
  ot_json_real(&json, "kl", f->divergence);
  ot_json_real(&json, "effective_sample_size", f->sample_size);
  ot_json_integer(&json, "argmax_flips", f->flips);
  ot_json_end(&json);
  return json.text;
}

static void find(drift_audit *d, ot_finding finding, const ot_drift_figures *f) {
  finding.details = details(d, f);
  finding.evidence = ot_arena_format(
      d->arena,
      "%s: |ln p| of the same tokens differs by %.3g on average and %.3g at most (token %lld); "
      "%lld of %lld most probable tokens differ",
      ot_dtype_name(d->storage), f->mean, f->max, (long long)f->worst, (long long)f->flips,
      (long long)f->tokens);
  ot_audit_report_add(d->report, &finding, d->arena);
}

// NaN is outside, too.
static bool within(const drift_audit *d, const ot_drift_figures *f) {
  const ot_drift_bounds bounds = ot_drift_bounds_of(d->compute);
  return f->mean <= bounds.mean && f->max <= bounds.max;
}

// ---- decode ----

static ot_model first_layers(const drift_audit *d, int64_t layers, bool amended) {
  ot_model model = d->run->model;
  model.num_layers = layers;
  if (amended && d->request->amend) d->request->amend(&model);
  return model;
}

static ot_status differs_after(drift_audit *d, int64_t layers, bool *differs) {
  const ot_model trained = first_layers(d, layers, false), decoded = first_layers(d, layers, true);
  double *const truth = d->truth;
  d->truth = malloc((size_t)(d->tokens * d->vocab) * sizeof *d->truth);
  ot_status status = d->truth ? ask_forward(d, &trained, d->tokens, d->truth)
                              : ot_fail(OT_ENVIRONMENT, "out of memory");
  if (status == OT_OK) status = ask_decode(d, &decoded, d->other);
  if (status == OT_OK) {
    const ot_drift_figures f = compare(d, d->tokens);
    *differs = !within(d, &f);
  }
  free(d->truth);
  d->truth = truth;
  return status;
}

// The first layer after which the two differ, by bisection; -1: already without any.
static ot_status locate(drift_audit *d, int64_t *layer) {
  int64_t same = 0, differ = d->run->model.num_layers;
  bool differs = false;
  *layer = differ - 1;
  while (differ - same > 1) {
    const int64_t middle = same + (differ - same) / 2;
    OT_TRY(differs_after(d, middle, &differs));
    if (differs) {
      differ = middle;
    } else {
      same = middle;
    }
  }
  *layer = differ - 1;
  return OT_OK;
}

static ot_status check_decode(drift_audit *d) {
  const ot_model decoded = first_layers(d, d->run->model.num_layers, true);
  OT_TRY(ask_decode(d, &decoded, d->other));
  const ot_drift_figures f = compare(d, d->tokens);
  note(d, "decode", &f);
  if (within(d, &f)) return OT_OK;
  int64_t layer = 0;
  OT_TRY(locate(d, &layer));
  find(d,
       (ot_finding){.what = "train_decode",
                    .where = ot_arena_format(d->arena, "layer %lld is the first that differs",
                                             (long long)layer),
                    .advice = "compare positions, masks, the cache and the epsilons of the two "
                              "paths in that layer; capacity and expert choice see other tokens "
                              "in training than in inference"},
       &f);
  return OT_OK;
}

// ---- other shapes ----

// Around the tiles of keys and the chunks of rows that kernels work in.
static int list_lengths(const drift_audit *d, int64_t lengths[MOST_LENGTHS]) {
  static const int64_t wanted[] = {1, 2, 31, 32, 33, 63, 64, 65};
  int count = 0;
  for (int i = 0; i < OT_COUNT(wanted); i++) {
    if (wanted[i] < d->tokens) lengths[count++] = wanted[i];
  }
  return count;
}

static ot_status check_lengths(drift_audit *d) {
  int64_t lengths[MOST_LENGTHS];
  const int count = list_lengths(d, lengths);
  ot_drift_figures worst = {0};
  int64_t at = 0;
  for (int i = 0; i < count; i++) {
    OT_TRY(ask_forward(d, &d->run->model, lengths[i], d->other));
    const ot_drift_figures f = compare(d, lengths[i]);
    if (i == 0 || !(f.max <= worst.max)) {
      worst = f;
      at = lengths[i];
    }
  }
  if (count == 0) return OT_OK;
  note(d, "shorter forwards", &worst);
  if (within(d, &worst)) return OT_OK;
  find(d,
       (ot_finding){.what = "length_dependence",
                    .where = ot_arena_format(d->arena, "a forward of %lld tokens", (long long)at),
                    .advice = "what a token sees must not depend on how many tokens follow it"},
       &worst);
  return OT_OK;
}

// The same sequence as the last of NEIGHBOURS; the others are it, turned.
static ot_status ask_beside(drift_audit *d, double *logits) {
  const ot_probe_request request = probe_request(d, &d->run->model, NEIGHBOURS, d->tokens);
  ot_rows rows;
  OT_TRY(ot_rows_create(NEIGHBOURS, d->tokens, &rows));
  for (int64_t i = 0; i < NEIGHBOURS * d->tokens; i++) {
    const int64_t b = i / d->tokens, t = i % d->tokens;
    const int64_t from = b == NEIGHBOURS - 1 ? t : d->tokens - 1 - t;
    rows.tokens[i] = d->rows.tokens[from];
    rows.positions[i] = (int32_t)t;
  }
  for (int b = 0; b < NEIGHBOURS; b++) rows.sample_ids[b] = b;
  ot_probe *probe = NULL;
  ot_status status = ot_probe_create(&request, &probe);
  if (status == OT_OK) status = ot_probe_forward(probe, &rows, logits);
  ot_probe_destroy(&probe);
  ot_rows_release(&rows);
  return status;
}

// Equal up to rounding is a must; that bits are equal, too, is noted.
static ot_status check_neighbours(drift_audit *d) {
  const int64_t count = d->tokens * d->vocab;
  double *const all = malloc((size_t)(NEIGHBOURS * count) * sizeof *all);
  OT_CHECK(all, OT_ENVIRONMENT, "out of memory for the logits of %d sequences", NEIGHBOURS);
  const ot_status status = ask_beside(d, all);
  int64_t differ = 0;
  for (int64_t i = 0; status == OT_OK && i < count; i++) {
    d->other[i] = all[(NEIGHBOURS - 1) * count + i];
    differ += d->other[i] != d->truth[i];
  }
  free(all);
  OT_TRY(status);
  const ot_drift_figures f = compare(d, d->tokens);
  note(d, differ == 0 ? "neighbours (bits)" : "neighbours", &f);
  if (within(d, &f)) return OT_OK;
  find(d,
       (ot_finding){.what = "batch_dependence",
                    .where = ot_arena_format(d->arena, "%lld of %lld logits of a sequence",
                                             (long long)differ, (long long)count),
                    .advice = "what a sequence gives must not depend on the others of its batch: "
                              "capacity and expert choice over a batch do"},
       &f);
  return OT_OK;
}

// ---- the layout ----

// The sequence on all ranks, with as many targets in turn: a forward for each.
static ot_status score_layout(drift_audit *d, ot_layout_probe *probe) {
  const int64_t T = d->layout_tokens, B = ot_layout_probe_sequences(probe);
  ot_rows rows;
  OT_TRY(ot_rows_create(B, T, &rows));
  ot_status status = OT_OK;
  for (int64_t t = 0; status == OT_OK && t < T; t++) {
    for (int64_t i = 0; i < B * T; i++) {
      rows.tokens[i] = d->rows.tokens[i % T];
      rows.positions[i] = (int32_t)(i % T);
      rows.targets[i] = i % T == t ? d->rows.targets[t] : -1;
      rows.sample_ids[i / T] = i / T;
    }
    if (d->rows.targets[t] >= 0) status = ot_layout_probe_score(probe, &rows, &d->layout[t]);
  }
  ot_rows_release(&rows);
  return status;
}

// Collective; the rest is the leader's.
static ot_status ask_layout(drift_audit *d) {
  ot_team *const team = d->request->team;
  if (ot_team_size(team) == 1) return OT_OK;
  d->layout_tokens = ot_layout_tokens(team, d->tokens, LAYOUT_TOKENS);
  d->layout = ot_arena_array(d->arena, d->layout_tokens, sizeof *d->layout);
  const ot_layout_probe_request request = {.trainer = d->request->trainer,
                                           .model = &d->run->model,
                                           .rank_sequences = 1,
                                           .tokens = d->layout_tokens,
                                           .wide = true};
  ot_layout_probe *probe = NULL;
  OT_TRY(ot_layout_probe_create(&request, &probe));
  const ot_status status = score_layout(d, probe);
  ot_layout_probe_destroy(&probe);
  return status;
}

static ot_drift_figures compare_layout(const drift_audit *d) {
  ot_drift_figures f = {.worst = -1};
  for (int64_t t = 0; t < d->layout_tokens; t++) {
    if (d->rows.targets[t] < 0) continue;
    const double truth = ot_log_probability(d->truth + t * d->vocab, d->vocab, d->rows.targets[t]);
    const double change = fabs(-d->layout[t] - truth);
    if (f.tokens++ == 0 || !(change <= f.max)) {
      f.max = change;
      f.worst = t;
    }
    f.mean += change;
  }
  f.mean /= f.tokens > 0 ? (double)f.tokens : 1;
  return f;
}

static void check_layout(drift_audit *d) {
  if (d->layout_tokens == 0) return;
  const ot_drift_figures f = compare_layout(d);
  ot_text_appendf(&d->table, "  %-5s %-18s %7lld %12.3g %12.3g\n", ot_dtype_name(d->storage),
                  "the run's layout", (long long)f.tokens, f.mean, f.max);
  if (within(d, &f)) return;
  const ot_finding finding = {
      .what = "layout",
      .where = ot_arena_format(d->arena, "the forward on %d ranks", ot_team_size(d->request->team)),
      .evidence = ot_arena_format(d->arena,
                                  "%s: |ln p| of the same tokens differs from that on one rank by "
                                  "%.3g on average and %.3g at most (token %lld)",
                                  ot_dtype_name(d->storage), f.mean, f.max, (long long)f.worst),
      .advice =
          "a sum or a mask of the layout is not that of one rank: `audit ranks` and `audit "
          "causality` with the same ranks say more"};
  ot_audit_report_add(d->report, &finding, d->arena);
}

// ---- files ----

static ot_status ask_files(const drift_audit *d, const char *path, double *logits) {
  ot_probe *probe = NULL;
  ot_rows rows = d->rows;
  ot_probe_request request = probe_request(d, &d->run->model, 1, d->tokens);
  request.files = path;
  ot_status status = ot_probe_create(&request, &probe);
  if (status == OT_OK) status = ot_probe_forward(probe, &rows, logits);
  ot_probe_destroy(&probe);
  return status;
}

static ot_status check_export(drift_audit *d, const char *path) {
  OT_TRY(ask_files(d, path, d->other));
  const ot_drift_figures f = compare(d, d->tokens);
  note(d, "exported", &f);
  if (f.max == 0) return OT_OK;
  find(d,
       (ot_finding){.what = "export",
                    .where = "the model written as Hugging Face files and read back",
                    .advice = "compare the tensors of the two, and the keys of config.json"},
       &f);
  return OT_OK;
}

// ---- the run's own types ----

// Narrow storage moves log-probabilities by itself: decode may differ from the forward by no more
// than a few times what the forward in the run's types differs from the one in wide types.
static ot_status check_narrow(drift_audit *d) {
  enum { TIMES = 5 };
  d->storage = d->run->precision.params;
  OT_TRY(ask_forward(d, &d->run->model, d->tokens, d->other));
  const ot_drift_figures floor = compare(d, d->tokens);
  note(d, "beside wide types", &floor);
  double *const wide = d->truth;
  d->truth = d->other;
  d->other = wide;
  const ot_model decoded = first_layers(d, d->run->model.num_layers, true);
  OT_TRY(ask_decode(d, &decoded, d->other));
  const ot_drift_figures f = compare(d, d->tokens);
  note(d, "decode", &f);
  if (f.divergence <= TIMES * floor.divergence && f.max_change <= 0.5) return OT_OK;
  find(d,
       (ot_finding){.what = "train_decode",
                    .where = ot_arena_format(d->arena, "in %s", ot_dtype_name(d->storage)),
                    .advice = "the two paths round at different places; keep the cache and the "
                              "sums of decode as wide as those of training"},
       &f);
  return OT_OK;
}

// ---- the whole ----

static ot_status look(drift_audit *d, const char *exported) {
  d->table = (ot_text_builder){.arena = d->arena};
  ot_text_appendf(&d->table, "  %-5s %-18s %7s %12s %12s %12s %9s %6s\n", "", "forward beside",
                  "tokens", "mean |dln p|", "max", "KL", "samples", "flips");
  OT_TRY(ask_forward(d, &d->run->model, d->tokens, d->truth));
  OT_TRY(check_decode(d));
  check_layout(d);
  OT_TRY(check_lengths(d));
  OT_TRY(check_neighbours(d));
  OT_TRY(check_export(d, exported));
  if (d->run->precision.params != d->storage) OT_TRY(check_narrow(d));
  return OT_OK;
}

static ot_status take_memory(drift_audit *d) {
  d->vocab = d->run->model.vocab_size;
  const size_t bytes = (size_t)(d->tokens * d->vocab) * sizeof *d->truth;
  d->truth = malloc(bytes);
  d->other = malloc(bytes);
  OT_CHECK(d->truth && d->other, OT_ENVIRONMENT, "out of memory for the logits of %lld tokens",
           (long long)d->tokens);
  return OT_OK;
}

static ot_status lead(drift_audit *d, const char *exported) {
  ot_status status = take_memory(d);
  if (status == OT_OK) status = look(d, exported);
  free(d->truth);
  free(d->other);
  OT_TRY(status);
  d->report->table = ot_text_builder_text(&d->table);
  d->report->summary = ot_arena_format(
      d->arena, "%lld tokens of the training data as one document, forward against other ways",
      (long long)d->tokens);
  if (d->rows.num_targets == 0) {
    ot_audit_report_leave_open(
        d->report, "no token has a target whose probability could be compared", d->arena);
  }
  return OT_OK;
}

static ot_status look_with_files(drift_audit *d) {
  const ot_drift_request *const request = d->request;
  const char *exported = NULL;
  OT_TRY(ask_layout(d));
  OT_TRY(ot_probe_export(request->trainer, request->team, d->arena, &exported));
  if (exported && request->amend_files) request->amend_files(exported);
  const ot_status status = ot_team_leads(request->team) ? lead(d, exported) : OT_OK;
  ot_probe_export_remove(exported);
  return ot_team_agree(request->team, status);
}

ot_status ot_audit_drift(const ot_drift_request *request, ot_arena *arena,
                         ot_audit_report *report) {
  *report = (ot_audit_report){.audit = "drift"};
  const ot_run *const run = ot_trainer_run(request->trainer);
  drift_audit d = {
      .request = request, .arena = arena, .report = report, .run = run, .table = {.arena = arena}};
  d.compute = d.storage = run->precision.compute == OT_F64 ? OT_F64 : OT_F32;
  ot_instance *const instance = ot_trainer_instance(request->trainer);
  ot_status status =
      ot_team_agree(request->team, ot_probe_text_read(run, request->tokens, &d.rows));
  d.tokens = d.rows.T;
  if (status == OT_OK) status = ot_probe_weights_read(instance, request->team, &d.weights);
  if (status == OT_OK) status = look_with_files(&d);
  ot_probe_weights_release(&d.weights);
  ot_rows_release(&d.rows);
  return status;
}
