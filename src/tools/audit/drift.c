// SPDX-License-Identifier: Apache-2.0
// `audit drift`: training and inference must compute the same model. On one sequence of the run's
// data, as one document, the training forward is the reference for
//
//   decode      token-by-token decoding with a key-value cache
//   serving     the inference engine, in chunks and among other sequences
//   shorter     forwards of fewer tokens, around the sizes at which kernels switch paths
//   export      the model exported as Hugging Face files and read back
//   neighbours  the same sequence at another position in a batch of others
//   layout      the same forward on the ranks of the run, if there are several
//
// first in float32 (float64 if the run computes in it), where a semantic difference exceeds
// rounding; then, if weights are stored in fewer bits, in the run's own dtypes, where only the size
// of the difference is judged. Low precision alone would hide what float32 shows.
// `--against` adds the values of other software (drift_against.h).
#include <math.h>
#include <stdlib.h>

#include "audit/audit.h"
#include "audit/drift_against.h"
#include "audit/layout_probe.h"
#include "audit/probe.h"
#include "audit/serving_probe.h"
#include "audit/temporary_folder.h"
#include "audit/variant.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "checkpoint/convert.h"
#include "data/data_loader.h"
#include "files/disk.h"
#include "judge/log_probability.h"

enum { TOKENS = 128, NEIGHBOURS = 3, MOST_LENGTHS = 8, LAYOUT_TOKENS = 32 };

typedef struct drift_audit {
  const ot_audit_request *request;
  ot_world *world;
  ot_audit_report *report;
  const ot_run *run;
  ot_runtime *whole;    // on the leader: the training forward, whose weights the others copy
  ot_micro_batch rows;  // one sequence, one document
  int64_t tokens, vocab;
  double *truth, *other;      // [tokens, vocab]
  ot_dtype compute, storage;  // of the current comparison
  int64_t layout_tokens;      // 0: one rank
  double *layout;             // [layout_tokens] -ln p of targets on the layout of the run
  ot_heap heap;               // of the values to compare with
  ot_logprob_file against;    // on the leader: these, if asked for
  bool described;             // exported files describe the model
  ot_text_builder table;
} drift_audit;

// ---- the sequence ----

// Turns the first `tokens` tokens of a sequence into one document; the last target is masked.
static ot_status make_document(const ot_micro_batch *from, int64_t tokens, ot_micro_batch *rows) {
  const int64_t T = tokens < from->T ? tokens : from->T;
  OT_TRY(ot_micro_batch_create(1, T, rows));
  for (int64_t t = 0; t < T; t++) {
    rows->tokens[t] = from->tokens[t];
    rows->targets[t] = t + 1 < T ? from->tokens[t + 1] : -1;
    rows->positions[t] = (int32_t)t;
  }
  rows->num_targets = T - 1;
  return OT_OK;
}

static ot_status read_text(drift_audit *d) {
  ot_data_loader *loader = NULL;
  ot_micro_batch whole = {0};
  ot_status status = ot_data_loader_create(d->run, &loader);
  if (status == OT_OK) status = ot_micro_batch_create(1, d->run->data.sequence_length, &whole);
  if (status == OT_OK) status = ot_data_loader_train(loader, 0, &whole);
  if (status == OT_OK) {
    const int64_t asked = d->request->tokens;
    status = make_document(&whole, asked > 0 ? asked : (int64_t)TOKENS, &d->rows);
  }
  ot_micro_batch_release(&whole);
  ot_data_loader_destroy(&loader);
  return status;
}

// ---- forward passes ----

typedef struct question {
  ot_mode mode;
  const ot_model *model;
  const ot_micro_batch *rows;
  const char *files;  // or null: with the weights of the run
} question;

static ot_status create_probe(const drift_audit *d, const question *q, ot_runtime **probe) {
  const ot_probe_request request = {
      .model = q->model,
      .mode = q->mode,
      .sequences = q->rows->B,
      .tokens = q->rows->T,
      .compute = d->compute,
      .storage = d->storage,
      .backend = ot_runtime_backend(ot_trainer_runtime(d->request->trainer)),
      .files = q->files};
  return ot_probe_create(&request, probe);
}

static ot_status compute_answer(const drift_audit *d, const question *q, double *logits) {
  ot_runtime *probe = NULL;
  ot_status status = create_probe(d, q, &probe);
  if (status == OT_OK && !q->files) status = ot_variant_copy_weights(d->whole, probe);
  if (status == OT_OK) status = ot_probe_ask(probe, q->rows, logits);
  ot_runtime_destroy(&probe);
  return status;
}

static ot_status compute_forward(const drift_audit *d, const ot_model *model, double *logits) {
  return compute_answer(d, &(question){OT_MODE_LOGITS, model, &d->rows, NULL}, logits);
}

static ot_status compute_decode(const drift_audit *d, const ot_model *model, double *logits) {
  return compute_answer(d, &(question){OT_MODE_DECODE, model, &d->rows, NULL}, logits);
}

// ---- comparing ----

static ot_drift_figures compare(const drift_audit *d, int64_t tokens) {
  const ot_logit_pair pair = {
      .a = d->truth, .b = d->other, .targets = d->rows.targets, .rows = tokens, .vocab = d->vocab};
  return ot_drift_compare(&pair);
}

static const char *details(const drift_audit *d, const ot_drift_figures *f) {
  ot_json_writer json = ot_json_begin(d->report->arena, 0);
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

static void find(drift_audit *d, const char *what, const char *where, const char *advice,
                 const ot_drift_figures *f) {
  ot_audit_find(d->report, what, where, advice,
                "%s: |ln p| of the same tokens differs by %.3g on average and %.3g at most (token "
                "%lld); %lld of %lld most probable tokens differ",
                ot_dtype_name(d->storage), f->mean, f->max, (long long)f->worst,
                (long long)f->flips, (long long)f->tokens)
      ->details = details(d, f);
}

// The tolerance in nats of a token's log-probability; NaN fails, too. Measured in float32: 1.4e-6
// mean and 2.1e-5 maximum from other summation orders in a correct model, 2.3e-5 and 3.7e-4 from an
// epsilon of 1e-6 instead of 1e-5.
static bool within(const drift_audit *d, const ot_drift_figures *f) {
  const bool wide = d->compute == OT_F64;
  return f->mean <= (wide ? 1e-12 : 1e-5) && f->max <= (wide ? 1e-10 : 1e-3);
}

// Adds a line to the table; true if the two agree.
static bool note(drift_audit *d, const char *what, const ot_drift_figures *f) {
  ot_text_appendf(&d->table, "  %-5s %-18s %7lld %12.3g %12.3g %12.3g %9.4f %6lld\n",
                  ot_dtype_name(d->storage), what, (long long)f->tokens, f->mean, f->max,
                  f->divergence, f->sample_size, (long long)f->flips);
  return within(d, f);
}

// Compares ln p of the targets alone, [tokens].
static ot_drift_figures compare_targets(const drift_audit *d, const double *logprobs,
                                        int64_t tokens) {
  ot_log_ratios sums = {.worst = -1};
  for (int64_t t = 0; t < tokens; t++) {
    if (d->rows.targets[t] < 0) continue;
    const double truth = ot_log_probability(d->truth + t * d->vocab, d->vocab, d->rows.targets[t]);
    ot_log_ratios_add(&sums, logprobs[t] - truth, t);
  }
  return (ot_drift_figures){.tokens = sums.tokens,
                            .mean = sums.magnitude / (sums.tokens > 0 ? (double)sums.tokens : 1),
                            .max = sums.max,
                            .worst = sums.worst};
}

static void note_targets(drift_audit *d, const char *what, const ot_drift_figures *f) {
  ot_text_appendf(&d->table, "  %-5s %-18s %7lld %12.3g %12.3g\n", ot_dtype_name(d->storage), what,
                  (long long)f->tokens, f->mean, f->max);
}

// ---- decode ----

static ot_model first_layers(const drift_audit *d, int64_t layers, bool amended) {
  ot_model model = d->run->model;
  model.num_layers = layers;
  if (amended && d->request->amend_model) d->request->amend_model(&model);
  return model;
}

static ot_status differs_after(drift_audit *d, int64_t layers, bool *differs) {
  const ot_model trained = first_layers(d, layers, false), decoded = first_layers(d, layers, true);
  double *const truth = d->truth;
  d->truth = malloc((size_t)(d->tokens * d->vocab) * sizeof *d->truth);
  ot_status status =
      d->truth ? compute_forward(d, &trained, d->truth) : ot_fail(OT_ENVIRONMENT, "out of memory");
  if (status == OT_OK) status = compute_decode(d, &decoded, d->other);
  if (status == OT_OK) {
    const ot_drift_figures f = compare(d, d->tokens);
    *differs = !within(d, &f);
  }
  free(d->truth);
  d->truth = truth;
  return status;
}

// The first layer after which the two differ, by bisection.
static ot_status locate(drift_audit *d, int64_t *layer) {
  int64_t same = 0, differ = d->run->model.num_layers;
  while (differ - same > 1) {
    const int64_t middle = same + (differ - same) / 2;
    bool differs = false;
    OT_TRY(differs_after(d, middle, &differs));
    *(differs ? &differ : &same) = middle;
  }
  *layer = differ - 1;
  return OT_OK;
}

static ot_status check_decode(drift_audit *d) {
  const ot_model decoded = first_layers(d, d->run->model.num_layers, true);
  OT_TRY(compute_decode(d, &decoded, d->other));
  const ot_drift_figures f = compare(d, d->tokens);
  if (note(d, "decode", &f)) return OT_OK;
  int64_t layer = 0;
  OT_TRY(locate(d, &layer));
  find(d, "train_decode",
       ot_arena_format(d->report->arena, "layer %lld is the first that differs", (long long)layer),
       "compare positions, masks, the cache and the epsilons of the two paths in that layer; "
       "capacity and expert choice see other tokens in training than in inference",
       &f);
  return OT_OK;
}

// ---- serving ----

// The engine computes in float32 or float64, whatever the run's dtypes are. `most`: a larger mean
// difference is a finding; 0: the tolerance of the dtype.
static ot_status check_serving(drift_audit *d, ot_runtime *weights, double most) {
  ot_model model = d->run->model;
  bool serves = false;
  if (d->request->amend_served) d->request->amend_served(&model);
  double *const logprobs = ot_arena_array(d->report->arena, d->tokens, sizeof *logprobs);
  const ot_serving_probe probe = {
      .model = &model, .weights = weights, .compute = d->compute, .rows = &d->rows};
  OT_TRY(ot_serving_probe_ask(&probe, logprobs, &serves));
  if (!serves) return OT_OK;
  const ot_drift_figures f = compare_targets(d, logprobs, d->tokens);
  note_targets(d, "serving", &f);
  if (f.tokens == 0 || (most > 0 ? f.mean <= most : within(d, &f))) return OT_OK;
  ot_audit_find(d->report, "train_serve", "the inference engine",
                "compare its passes with those of training: chunks, the cache, epsilons",
                "%s: |ln p| of the same tokens differs by %.3g on average and %.3g at most (token "
                "%lld)",
                ot_dtype_name(d->storage), f.mean, f.max, (long long)f.worst);
  return OT_OK;
}

// ---- shorter forwards ----

// Lengths around the key tiles and token chunks of the kernels.
static ot_status check_lengths(drift_audit *d) {
  static const int64_t lengths[] = {1, 2, 31, 32, 33, 63, 64, 65};
  ot_drift_figures worst = {0};
  ot_micro_batch rows = d->rows;
  int64_t at = 0;
  for (int i = 0; i < OT_COUNT(lengths) && lengths[i] < d->tokens; i++) {
    rows.T = lengths[i];
    OT_TRY(compute_answer(d, &(question){OT_MODE_LOGITS, &d->run->model, &rows, NULL}, d->other));
    const ot_drift_figures f = compare(d, rows.T);
    if (i > 0 && f.max <= worst.max) continue;
    worst = f;
    at = rows.T;
  }
  if (at == 0) return OT_OK;
  if (note(d, "shorter forwards", &worst)) return OT_OK;
  find(d, "length_dependence",
       ot_arena_format(d->report->arena, "a forward of %lld tokens", (long long)at),
       "the output for a token must not depend on how many tokens follow it", &worst);
  return OT_OK;
}

// The same sequence as the last of NEIGHBOURS; the others are rotations of it.
static ot_status compute_in_batch(drift_audit *d, double *logits) {
  ot_micro_batch rows;
  OT_TRY(ot_micro_batch_create(NEIGHBOURS, d->tokens, &rows));
  for (int64_t i = 0; i < NEIGHBOURS * d->tokens; i++) {
    const int64_t b = i / d->tokens, t = i % d->tokens;
    const int64_t from = b == NEIGHBOURS - 1 ? t : d->tokens - 1 - t;
    rows.tokens[i] = d->rows.tokens[from];
    rows.positions[i] = (int32_t)t;
  }
  for (int b = 0; b < NEIGHBOURS; b++) rows.sample_ids[b] = b;
  const ot_status status =
      compute_answer(d, &(question){OT_MODE_LOGITS, &d->run->model, &rows, NULL}, logits);
  ot_micro_batch_release(&rows);
  return status;
}

// Must be equal up to rounding; bitwise equality is noted.
static ot_status check_neighbours(drift_audit *d) {
  const int64_t count = d->tokens * d->vocab;
  double *const all = malloc((size_t)(NEIGHBOURS * count) * sizeof *all);
  OT_CHECK(all, OT_ENVIRONMENT, "out of memory for the logits of %d sequences", NEIGHBOURS);
  const ot_status status = compute_in_batch(d, all);
  int64_t differ = 0;
  for (int64_t i = 0; status == OT_OK && i < count; i++) {
    d->other[i] = all[(NEIGHBOURS - 1) * count + i];
    differ += d->other[i] != d->truth[i];
  }
  free(all);
  OT_TRY(status);
  const ot_drift_figures f = compare(d, d->tokens);
  if (note(d, differ == 0 ? "neighbours (bits)" : "neighbours", &f)) return OT_OK;
  find(d, "batch_dependence",
       ot_arena_format(d->report->arena, "%lld of %lld logits of a sequence", (long long)differ,
                       (long long)count),
       "the output for a sequence must not depend on its batch: capacity and expert "
       "choice over a batch violate this",
       &f);
  return OT_OK;
}

// ---- the layout ----

// The sequence on all ranks, one forward for each target.
static ot_status score_layout(drift_audit *d, ot_layout_probe *probe) {
  const int64_t T = d->layout_tokens, B = ot_layout_probe_sequences(probe);
  ot_micro_batch rows;
  OT_TRY(ot_micro_batch_create(B, T, &rows));
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
  ot_micro_batch_release(&rows);
  return status;
}

// Collective; the comparison runs on the leader.
static ot_status compute_layout(drift_audit *d) {
  if (ot_world_size(d->world) == 1) return OT_OK;
  d->layout_tokens = ot_layout_tokens(d->world, d->tokens, LAYOUT_TOKENS);
  d->layout = ot_arena_array(d->report->arena, d->layout_tokens, sizeof *d->layout);
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

static void check_layout(drift_audit *d) {
  if (d->layout_tokens == 0) return;
  // The probe gives losses.
  for (int64_t t = 0; t < d->layout_tokens; t++) d->layout[t] = -d->layout[t];
  const ot_drift_figures f = compare_targets(d, d->layout, d->layout_tokens);
  note_targets(d, "the run's layout", &f);
  if (within(d, &f)) return;
  ot_audit_find(
      d->report, "layout",
      ot_arena_format(d->report->arena, "the forward on %d ranks", ot_world_size(d->world)),
      "a reduction or mask differs from that of one rank: `audit ranks` and `audit causality` "
      "with the same ranks locate it",
      "%s: |ln p| of the same tokens differs from that on one rank by %.3g on average and %.3g at "
      "most (token %lld)",
      ot_dtype_name(d->storage), f.mean, f.max, (long long)f.worst);
}

// ---- files ----

// Exports the state saved in `folder` as HF files of full precision; `path` on the leader is
// theirs.
static ot_status export_model(const drift_audit *d, const char *folder, const char **path) {
  ot_arena *const arena = d->report->arena;
  ot_convert_report report;
  ot_heap heap = {0};
  ot_arena own = ot_heap_arena_create(&heap);
  *path = ot_disk_join(arena, folder, "hf");
  const ot_convert_request request = {.from = ot_disk_join(arena, folder, "checkpoint"),
                                      .to = *path,
                                      .dtype = &d->compute,
                                      .only_native = true};
  ot_status status = ot_trainer_save(d->request->trainer, request.from);
  if (status == OT_OK && ot_world_is_leader(d->world)) status = ot_convert(&own, &request, &report);
  ot_heap_release(&heap);
  return ot_world_agree(d->world, status);
}

static ot_status check_export(drift_audit *d, const char *files) {
  OT_TRY(compute_answer(d, &(question){OT_MODE_LOGITS, &d->run->model, &d->rows, files}, d->other));
  const ot_drift_figures f = compare(d, d->tokens);
  note(d, "exported", &f);
  d->described = f.max == 0;
  if (d->described) return OT_OK;
  find(d, "export", "the model written as Hugging Face files and read back",
       "compare the tensors of the two, and the keys of config.json", &f);
  return OT_OK;
}

// ---- the run's dtypes ----

// The weights as the run stores them, served in float32, against the forward in the run's dtypes.
static ot_status serve_narrow(drift_audit *d, double most) {
  const question forward = {OT_MODE_LOGITS, &d->run->model, &d->rows, NULL};
  ot_runtime *stored = NULL;
  ot_status status = create_probe(d, &forward, &stored);
  if (status == OT_OK) status = ot_variant_copy_weights(d->whole, stored);
  if (status == OT_OK) status = check_serving(d, stored, most);
  ot_runtime_destroy(&stored);
  return status;
}

// Low-precision storage alone changes log-probabilities: decode may differ from the forward by at
// most a few times the difference between the forwards in the run's dtypes and in fp32.
static ot_status check_narrow(drift_audit *d) {
  enum { TIMES = 5 };
  d->storage = d->run->precision.params;
  OT_TRY(compute_forward(d, &d->run->model, d->other));
  const ot_drift_figures floor = compare(d, d->tokens);
  note(d, "full precision", &floor);
  double *const wide = d->truth;
  d->truth = d->other;
  d->other = wide;
  const ot_model decoded = first_layers(d, d->run->model.num_layers, true);
  OT_TRY(compute_decode(d, &decoded, d->other));
  const ot_drift_figures f = compare(d, d->tokens);
  note(d, "decode", &f);
  OT_TRY(serve_narrow(d, TIMES * floor.mean));
  if (f.divergence <= TIMES * floor.divergence && f.max_change <= 0.5) return OT_OK;
  find(d, "train_decode", ot_arena_format(d->report->arena, "in %s", ot_dtype_name(d->storage)),
       "the two paths round at different places; give the cache and the sums of decode the types "
       "of training",
       &f);
  return OT_OK;
}

// ---- the audit ----

static ot_status run_checks(drift_audit *d, const char *exported) {
  ot_text_appendf(&d->table, "  %-5s %-18s %7s %12s %12s %12s %9s %6s\n", "", "forward against",
                  "tokens", "mean |dln p|", "max", "KL", "samples", "flips");
  OT_TRY(ot_probe_ask(d->whole, &d->rows, d->truth));
  OT_TRY(check_decode(d));
  OT_TRY(check_serving(d, d->whole, 0));
  check_layout(d);
  OT_TRY(check_lengths(d));
  OT_TRY(check_neighbours(d));
  OT_TRY(check_export(d, exported));
  return d->run->precision.params != d->storage ? check_narrow(d) : OT_OK;
}

static ot_status compare_against(const drift_audit *d, const char *exported) {
  const ot_drift_against request = {.run = d->run,
                                    .file = &d->against,
                                    .weights = d->whole,
                                    .reference = d->described ? exported : NULL};
  return d->request->against ? ot_drift_against_compare(&request, d->report) : OT_OK;
}

static ot_status lead(drift_audit *d, const char *exported) {
  double *const logits = malloc(2 * (size_t)(d->tokens * d->vocab) * sizeof *logits);
  OT_CHECK(logits, OT_ENVIRONMENT, "out of memory for the logits of %lld tokens",
           (long long)d->tokens);
  d->truth = logits;
  d->other = logits + d->tokens * d->vocab;
  const ot_status status = run_checks(d, exported);
  free(logits);
  OT_TRY(status);
  d->report->table = ot_text_builder_text(&d->table);
  d->report->summary = ot_arena_format(
      d->report->arena, "%lld tokens of the training data as one document", (long long)d->tokens);
  if (d->rows.num_targets == 0) {
    ot_audit_inconclusive(d->report, "no token has a target whose probability could be compared");
  }
  return compare_against(d, exported);
}

static ot_status run_with_files(drift_audit *d) {
  char folder[OT_WORLD_TEXT] = "";
  const char *exported = NULL;
  OT_TRY(ot_temporary_folder_create(d->world, folder));
  ot_status status = export_model(d, folder, &exported);
  if (status == OT_OK && ot_world_is_leader(d->world)) {
    if (d->request->amend_files) d->request->amend_files(exported);
    status = lead(d, exported);
  }
  if (ot_world_is_leader(d->world)) ot_disk_remove(folder);
  return ot_world_agree(d->world, status);
}

// A faulty file ends the audit before it computes anything.
static ot_status read_against(drift_audit *d) {
  const char *const path = d->request->against;
  ot_arena arena = ot_heap_arena_create(&d->heap);
  if (!path) return OT_OK;
  ot_world_set_timeout(d->world, 0);  // the other ranks wait for the judge
  const bool leads = ot_world_is_leader(d->world);
  return ot_world_agree(d->world,
                        leads ? ot_drift_against_read(path, d->run, &arena, &d->against) : OT_OK);
}

static ot_status create_whole(drift_audit *d) {
  const question forward = {OT_MODE_LOGITS, &d->run->model, &d->rows, NULL};
  const bool leads = ot_world_is_leader(d->world);
  OT_TRY(ot_world_agree(d->world, leads ? create_probe(d, &forward, &d->whole) : OT_OK));
  return ot_variant_copy_weights(ot_trainer_runtime(d->request->trainer), d->whole);
}

ot_status ot_audit_drift(const ot_audit_request *request, ot_arena *arena,
                         ot_audit_report *report) {
  *report = (ot_audit_report){.audit = "drift", .arena = arena};
  const ot_run *const run = ot_trainer_run(request->trainer);
  drift_audit d = {.request = request,
                   .world = ot_trainer_world(request->trainer),
                   .report = report,
                   .run = run,
                   .vocab = run->model.vocab_size,
                   .table = {.arena = arena}};
  d.compute = d.storage = ot_run_compute(&run->precision);
  ot_status status = read_against(&d);
  if (status == OT_OK) status = ot_world_agree(d.world, read_text(&d));
  d.tokens = d.rows.T;
  if (status == OT_OK) status = create_whole(&d);
  if (status == OT_OK) status = compute_layout(&d);
  if (status == OT_OK) status = run_with_files(&d);
  ot_runtime_destroy(&d.whole);
  ot_micro_batch_release(&d.rows);
  ot_heap_release(&d.heap);
  return status;
}
