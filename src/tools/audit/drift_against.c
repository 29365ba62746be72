// SPDX-License-Identifier: Apache-2.0
// Texts are documents one after another in rows as long as those of the run, as in training.
#include "audit/drift_against.h"

#include <math.h>

#include "audit/probe.h"
#include "audit/variant.h"
#include "base/extremes.h"
#include "base/text_builder.h"
#include "host/heap.h"
#include "judge/judge_logprobs.h"

// Tokens that the plain model computes, the default of `orthant judge logprobs`.
static const int64_t most_tokens = 1 << 14;

typedef struct comparison {
  const ot_drift_against *request;
  ot_audit_report *report;
  ot_arena *arena;      // of the comparison alone
  ot_logprob_file own;  // the same texts; their values are those of the training forward
  ot_runtime *probe;
  ot_micro_batch rows;           // one row [T]
  int64_t used;                  // of its tokens
  ot_logprob_token **predicted;  // [T] the token that each one predicts, or null
  double *logprobs;              // [T]
} comparison;

// ---- the file ----

static ot_status check_length(const ot_logprob_sequence *s, const ot_run *run) {
  const int64_t most = run->data.sequence_length;
  if (s->count <= most) return OT_OK;
  ot_fail(OT_USAGE, "%s: the text has %lld tokens; allowed: up to data.sequence_length=%lld",
          s->name, (long long)s->count, (long long)most);
  return ot_fail_hint(OT_USAGE, "--set data.sequence_length=%lld, or leave longer texts out",
                      (long long)s->count);
}

// The first token of a text follows nothing, so it has no value.
static ot_status check_beginning(const ot_logprob_sequence *s, ot_arena *arena) {
  if (isnan(s->tokens[0].logprob)) return OT_OK;
  ot_fail(OT_USAGE, "%s: the first token, %s, has log-probability %g: tokens before it are missing",
          s->name, ot_logprob_words(&s->tokens[0], arena), s->tokens[0].logprob);
  return ot_fail_hint(OT_USAGE,
                      "write the ids of the whole prompt: \"context_tokens\", or the server's "
                      "\"prompt_token_ids\" (vLLM: return_token_ids)");
}

static ot_status check_ids(const ot_logprob_sequence *s, const ot_run *run, ot_arena *arena) {
  const int64_t vocab = run->model.vocab_size;
  for (int64_t i = 0; i < s->count; i++) {
    const ot_logprob_token *const token = &s->tokens[i];
    if (token->id >= 0 && token->id < vocab) continue;
    ot_fail(OT_USAGE, "%s: token %lld is %s; allowed: ids from 0 to %lld", s->name, (long long)i,
            ot_logprob_words(token, arena), (long long)vocab - 1);
    return ot_fail_hint(OT_USAGE, token->id < 0 ? "ask the server for ids (vLLM: return_token_ids)"
                                                : "score texts with the tokenizer of the run");
  }
  return OT_OK;
}

ot_status ot_drift_against_read(const char *path, const ot_run *run, ot_arena *arena,
                                ot_logprob_file *out) {
  OT_TRY(ot_logprob_file_read(path, arena, out));
  for (int64_t i = 0; i < out->count; i++) {
    const ot_logprob_sequence *const s = &out->sequences[i];
    if (s->count == 0) continue;
    OT_TRY(check_beginning(s, arena));
    OT_TRY(check_length(s, run));
    OT_TRY(check_ids(s, run, arena));
  }
  return OT_OK;
}

// ---- the training forward ----

// Copies the texts without values.
static void copy_texts(comparison *c) {
  const ot_logprob_file *const file = c->request->file;
  const ot_dtype stored = ot_run_storage(&c->request->run->precision);
  c->own = (ot_logprob_file){
      .path = ot_arena_format(c->arena, "the training forward in %s", ot_dtype_name(stored)),
      .count = file->count,
      .num_tokens = file->num_tokens,
      .sequences = ot_arena_array(c->arena, file->count, sizeof *c->own.sequences)};
  for (int64_t i = 0; i < file->count; i++) {
    ot_logprob_sequence *const to = &c->own.sequences[i];
    *to = file->sequences[i];
    to->tokens = ot_arena_array(c->arena, to->count + 1, sizeof *to->tokens);
    for (int64_t t = 0; t < to->count; t++)
      to->tokens[t] = (ot_logprob_token){.id = file->sequences[i].tokens[t].id, .logprob = NAN};
  }
}

// Places a token in the row: of the document that begins at `begin`, before token `next` or none.
static void place(comparison *c, int64_t begin, int32_t id, ot_logprob_token *next) {
  const int64_t at = c->used++;
  c->rows.tokens[at] = id;
  c->rows.targets[at] = next ? next->id : -1;
  c->rows.positions[at] = (int32_t)(at - begin);
  c->rows.doc_starts[at] = (int32_t)begin;
  c->predicted[at] = next;
}

// Computes the row, whose rest is a document that predicts nothing.
static ot_status compute_row(comparison *c) {
  const int64_t begin = c->used;
  while (c->used < c->rows.T) place(c, begin, 0, NULL);
  OT_TRY(ot_probe_score(c->probe, &c->rows, c->logprobs));
  for (int64_t t = 0; t < c->rows.T; t++) {
    if (c->predicted[t]) c->predicted[t]->logprob = c->logprobs[t];
  }
  c->used = 0;
  return OT_OK;
}

static ot_status compute_texts(comparison *c) {
  for (int64_t i = 0; i < c->own.count; i++) {
    ot_logprob_sequence *const s = &c->own.sequences[i];
    if (c->used + s->count > c->rows.T) OT_TRY(compute_row(c));
    const int64_t begin = c->used;
    for (int64_t t = 0; t < s->count; t++)
      place(c, begin, s->tokens[t].id, t + 1 < s->count ? &s->tokens[t + 1] : NULL);
  }
  return c->used > 0 ? compute_row(c) : OT_OK;
}

// The judge takes NaN for tokens that are not scored.
static ot_status check_values(const comparison *c) {
  for (int64_t i = 0; i < c->own.count; i++) {
    const ot_logprob_sequence *const s = &c->own.sequences[i];
    for (int64_t t = 1; t < s->count; t++)
      OT_CHECK(!isnan(s->tokens[t].logprob), OT_NUMERIC,
               "%s, token %lld: the training forward gives NaN", s->name, (long long)t);
  }
  return OT_OK;
}

static ot_status create_probe(comparison *c) {
  const ot_run *const run = c->request->run;
  const int64_t T = ot_smaller_whole(run->data.sequence_length, c->own.num_tokens);
  const ot_probe_request request = {.model = &run->model,
                                    .mode = OT_MODE_SCORE,
                                    .sequences = 1,
                                    .tokens = T,
                                    .compute = ot_run_compute(&run->precision),
                                    .storage = ot_run_storage(&run->precision),
                                    .threads = run->threads,
                                    .backend = ot_runtime_backend(c->request->weights)};
  c->predicted = ot_arena_array(c->arena, T, sizeof *c->predicted);
  c->logprobs = ot_arena_array(c->arena, T, sizeof *c->logprobs);
  OT_TRY(ot_micro_batch_create(1, T, &c->rows));
  OT_TRY(ot_probe_create(&request, &c->probe));
  return ot_variant_copy_weights(c->request->weights, c->probe);
}

static ot_status compute_own(comparison *c) {
  copy_texts(c);
  ot_status status = create_probe(c);
  if (status == OT_OK) status = compute_texts(c);
  if (status == OT_OK) status = check_values(c);
  ot_runtime_destroy(&c->probe);
  ot_micro_batch_release(&c->rows);
  return status;
}

// ---- the verdict ----

static const char *write_figures(const comparison *c, const ot_judge_report *judged) {
  ot_json_writer json = ot_json_begin(c->report->arena, 0);
  ot_json_object(&json, NULL);
  ot_json_text(&json, "against", c->request->file->path);
  for (int i = 0; i < judged->num_figures; i++)
    ot_json_real(&json, judged->figures[i].name, judged->figures[i].value);
  ot_json_object(&json, "sensitivity");
  for (int i = 0; i < judged->num_sensitivities; i++)
    ot_json_real(&json, judged->sensitivities[i].what, judged->sensitivities[i].factor);
  ot_json_end(&json);
  ot_json_end(&json);
  return json.text;
}

static const char *write_table(const comparison *c, const ot_judge_report *judged) {
  ot_text_builder text = {.arena = c->report->arena};
  if (c->report->table) ot_text_put(&text, c->report->table);
  ot_text_appendf(&text, "  %s against %s, and both against float64\n", c->request->file->path,
                  c->own.path);
  ot_judge_report_put_parts(judged, &text);
  if (judged->num_sensitivities > 0) ot_text_put(&text, "  ");
  ot_judge_report_put_sensitivity(judged, &text);
  return ot_text_builder_text(&text);
}

static void carry(const comparison *c, const ot_judge_report *judged) {
  const char *const path = c->request->file->path;
  for (int i = 0; i < judged->num_findings; i++)
    ot_audit_find_judged(c->report, &judged->findings[i], path);
  c->report->figures = write_figures(c, judged);
  c->report->table = write_table(c, judged);
  if (judged->open) ot_audit_inconclusive(c->report, "%s: %s", path, judged->open);
}

static void judge(const comparison *c) {
  const ot_run *const run = c->request->run;
  ot_judge_report judged;
  const ot_judge_logprobs_request request = {.values = {c->request->file, &c->own},
                                             .checkpoint = c->request->reference,
                                             .most_tokens = most_tokens,
                                             .threads = ot_variant_threads(run)};
  if (ot_judge_logprobs(&request, c->arena, &judged) == OT_OK) {
    carry(c, &judged);
  } else {
    ot_audit_inconclusive(c->report, "%s was not judged: %s", c->request->file->path,
                          ot_fail_message());
  }
}

ot_status ot_drift_against_compare(const ot_drift_against *request, ot_audit_report *report) {
  if (!request->reference) {
    ot_audit_inconclusive(report, "%s was not compared: exported files do not describe the model",
                          request->file->path);
    return OT_OK;
  }
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  comparison c = {.request = request, .report = report, .arena = &arena};
  const ot_status status = compute_own(&c);
  if (status == OT_OK) judge(&c);
  ot_heap_release(&heap);
  return status;
}
