// SPDX-License-Identifier: Apache-2.0
// An iteration: admit waiting sequences, choose rows, run them, hand out scores and draw tokens.
#include "runtime/inference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/elements.h"
#include "ops/head.h"
#include "runtime/iteration.h"

struct ot_sequence {
  ot_sequence_request request;
  ot_sequence *next;  // in the queue
  int32_t *tokens;    // [num_prompt + max_tokens] prompt and generated tokens
  int64_t length;     // tokens known
  int64_t begun;      // of these in iterations that have begun
  int64_t done;       // of these in the cache
  int64_t reported;   // of the prompt, passed on
  int32_t *pages;     // [num_pages]
  int64_t num_pages, published;
  int64_t slot;
  bool mixed;  // its K and V are of several versions of the weights: never published
};

// A row of an iteration.
typedef struct row {
  ot_sequence *sequence;  // null: it has ended
  int64_t position;
  int pick;  // which row of logits it has, or -1
} row;

struct ot_inference {
  ot_iteration it;
  ot_page_cache *cache;
  ot_inference_shape shape;
  int64_t vocab_size;         // of the tokenizer
  ot_sequence **slots;        // [slots] or null
  ot_sequence *first, *last;  // waiting
  row *rows;                  // [depth, chunk] of the iterations under way
  double *logits;             // [V]
  ot_scored_token *scratch;   // [V]
  ot_inference_counts counts;
};

static int64_t pages_for(int64_t positions) {
  return (positions + OT_PAGE_SLOTS - 1) / OT_PAGE_SLOTS;
}

// ---- create ----

static bool allocate(ot_inference *e) {
  const size_t V = (size_t)e->it.V;
  e->slots = calloc((size_t)e->shape.slots, sizeof(ot_sequence *));
  e->rows = calloc((size_t)(e->it.depth * e->shape.chunk), sizeof *e->rows);
  e->logits = malloc(V * sizeof *e->logits);
  e->scratch = malloc(V * sizeof *e->scratch);
  return e->slots && e->rows && e->logits && e->scratch;
}

// With a capacity, or when experts choose, what a token gets depends on the others of an iteration.
static ot_status check_model(const ot_model *model) {
  if (model->moe.num_experts == 0 || model->moe.routing == OT_MOE_DROPLESS) return OT_OK;
  ot_fail(
      OT_USAGE,
      "the model's experts take tokens by their neighbours, so answers would depend on the load");
  return ot_fail_hint(OT_USAGE,
                      "--set model.moe_routing=dropless lets each token choose by itself");
}

ot_status ot_inference_create(ot_runtime *runtime, int64_t vocab_size, ot_inference **out) {
  const ot_graph_request *const prefill = &ot_runtime_graph(runtime, OT_MODE_PREFILL)->request;
  *out = NULL;
  OT_TRY(check_model(prefill->model));
  ot_inference *const e = calloc(1, sizeof *e);
  *out = e;
  OT_CHECK(e, OT_ENVIRONMENT, "engine: out of memory");
  *e = (ot_inference){.shape = {.slots = prefill->cache.sequences,
                                .chunk = prefill->sequence_length,
                                .positions = prefill->cache.positions,
                                .pages = prefill->cache.pages},
                      .vocab_size = vocab_size};
  ot_status status = ot_iteration_create(runtime, &e->it);
  // A tokenizer may have entries that the model has no row for.
  if (status == OT_OK && e->vocab_size > e->it.V) e->vocab_size = e->it.V;
  if (status == OT_OK && !allocate(e)) status = ot_fail(OT_ENVIRONMENT, "engine: out of memory");
  if (status == OT_OK) status = ot_page_cache_create(e->shape.pages, &e->cache);
  if (status != OT_OK) ot_inference_destroy(out);
  return status;
}

static void release(ot_inference *e, ot_sequence *s) {
  if (e->cache) ot_page_cache_release(e->cache, s->pages, s->num_pages);
  free(s->pages);
  free(s->tokens);
  free(s);
}

void ot_inference_destroy(ot_inference **engine) {
  if (!engine || !*engine) return;
  ot_inference *const e = *engine;
  for (int64_t i = 0; e->slots && i < e->shape.slots; i++) {
    if (e->slots[i]) release(e, e->slots[i]);
  }
  for (ot_sequence *s = e->first, *next; s; s = next) {
    next = s->next;
    release(e, s);
  }
  ot_page_cache_destroy(&e->cache);
  void *const owned[] = {e->slots, e->rows, e->logits, e->scratch};
  for (int i = 0; i < OT_COUNT(owned); i++) free(owned[i]);
  ot_iteration_destroy(&e->it);
  free(e);
  *engine = NULL;
}

ot_status ot_inference_dismiss(ot_inference *engine) {
  OT_TRY(ot_inference_settle(engine));
  return ot_iteration_dismiss(&engine->it);
}

ot_status ot_inference_follow(ot_runtime *runtime) { return ot_iteration_follow(runtime); }

// ---- sequences begin and end ----

// Positions that the cache needs: a token that is generated last is never put there.
static int64_t positions_of(const ot_sequence_request *r) {
  return r->num_prompt + (r->max_tokens > 0 ? r->max_tokens - 1 : 0);
}

static ot_status check(const ot_inference *e, const ot_sequence_request *r) {
  OT_CHECK(r->num_prompt > 0, OT_USAGE, "the prompt has no token");
  OT_CHECK(r->max_tokens >= 0 && r->top >= 0 && r->top <= OT_MOST_TOP, OT_BUG,
           "engine: bad request");
  for (int64_t i = 0; i < r->num_prompt; i++) {
    OT_CHECK(r->prompt[i] >= 0 && r->prompt[i] < e->it.V, OT_USAGE,
             "token %lld of the prompt is %d, but the vocabulary has %lld tokens", (long long)i,
             r->prompt[i], (long long)e->it.V);
  }
  const int64_t positions = positions_of(r);
  OT_CHECK(positions <= e->shape.positions && pages_for(positions) <= e->shape.pages, OT_USAGE,
           "%lld tokens of prompt and %lld to generate, but there is room for %lld",
           (long long)r->num_prompt, (long long)r->max_tokens, (long long)e->shape.positions);
  return OT_OK;
}

void ot_sequence_add_ends(ot_sequence_request *request, const int32_t *ids, int count) {
  for (int i = 0; i < count; i++) {
    if (ids[i] < 0) continue;
    OT_ASSERT(request->num_ends < OT_MOST_ENDS);
    request->ends[request->num_ends++] = ids[i];
  }
}

ot_status ot_inference_add(ot_inference *engine, const ot_sequence_request *request,
                           ot_sequence **out) {
  OT_TRY(check(engine, request));
  ot_sequence *const s = calloc(1, sizeof *s);
  if (s) {
    s->request = *request;
    s->length = request->num_prompt;
    s->tokens = malloc((size_t)(request->num_prompt + request->max_tokens) * sizeof *s->tokens);
    s->pages = malloc((size_t)pages_for(positions_of(request)) * sizeof *s->pages);
  }
  if (!s || !s->tokens || !s->pages) {
    if (s) release(engine, s);
    return ot_fail(OT_ENVIRONMENT, "out of memory for a sequence");
  }
  memcpy(s->tokens, request->prompt, (size_t)request->num_prompt * sizeof *s->tokens);
  s->request.prompt = s->tokens;
  if (engine->last) engine->last->next = s;
  if (!engine->first) engine->first = s;
  engine->last = s;
  engine->counts.waiting++;
  if (out) *out = s;
  return OT_OK;
}

// Rows under way of a sequence that ends have no use any more. Other sequences may get its slot and
// pages: what they compute there begins later in all stages.
static void drop_rows(ot_inference *e, const ot_sequence *s) {
  for (int64_t i = 0; i < e->it.depth * e->shape.chunk; i++) {
    if (e->rows[i].sequence == s) e->rows[i].sequence = NULL;
  }
}

// `slot` -1: it waits no more.
static void finish(ot_inference *e, ot_sequence *s, int64_t slot, ot_finish how) {
  if (slot >= 0) {
    drop_rows(e, s);
    e->slots[slot] = NULL;
    e->counts.running--;
  }
  const ot_sequence_request request = s->request;
  release(e, s);
  if (request.finished) request.finished(request.context, how);
}

static void leave_queue(ot_inference *e, ot_sequence *s, ot_sequence *before) {
  if (before) before->next = s->next;
  if (e->first == s) e->first = s->next;
  if (e->last == s) e->last = before;
  e->counts.waiting--;
}

void ot_inference_cancel(ot_inference *engine, ot_sequence *sequence) {
  for (int64_t i = 0; i < engine->shape.slots; i++) {
    if (engine->slots[i] == sequence) finish(engine, sequence, i, OT_FINISH_CANCELLED);
  }
  ot_sequence *before = NULL;
  for (ot_sequence *s = engine->first; s; before = s, s = s->next) {
    if (s != sequence) continue;
    leave_queue(engine, s, before);
    finish(engine, s, -1, OT_FINISH_CANCELLED);
    return;
  }
}

void ot_inference_cancel_all(ot_inference *engine) {
  for (int64_t i = 0; i < engine->shape.slots; i++) {
    if (engine->slots[i]) finish(engine, engine->slots[i], i, OT_FINISH_CANCELLED);
  }
  while (engine->first) ot_inference_cancel(engine, engine->first);
}

// ---- the cache ----

void ot_inference_renew(ot_inference *engine, bool recompute) {
  OT_ASSERT(engine->it.begun == engine->it.ended);
  ot_page_cache_forget(engine->cache);
  for (int64_t i = 0; i < engine->shape.slots; i++) {
    ot_sequence *const s = engine->slots[i];
    if (!s) continue;
    OT_ASSERT(!s->request.scores);
    s->mixed = !recompute;
    if (recompute) s->begun = s->done = s->published = 0;
    for (int64_t k = 0; recompute && k < s->num_pages; k++) {
      ot_page_cache_clear_scores(engine->cache, s->pages[k]);
    }
  }
}

static ot_token_score *score_at(ot_inference *e, const ot_sequence *s, int64_t position) {
  ot_page *const page = ot_page_cache_page(e->cache, s->pages[position / OT_PAGE_SLOTS]);
  return &page->scores[position % OT_PAGE_SLOTS];
}

// Keeps the list of an event, beyond the most probable token.
static void keep_top(ot_inference *e, const ot_sequence *s, const ot_token_event *event) {
  ot_page *const page = ot_page_cache_page(e->cache, s->pages[event->index / OT_PAGE_SLOTS]);
  const int64_t slot = event->index % OT_PAGE_SLOTS;
  page->num_top[slot] = event->num_top;
  for (int i = 0; i < event->num_top; i++) page->top[slot][i] = event->top[i];
}

static bool has_scores(const ot_page *page, bool first, int top) {
  for (int i = first ? 1 : 0; i < OT_PAGE_SLOTS; i++) {
    if (isnan(page->scores[i].logprob) || (top > 1 && page->num_top[i] < top)) return false;
  }
  return true;
}

// Holds the known pages of the prompt.
static void find_prefix(ot_inference *e, ot_sequence *s) {
  const ot_sequence_request *const r = &s->request;
  while ((s->num_pages + 1) * OT_PAGE_SLOTS <= r->num_prompt) {
    const int64_t i = s->num_pages;
    const int32_t page =
        ot_page_cache_find(e->cache, i > 0 ? s->pages[i - 1] : -1, s->tokens + i * OT_PAGE_SLOTS);
    if (page < 0) return;
    if (r->scores && !has_scores(ot_page_cache_page(e->cache, page), i == 0, r->top)) return;
    ot_page_cache_hold(e->cache, page);
    s->pages[s->num_pages++] = page;
  }
}

// The score of token p, and what follows the last one, come from the row of the token before: so
// that row is computed again, with the same bits.
static void count_prefix(ot_inference *e, ot_sequence *s) {
  const ot_sequence_request *const r = &s->request;
  const int64_t found = s->num_pages * OT_PAGE_SLOTS;
  s->published = s->num_pages;
  s->done = found;
  const bool again = found < r->num_prompt ? r->scores : r->max_tokens > 0;
  if (found > 0 && again) s->done = found - 1;
  s->begun = s->done;
  e->counts.prompt_tokens += r->num_prompt;
  e->counts.cached_tokens += s->done;
}

// False if there are too few pages.
static bool allocate_pages(ot_inference *e, ot_sequence *s) {
  find_prefix(e, s);
  const int64_t wanted = pages_for(positions_of(&s->request));
  if (wanted - s->num_pages > ot_page_cache_unused(e->cache)) {
    ot_page_cache_release(e->cache, s->pages, s->num_pages);
    s->num_pages = 0;
    return false;
  }
  count_prefix(e, s);
  while (s->num_pages < wanted) s->pages[s->num_pages++] = ot_page_cache_take(e->cache);
  return true;
}

static void fill_page_table(ot_inference *e, int64_t slot) {
  const ot_sequence *const s = e->slots[slot];
  int32_t *const table = e->it.pages + slot * pages_for(e->shape.positions);
  memcpy(table, s->pages, (size_t)s->num_pages * sizeof *table);
  e->it.pages_changed = true;
}

// Pages that `s` has filled become known, or give way to known pages with the same content.
static void publish(ot_inference *e, ot_sequence *s) {
  for (; !s->mixed && (s->published + 1) * OT_PAGE_SLOTS <= s->done; s->published++) {
    const int64_t i = s->published;
    ot_page *const page = ot_page_cache_page(e->cache, s->pages[i]);
    memcpy(page->tokens, s->tokens + i * OT_PAGE_SLOTS, sizeof page->tokens);
    s->pages[i] = ot_page_cache_publish(e->cache, s->pages[i], i > 0 ? s->pages[i - 1] : -1);
    int32_t *const place = &e->it.pages[s->slot * pages_for(e->shape.positions) + i];
    e->it.pages_changed = e->it.pages_changed || *place != s->pages[i];
    *place = s->pages[i];
  }
}

// ---- events ----

static bool report_token(const ot_sequence *s, const ot_token_event *event) {
  return !s->request.token || s->request.token(s->request.context, event);
}

// Passes on scores of the prompt up to `end`; false: the sequence is to end.
static bool report(ot_inference *e, ot_sequence *s, int64_t end) {
  for (; s->request.scores && s->reported < end; s->reported++) {
    ot_token_event event = {.index = s->reported, .token = s->tokens[s->reported]};
    event.score = (ot_token_score){.logprob = NAN, .best = NAN, .greedy = -1};
    if (s->reported > 0) event.score = *score_at(e, s, s->reported);
    const ot_scored_token best = {event.score.best, event.score.greedy};
    if (s->request.top > 0 && s->reported > 0) {
      const ot_page *const page =
          ot_page_cache_page(e->cache, s->pages[s->reported / OT_PAGE_SLOTS]);
      event.top = s->request.top == 1 ? &best : page->top[s->reported % OT_PAGE_SLOTS];
      event.num_top = s->request.top;
    }
    if (!report_token(s, &event)) {
      s->reported++;
      return false;
    }
  }
  return true;
}

// ---- admission ----

// End of the rows to compute: the last one of a prompt that is only scored has no result.
static int64_t end_of(const ot_sequence *s) {
  return s->request.max_tokens == 0 && s->request.scores ? s->length - 1 : s->length;
}

static void admit(ot_inference *e) {
  for (int64_t slot = 0; slot < e->shape.slots && e->first; slot++) {
    if (e->slots[slot]) continue;
    ot_sequence *const s = e->first;
    if (!allocate_pages(e, s)) return;
    leave_queue(e, s, NULL);
    s->next = NULL;
    e->slots[slot] = s;
    s->slot = slot;
    e->counts.running++;
    fill_page_table(e, slot);
    // The first token has no score to wait for.
    const int64_t known = s->published * OT_PAGE_SLOTS;
    const bool goes_on = report(e, s, known > 0 ? known : 1);
    if (!goes_on || s->done >= end_of(s)) {
      finish(e, s, slot, goes_on ? OT_FINISH_LENGTH : OT_FINISH_STOP);
      slot--;
    }
  }
}

// ---- choosing rows ----

static bool generates(const ot_sequence *s) { return s->length > s->request.num_prompt; }

// Whether the logits of a row are needed.
static bool wants_logits(const ot_sequence *s, int64_t position) {
  if (position + 1 == s->length) return s->request.max_tokens > 0;
  return s->request.scores && s->request.top > 1;
}

static bool wants_score(const ot_sequence *s, int64_t position) {
  return s->request.scores && position + 1 < s->request.num_prompt;
}

// The rows of the iteration to begin next, or to end next.
static row *next_rows(const ot_inference *e) {
  return e->rows + e->it.begun % e->it.depth * e->shape.chunk;
}
static row *oldest_rows(const ot_inference *e) {
  return e->rows + e->it.ended % e->it.depth * e->shape.chunk;
}

// `most` rows of the iteration at most.
static void choose(ot_inference *e, int64_t slot, int64_t most) {
  ot_sequence *const s = e->slots[slot];
  ot_flight *const f = ot_iteration_next(&e->it);
  for (; s->begun < end_of(s) && f->num_rows < most; s->begun++) {
    const int64_t p = s->begun;
    const bool logits = wants_logits(s, p);
    if (logits && f->num_picks == e->shape.slots) return;
    const int64_t r = f->num_rows++;
    next_rows(e)[r] = (row){.sequence = s, .position = p, .pick = logits ? (int)f->num_picks : -1};
    f->row[OT_ROW_TOKENS][r] = s->tokens[p];
    f->row[OT_ROW_POSITIONS][r] = (int32_t)p;
    f->row[OT_ROW_TARGETS][r] = wants_score(s, p) ? s->tokens[p + 1] : -1;
    f->row[OT_ROW_SEQUENCES][r] = (int32_t)slot;
    if (logits) f->picks[f->num_picks++] = (int32_t)r;
  }
}

static int64_t share_of(int64_t all, int64_t parts) { return (all + parts - 1) / parts; }

// With several iterations under way each takes its share of the sequences that generate, and of a
// long prompt, whose parts the stages compute one after the other.
static void choose_rows(ot_inference *e) {
  ot_flight *const f = ot_iteration_next(&e->it);
  const int64_t most_rows = share_of(e->shape.chunk, e->it.depth);
  int64_t texts = share_of(e->counts.running, e->it.depth);
  f->num_rows = f->num_picks = 0;
  for (int64_t i = 0; i < e->shape.slots && texts > 0; i++) {
    const ot_sequence *const s = e->slots[i];
    if (!s || !generates(s) || s->begun == s->length) continue;
    choose(e, i, most_rows);
    texts--;
  }
  for (int64_t i = 0; i < e->shape.slots; i++) {
    if (e->slots[i] && !generates(e->slots[i])) choose(e, i, most_rows);
  }
}

// ---- running them ----

// Few rows without scores run in a narrow mode, in which each row has its logits.
static bool is_narrow(ot_inference *e, const ot_flight *f) {
  if (f->num_rows > e->shape.slots) return false;
  for (int64_t r = 0; r < f->num_rows; r++) {
    if (f->row[OT_ROW_TARGETS][r] >= 0) return false;
  }
  for (int64_t r = 0; r < f->num_rows; r++) {
    if (next_rows(e)[r].pick >= 0) next_rows(e)[r].pick = (int)r;
  }
  return true;
}

static ot_status run(ot_inference *e) {
  ot_flight *const f = ot_iteration_next(&e->it);
  f->mode = ot_iteration_mode(&e->it, f->num_rows, !is_narrow(e, f));
  OT_TRY(ot_iteration_begin(&e->it));
  e->counts.iterations++;
  e->counts.rows += f->num_rows;
  e->counts.computed += ot_runtime_graph(e->it.runtime, f->mode)->share.rows;
  return OT_OK;
}

// ---- results ----

// Turns logits into log-probabilities, with the bits of ot_iteration_score_row.
static int find_top(ot_inference *e, int count, double log_of_best, ot_scored_token *top) {
  ot_draw_best(e->logits, e->it.V, count, top);
  const double largest = top[0].value;
  for (int i = 0; i < count; i++) top[i].value = -(-log_of_best + (largest - top[i].value));
  return count;
}

static bool ends(const ot_sequence_request *r, int32_t token) {
  for (int i = 0; i < r->num_ends; i++) {
    if (r->ends[i] == token) return true;
  }
  return false;
}

// Draws the next token of a sequence; false: it is to end, as *how says.
static bool generate(ot_inference *e, ot_sequence *s, int pick, ot_finish *how) {
  const ot_sequence_request *const r = &s->request;
  ot_scored_token top[OT_MOST_TOP];
  ot_iteration_read_logits(&e->it, pick, e->logits);
  const int64_t made = s->length - r->num_prompt;
  const int32_t token = ot_draw_token(&r->draw, e->logits, e->vocab_size, made, e->scratch);
  const ot_row_score score = ot_iteration_score_row(&e->it, pick, token);
  *how = OT_FINISH_NUMERIC;
  if (score.greedy < 0 || isnan(score.logprob)) return false;
  ot_token_event event = {.index = s->length,
                          .token = token,
                          .generated = true,
                          .ends = ends(r, token),
                          .score = {score.logprob, score.best, score.greedy},
                          .top = top};
  if (r->top > 0) event.num_top = find_top(e, r->top, score.best, top);
  s->tokens[s->length++] = token;
  e->counts.generated_tokens++;
  if (s->length <= s->num_pages * OT_PAGE_SLOTS) {
    *score_at(e, s, s->length - 1) = event.score;
    if (r->top > 1) keep_top(e, s, &event);
  }
  const bool goes_on = report_token(s, &event);
  *how = event.ends || !goes_on ? OT_FINISH_STOP : OT_FINISH_LENGTH;
  return !event.ends && goes_on && made + 1 < r->max_tokens;
}

// The score of the token after row `r` of the prompt.
static bool add_score(ot_inference *e, const row *r, int64_t index) {
  ot_sequence *const s = r->sequence;
  const int64_t next = r->position + 1;
  if (r->pick < 0) {
    const ot_flight *const f = ot_iteration_oldest(&e->it);
    *score_at(e, s, next) = (ot_token_score){f->logprob[index], f->best[index], f->greedy[index]};
    return report(e, s, next + 1);
  }
  ot_scored_token top[OT_MOST_TOP];
  ot_iteration_read_logits(&e->it, r->pick, e->logits);
  const ot_row_score score = ot_iteration_score_row(&e->it, r->pick, s->tokens[next]);
  const ot_token_event event = {.index = next,
                                .token = s->tokens[next],
                                .score = {score.logprob, score.best, score.greedy},
                                .top = top,
                                .num_top = find_top(e, s->request.top, score.best, top)};
  *score_at(e, s, next) = event.score;
  keep_top(e, s, &event);
  s->reported = next + 1;
  return report_token(s, &event);
}

// Row `index`; false: its sequence is to end, as *how says.
static bool add_row(ot_inference *e, int64_t index, ot_finish *how) {
  const row *const r = &oldest_rows(e)[index];
  ot_sequence *const s = r->sequence;
  s->done = r->position + 1;
  *how = OT_FINISH_STOP;
  if (wants_score(s, r->position)) {
    if (!add_score(e, r, index)) return false;
  } else if (r->pick >= 0 && !generate(e, s, r->pick, how)) {
    publish(e, s);
    return false;
  }
  publish(e, s);
  *how = OT_FINISH_LENGTH;
  return s->done < end_of(s);
}

static void add_results(ot_inference *e) {
  const row *const rows = oldest_rows(e);
  for (int64_t i = 0; i < ot_iteration_oldest(&e->it)->num_rows; i++) {
    ot_finish how;
    ot_sequence *const s = rows[i].sequence;
    if (s && !add_row(e, i, &how)) finish(e, s, s->slot, how);
  }
}

static ot_status end_iteration(ot_inference *e) {
  OT_TRY(ot_iteration_wait(&e->it));
  add_results(e);
  ot_iteration_end(&e->it);
  return OT_OK;
}

// One iteration begins; the oldest ends if there are as many as stages, or nothing could begin.
ot_status ot_inference_step(ot_inference *engine) {
  ot_inference *const e = engine;
  admit(e);
  choose_rows(e);
  const bool begins = ot_iteration_next(&e->it)->num_rows > 0;
  if (begins) OT_TRY(run(e));
  const int64_t under_way = e->it.begun - e->it.ended;
  return under_way == e->it.depth || (under_way > 0 && !begins) ? end_iteration(e) : OT_OK;
}

ot_status ot_inference_settle(ot_inference *engine) {
  while (engine->it.begun > engine->it.ended) OT_TRY(end_iteration(engine));
  return OT_OK;
}

bool ot_inference_is_idle(const ot_inference *engine) {
  return engine->counts.running == 0 && engine->counts.waiting == 0 &&
         engine->it.begun == engine->it.ended;
}

ot_status ot_inference_run(ot_inference *engine) {
  while (!ot_inference_is_idle(engine)) OT_TRY(ot_inference_step(engine));
  return OT_OK;
}

ot_inference_counts ot_inference_count(const ot_inference *engine) {
  ot_inference_counts counts = engine->counts;
  counts.pages = engine->shape.pages;
  counts.unused_pages = ot_page_cache_unused(engine->cache);
  return counts;
}
