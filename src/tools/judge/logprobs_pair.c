// SPDX-License-Identifier: Apache-2.0
#include "judge/logprobs_pair.h"

#include <math.h>

#include "base/sort.h"
#include "base/text.h"

// ---- sequences ----

static int by_id(const void *a, const void *b, const void *context) {
  (void)context;
  const ot_logprob_sequence *const x = *(const ot_logprob_sequence *const *)a;
  const ot_logprob_sequence *const y = *(const ot_logprob_sequence *const *)b;
  return ot_text_compare(x->id, y->id);
}

// The sequences of a file by their ids, each with one of its own; null otherwise.
static const ot_logprob_sequence **sort_ids(const ot_logprob_file *file, ot_arena *arena) {
  const ot_logprob_sequence **const sorted = ot_arena_array(arena, file->count + 1, sizeof *sorted);
  for (int64_t i = 0; i < file->count; i++) {
    sorted[i] = &file->sequences[i];
    if (!sorted[i]->id) return NULL;
  }
  ot_sort(sorted, file->count, sizeof *sorted, (ot_ordering){by_id, NULL}, arena);
  for (int64_t i = 1; i < file->count; i++) {
    if (ot_text_equal(sorted[i - 1]->id, sorted[i]->id)) return NULL;
  }
  return sorted;
}

// Matches by ids if both files have the same ones. Servers make ids of their own up: then false.
static bool match_ids(ot_logprob_pair *p) {
  const ot_logprob_sequence **const a = sort_ids(p->file[0], p->arena);
  const ot_logprob_sequence **const b = sort_ids(p->file[1], p->arena);
  if (!a || !b || p->file[0]->count != p->file[1]->count) return false;
  for (int64_t i = 0; i < p->file[0]->count; i++) {
    if (!ot_text_equal(a[i]->id, b[i]->id)) return false;
  }
  for (int64_t i = 0; i < p->file[0]->count; i++)
    p->matches[a[i] - p->file[0]->sequences] = (ot_logprob_match){.of = {a[i], b[i]}};
  return true;
}

static ot_status match_order(ot_logprob_pair *p) {
  const ot_logprob_file *const a = p->file[0], *const b = p->file[1];
  if (a->count != b->count) {
    ot_fail(OT_USAGE, "%s has %lld sequences, %s has %lld", a->path, (long long)a->count, b->path,
            (long long)b->count);
    return ot_fail_hint(OT_USAGE,
                        "compare files with the same sequences in the same order, or "
                        "give each line an \"id\"");
  }
  for (int64_t i = 0; i < a->count; i++)
    p->matches[i] = (ot_logprob_match){.of = {&a->sequences[i], &b->sequences[i]}};
  return OT_OK;
}

// ---- tokens ----

static ot_status refuse(const ot_logprob_pair *p, const ot_logprob_match *m, int64_t i, int64_t k,
                        bool known) {
  const ot_logprob_sequence *const a = m->of[0], *const b = m->of[1];
  ot_fail(OT_USAGE, "%s and %s: token %lld of %lld is %s, token %lld of %lld is %s", a->name,
          b->name, (long long)i, (long long)a->count, ot_logprob_words(&a->tokens[i], p->arena),
          (long long)k, (long long)b->count, ot_logprob_words(&b->tokens[k], p->arena));
  return known ? ot_fail_hint(OT_USAGE,
                              "score the same tokens with both: the last ones of a "
                              "sequence must agree, the first ones may be missing")
               : ot_fail_hint(OT_USAGE,
                              "one file has ids, the other texts: ask the server for ids "
                              "(vLLM: return_token_ids)");
}

// The tokens of both must agree from the end on as far as both reach. *first receives the first of
// them in each.
static ot_status align(const ot_logprob_pair *p, const ot_logprob_match *m, int64_t first[2]) {
  const int64_t a = m->of[0]->count, b = m->of[1]->count, most = a < b ? a : b;
  first[0] = a - most;
  first[1] = b - most;
  for (int64_t i = 0; i < most; i++) {
    const ot_logprob_top x = ot_logprob_identity(&m->of[0]->tokens[first[0] + i]);
    const ot_logprob_top y = ot_logprob_identity(&m->of[1]->tokens[first[1] + i]);
    bool known;
    const bool same = ot_logprob_same(&x, &y, &known);
    const bool unnamed = (x.id < 0 && !x.text) || (y.id < 0 && !y.text);
    if (!same && !unnamed) return refuse(p, m, first[0] + i, first[1] + i, known);
  }
  return OT_OK;
}

// All ids of the text, if a file has it from its first token on: one that is not scored.
static void find_ids(const ot_logprob_pair *p, const int64_t first[2], ot_logprob_match *m) {
  const int longer = first[0] > 0 || (first[1] == 0 && isnan(m->of[0]->tokens[0].logprob)) ? 0 : 1;
  const ot_logprob_sequence *const s = m->of[longer], *const other = m->of[1 - longer];
  if (s->count == 0 || !isnan(s->tokens[0].logprob)) return;
  int32_t *const ids = ot_arena_array(p->arena, s->count, sizeof *ids);
  for (int64_t i = 0; i < s->count; i++) {
    ids[i] = s->tokens[i].id;
    if (ids[i] < 0 && i >= first[longer]) ids[i] = other->tokens[i - first[longer]].id;
    if (ids[i] < 0) return;
  }
  m->ids = ids;
  m->num_ids = s->count;
}

static ot_status add_tokens(ot_logprob_pair *p, ot_logprob_match *m) {
  int64_t first[2];
  OT_TRY(align(p, m, first));
  find_ids(p, first, m);
  const int64_t shared = m->of[0]->count - first[0];
  m->first = p->count;
  for (int64_t i = 0; i < shared; i++) {
    const double a = m->of[0]->tokens[first[0] + i].logprob;
    const double b = m->of[1]->tokens[first[1] + i].logprob;
    if (isnan(a) || isnan(b)) continue;
    p->logprob[0][p->count] = a;
    p->logprob[1][p->count] = b;
    p->match[p->count] = m - p->matches;
    for (int k = 0; k < 2; k++) p->token[k][p->count] = first[k] + i;
    p->place[p->count++] = m->num_ids - shared + i;
  }
  m->count = p->count - m->first;
  p->left_out += m->count == 0;
  return OT_OK;
}

ot_status ot_logprob_pair_build(const ot_logprob_file *a, const ot_logprob_file *b, ot_arena *arena,
                                ot_logprob_pair *p) {
  const int64_t most = 1 + (a->num_tokens < b->num_tokens ? a->num_tokens : b->num_tokens);
  *p = (ot_logprob_pair){.file = {a, b}, .arena = arena};
  p->matches = ot_arena_array(arena, a->count + 1, sizeof *p->matches);
  p->match = ot_arena_array(arena, most, sizeof *p->match);
  p->place = ot_arena_array(arena, most, sizeof *p->place);
  for (int k = 0; k < 2; k++) {
    p->logprob[k] = ot_arena_array(arena, most, sizeof *p->logprob[k]);
    p->token[k] = ot_arena_array(arena, most, sizeof *p->token[k]);
  }
  if (!match_ids(p)) OT_TRY(match_order(p));
  p->num_matches = a->count;
  for (int64_t i = 0; i < p->num_matches; i++) OT_TRY(add_tokens(p, &p->matches[i]));
  OT_CHECK(p->count > 0, OT_USAGE, "%s and %s: no token has a log-probability in both", a->path,
           b->path);
  return OT_OK;
}

const char *ot_logprob_pair_words(const ot_logprob_pair *p, int side, int64_t token) {
  const ot_logprob_match *const m = &p->matches[p->match[token]];
  return ot_arena_format(p->arena, "%s, token %lld", m->of[side]->name,
                         (long long)p->token[side][token]);
}
