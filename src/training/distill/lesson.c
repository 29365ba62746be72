// SPDX-License-Identifier: Apache-2.0
// Arrays are flat, one sequence after another; ids of a token are `count` of `ids` and `weights`.
#include "distill/lesson.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "files/json_file.h"

static const char where[] = "the request";

// ---- facts ----

static const struct {
  const char *name, *key;  // key: of RUN.yaml that has to be the same; null: none
  size_t offset;
} numbers[] = {
    {"sequences", "batch.micro_batch_size", offsetof(ot_lesson_facts, sequences)},
    {"sequence_length", "data.sequence_length", offsetof(ot_lesson_facts, sequence_length)},
    {"draws", "distill.draws", offsetof(ot_lesson_facts, draws)},
    {"ids", "distill.targets for the teacher", offsetof(ot_lesson_facts, ids)},
    {"compute_bits", "precision.compute, bits", offsetof(ot_lesson_facts, compute_bits)},
    {"vocab_size", NULL, offsetof(ot_lesson_facts, vocab_size)},
    {"positions", NULL, offsetof(ot_lesson_facts, positions)},
};

static int64_t *number(const ot_lesson_facts *facts, int i) {
  return (int64_t *)((char *)facts + numbers[i].offset);
}

void ot_lesson_facts_of(const ot_run *run, const ot_tokenizer *tokenizer, ot_lesson_facts *facts) {
  const bool sampled = run->distill.objective == OT_DISTILL_SAMPLED;
  *facts = (ot_lesson_facts){.sequences = run->batch.micro_batch_size,
                             .sequence_length = run->data.sequence_length,
                             .vocab_size = run->model.vocab_size,
                             .positions = run->data.sequence_length,
                             .draws = sampled ? run->distill.draws : 0,
                             .ids = ot_teacher_ids(run),
                             .compute_bits = run->precision.compute == OT_F64 ? 64 : 32};
  memset(facts->tokenizer, '0', sizeof facts->tokenizer - 1);
  if (tokenizer) ot_tokenizer_hash(tokenizer, facts->tokenizer);
}

static bool is_known(const char *hash) { return strspn(hash, "0") < strlen(hash); }

ot_status ot_lesson_facts_check(const char *url, const ot_lesson_facts *found,
                                const ot_lesson_facts *wanted) {
  const bool tokenized = is_known(found->tokenizer) && is_known(wanted->tokenizer);
  if (tokenized && !ot_text_equal(found->tokenizer, wanted->tokenizer)) {
    ot_fail(OT_USAGE,
            "distill.server: its tokenizer has hash %s, that of data.tokenizer is %s (%s)",
            found->tokenizer, wanted->tokenizer, url);
    return ot_fail_hint(OT_USAGE, "a teacher and its student need the same tokens");
  }
  OT_CHECK(wanted->teacher[0] == '\0' || ot_text_equal(found->teacher, wanted->teacher), OT_USAGE,
           "distill.server: its teacher has hash %s, that of distill.teacher is %s (%s)",
           found->teacher, wanted->teacher, url);
  OT_CHECK(found->vocab_size <= wanted->vocab_size, OT_USAGE,
           "distill.server: its teacher's vocab_size=%lld exceeds the model's %lld (%s)",
           (long long)found->vocab_size, (long long)wanted->vocab_size, url);
  for (int i = 0; i < OT_COUNT(numbers); i++) {
    const int64_t theirs = *number(found, i), own = *number(wanted, i);
    if (!numbers[i].key || theirs == own) continue;
    ot_fail(OT_USAGE, "distill.server: it teaches runs with %s=%lld, this one has %lld (%s)",
            numbers[i].key, (long long)theirs, (long long)own, url);
    return ot_fail_hint(OT_USAGE, "start it with --teach and the RUN.yaml of this run");
  }
  return OT_OK;
}

const char *ot_lesson_facts_write(const ot_lesson_facts *facts, ot_arena *arena) {
  ot_json_writer w = ot_json_begin(arena, 0);
  ot_json_object(&w, NULL);
  ot_json_text(&w, "teacher", facts->teacher);
  ot_json_text(&w, "tokenizer", facts->tokenizer);
  for (int i = 0; i < OT_COUNT(numbers); i++) {
    ot_json_integer(&w, numbers[i].name, *number(facts, i));
  }
  ot_json_end(&w);
  return w.text;
}

static ot_status read_hash(const char *url, const json_t *root, const char *key, char *to) {
  const char *text = NULL;
  OT_TRY(ot_json_member_text(url, root, key, &text));
  OT_CHECK(strlen(text) == OT_CONTENT_HASH_BYTES - 1, OT_ENVIRONMENT, "%s: %s is not a hash", url,
           key);
  memcpy(to, text, OT_CONTENT_HASH_BYTES);
  return OT_OK;
}

static ot_status read_facts(const char *url, const json_t *root, ot_lesson_facts *facts) {
  OT_TRY(read_hash(url, root, "teacher", facts->teacher));
  OT_TRY(read_hash(url, root, "tokenizer", facts->tokenizer));
  for (int i = 0; i < OT_COUNT(numbers); i++) {
    OT_TRY(ot_json_member_count(url, root, numbers[i].name, number(facts, i)));
  }
  return OT_OK;
}

ot_status ot_lesson_facts_read(const char *url, const ot_buffer *text, ot_lesson_facts *facts) {
  json_t *root = NULL;
  *facts = (ot_lesson_facts){0};
  OT_TRY(ot_json_parse(url, (const char *)text->data, text->length, &root));
  const ot_status status = read_facts(url, root, facts);
  json_decref(root);
  return status;
}

// ---- micro-batches ----

static void write_integers(ot_json_writer *w, const char *key, const int32_t *values, int64_t n) {
  ot_json_array(w, key);
  for (int64_t i = 0; i < n; i++) ot_json_integer(w, NULL, values[i]);
  ot_json_end(w);
}

const char *ot_lesson_write(const ot_micro_batch *rows, const int64_t *keys, ot_arena *arena) {
  const int64_t R = rows->B * rows->T;
  ot_json_writer w = ot_json_begin(arena, 0);
  ot_json_object(&w, NULL);
  write_integers(&w, "tokens", rows->tokens, R);
  write_integers(&w, "targets", rows->targets, R);
  write_integers(&w, "positions", rows->positions, R);
  write_integers(&w, "documents", rows->doc_starts, R);
  if (keys) {
    ot_json_array(&w, "keys");
    for (int64_t i = 0; i < R; i++) ot_json_integer(&w, NULL, keys[i]);
    ot_json_end(&w);
  }
  ot_json_end(&w);
  return w.text;
}

// An array of whole numbers of a request.
typedef struct field {
  const char *key;
  int64_t least, most;
} field;

static ot_status read_integers(const json_t *root, field f, int64_t n, int64_t *to) {
  const json_t *const list = json_object_get(root, f.key);
  OT_CHECK(json_is_array(list) && (int64_t)json_array_size(list) == n, OT_USAGE,
           "%s is not a list of %lld whole numbers", f.key, (long long)n);
  for (int64_t i = 0; i < n; i++) {
    const json_t *const value = json_array_get(list, (size_t)i);
    to[i] = json_integer_value(value);
    OT_CHECK(json_is_integer(value) && to[i] >= f.least && to[i] <= f.most, OT_USAGE,
             "%s[%lld] is not a whole number from %lld to %lld", f.key, (long long)i,
             (long long)f.least, (long long)f.most);
  }
  return OT_OK;
}

static ot_status read_narrow(const json_t *root, field f, int64_t n, ot_arena *arena,
                             int32_t **to) {
  int64_t *const wide = ot_arena_array(arena, n, sizeof *wide);
  OT_TRY(read_integers(root, f, n, wide));
  *to = ot_arena_array(arena, n, sizeof **to);
  for (int64_t i = 0; i < n; i++) (*to)[i] = (int32_t)wide[i];
  return OT_OK;
}

// Attention of a token begins at the start of its document.
static ot_status check_documents(const ot_micro_batch *rows) {
  for (int64_t i = 0; i < rows->B * rows->T; i++) {
    const int64_t t = i % rows->T, start = rows->doc_starts[i];
    const bool goes_on = t > 0 && start == rows->doc_starts[i - 1];
    OT_CHECK(start == t || goes_on, OT_USAGE,
             "documents[%lld]=%lld is neither the place of its token, %lld, nor what precedes it",
             (long long)i, (long long)start, (long long)t);
  }
  return OT_OK;
}

static ot_status read_rows(const json_t *root, const ot_lesson_facts *facts, ot_arena *arena,
                           ot_lesson *lesson) {
  const int64_t B = facts->sequences, T = facts->sequence_length, V = facts->vocab_size;
  ot_micro_batch *const rows = &lesson->rows;
  OT_CHECK(json_is_object(root), OT_USAGE, "the request is not a JSON object");
  *lesson = (ot_lesson){.rows = {.B = B, .T = T, .sample_ids = ot_arena_array(arena, B, 8)}};
  memset(rows->sample_ids, 0, (size_t)B * sizeof *rows->sample_ids);
  OT_TRY(read_narrow(root, (field){"tokens", 0, V - 1}, B * T, arena, &rows->tokens));
  OT_TRY(read_narrow(root, (field){"targets", -1, V - 1}, B * T, arena, &rows->targets));
  OT_TRY(read_narrow(root, (field){"positions", 0, facts->positions - 1}, B * T, arena,
                     &rows->positions));
  OT_TRY(read_narrow(root, (field){"documents", 0, T - 1}, B * T, arena, &rows->doc_starts));
  OT_TRY(check_documents(rows));
  if (facts->ids == 0) return OT_OK;
  lesson->keys = ot_arena_array(arena, B * T, sizeof *lesson->keys);
  return read_integers(root, (field){"keys", INT64_MIN, INT64_MAX}, B * T, lesson->keys);
}

ot_status ot_lesson_read(const char *text, int64_t length, const ot_lesson_facts *facts,
                         ot_arena *arena, ot_lesson *lesson) {
  json_t *root = NULL;
  if (ot_json_parse(where, text, length, &root) != OT_OK) return OT_USAGE;
  const ot_status status = read_rows(root, facts, arena, lesson);
  json_decref(root);
  return status;
}

// ---- answers ----

static void write_reals(ot_json_writer *w, const char *key, const double *values, int64_t n) {
  ot_json_array(w, key);
  for (int64_t i = 0; i < n; i++) ot_json_real(w, NULL, values[i]);
  ot_json_end(w);
}

static void write_drawn(ot_json_writer *w, const ot_teacher_answer *a, int64_t R, int64_t K) {
  ot_json_array(w, "count");
  for (int64_t i = 0; i < R; i++) {
    int64_t count = 0;
    for (int64_t k = 0; k < K; k++) count += a->weights[i * K + k] > 0;
    ot_json_integer(w, NULL, count);
  }
  ot_json_end(w);
  ot_json_array(w, "ids");
  for (int64_t i = 0; i < R * K; i++) {
    if (a->weights[i] > 0) ot_json_integer(w, NULL, a->ids[i]);
  }
  ot_json_end(w);
  ot_json_array(w, "weights");
  for (int64_t i = 0; i < R * K; i++) {
    if (a->weights[i] > 0) ot_json_real(w, NULL, (double)a->weights[i]);
  }
  ot_json_end(w);
}

const char *ot_lesson_answer_write(const ot_lesson_facts *facts, const ot_teacher_answer *answer,
                                   ot_arena *arena) {
  const int64_t R = facts->sequences * facts->sequence_length;
  ot_json_writer w = ot_json_begin(arena, 0);
  ot_json_object(&w, NULL);
  ot_json_text(&w, "teacher", facts->teacher);
  write_reals(&w, "logprobs", answer->logprobs, R);
  if (facts->ids > 0) write_reals(&w, "entropy", answer->entropy, R);
  if (facts->ids > 0) write_drawn(&w, answer, R, facts->ids);
  ot_json_end(&w);
  return w.text;
}

int64_t ot_lesson_answer_bytes(const ot_lesson_facts *facts) {
  enum { HEAD_BYTES = 1 << 10, ROW_BYTES = 128, ID_BYTES = 48 };
  return HEAD_BYTES +
         facts->sequences * facts->sequence_length * (ROW_BYTES + facts->ids * ID_BYTES);
}

static ot_status array_of(const json_t *root, const char *key, int64_t n, const json_t **list) {
  *list = json_object_get(root, key);
  OT_CHECK(json_is_array(*list) && (n < 0 || (int64_t)json_array_size(*list) == n), OT_ENVIRONMENT,
           "%s is not a list of the right length", key);
  return OT_OK;
}

static ot_status read_reals(const json_t *root, const char *key, int64_t n, double *to) {
  const json_t *list;
  OT_TRY(array_of(root, key, n, &list));
  for (int64_t i = 0; i < n; i++) {
    const json_t *const value = json_array_get(list, (size_t)i);
    OT_CHECK(json_is_number(value), OT_ENVIRONMENT, "%s[%lld] is not a number", key, (long long)i);
    to[i] = json_number_value(value);
  }
  return OT_OK;
}

static ot_status read_drawn(const json_t *root, const ot_lesson_facts *facts,
                            const ot_lesson_places *to) {
  const int64_t R = facts->sequences * facts->sequence_length, K = facts->ids;
  const json_t *counts, *ids, *weights;
  OT_TRY(array_of(root, "count", R, &counts));
  OT_TRY(array_of(root, "ids", -1, &ids));
  OT_TRY(array_of(root, "weights", (int64_t)json_array_size(ids), &weights));
  size_t at = 0;
  for (int64_t i = 0; i < R; i++) {
    const int64_t count = json_integer_value(json_array_get(counts, (size_t)i));
    OT_CHECK(count >= 0 && count <= K, OT_ENVIRONMENT, "count[%lld]=%lld, allowed: 0 to %lld",
             (long long)i, (long long)count, (long long)K);
    for (int64_t k = 0; k < count; k++, at++) {
      const json_t *const id = json_array_get(ids, at), *const weight = json_array_get(weights, at);
      const int64_t value = json_integer_value(id);
      OT_CHECK(
          json_is_integer(id) && json_is_number(weight) && value >= 0 && value < facts->vocab_size,
          OT_ENVIRONMENT, "ids[%zu] or weights[%zu] is missing or wrong", at, at);
      to->ids[i * K + k] = (int32_t)value;
      to->weights[i * K + k] = (float)json_number_value(weight);
    }
  }
  OT_CHECK(at == json_array_size(ids), OT_ENVIRONMENT, "count and ids disagree");
  return OT_OK;
}

static ot_status read_answer(const char *url, const json_t *root, const ot_lesson_facts *facts,
                             const ot_lesson_places *to) {
  const int64_t R = facts->sequences * facts->sequence_length;
  const char *teacher = NULL;
  OT_TRY(ot_json_member_text(url, root, "teacher", &teacher));
  OT_CHECK(ot_text_equal(teacher, facts->teacher), OT_ENVIRONMENT,
           "distill.server: it has another teacher now, hash %s; this run began with %s (%s)",
           teacher, facts->teacher, url);
  OT_TRY(read_reals(root, "logprobs", R, to->logprobs));
  if (facts->ids == 0) return OT_OK;
  OT_TRY(read_reals(root, "entropy", R, to->entropy));
  memset(to->ids, 0, (size_t)(R * facts->ids) * sizeof *to->ids);
  memset(to->weights, 0, (size_t)(R * facts->ids) * sizeof *to->weights);
  return read_drawn(root, facts, to);
}

ot_status ot_lesson_answer_read(const char *url, const ot_buffer *text,
                                const ot_lesson_facts *facts, const ot_lesson_places *to) {
  json_t *root = NULL;
  OT_TRY(ot_json_parse(url, (const char *)text->data, text->length, &root));
  const ot_status status = read_answer(url, root, facts, to);
  json_decref(root);
  return status;
}
