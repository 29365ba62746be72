// SPDX-License-Identifier: Apache-2.0
// One function for each fact.
#include "serve/facts.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/text.h"

struct ot_facts {
  ot_service *service;
  const ot_tokenizer *tokenizer;
  ot_special_tokens special;
  int64_t step;
};

// ---- tokens ----

static const char *text_of(const ot_facts *f, int32_t id, ot_arena *arena) {
  int64_t length = 0;
  const uint8_t *const bytes = id >= 0 ? ot_tokenizer_bytes(f->tokenizer, id, &length) : NULL;
  return bytes && length > 0 ? ot_arena_text(arena, (const char *)bytes, length) : NULL;
}

static ot_status encode(const ot_facts *f, ot_encoder *encoder, const ot_prompt_source *text,
                        ot_arena *arena, ot_token_list *ids) {
  const int32_t special[] = {f->special.eos, f->special.bos};
  // A tokenizer of bytes knows no text of special tokens, others only those of added tokens.
  for (int i = 0; i < OT_COUNT(special); i++) {
    const char *const name = text_of(f, special[i], arena);
    if (name && ot_text_equal(text->text, name)) return ot_token_list_append(ids, &special[i], 1);
  }
  return ot_encoder_encode(encoder, text->text, text->length, ids);
}

static ot_status tokenize(const ot_facts *f, ot_encoder *encoder, const ot_request_body *body,
                          ot_json_writer *w) {
  ot_prompt_source text;
  ot_token_list ids = {0};
  OT_TRY(ot_tokenize_request_read(body, w->arena, &text));
  const ot_status status = encode(f, encoder, &text, w->arena, &ids);
  ot_json_array(w, "tokens");
  for (int64_t i = 0; status == OT_OK && i < ids.count; i++) ot_json_integer(w, NULL, ids.ids[i]);
  ot_json_end(w);
  ot_json_integer(w, "count", ids.count);
  ot_json_integer(w, "max_model_len", ot_service_options_of(f->service)->positions);
  ot_token_list_release(&ids);
  return status;
}

enum { TEXT_COPIES = 8 };  // of a text while it is written as JSON, lists that double included

static ot_status detokenize(const ot_facts *f, const ot_request_body *body, ot_json_writer *w) {
  ot_prompt_source ids;
  ot_buffer text = {0};
  OT_TRY(ot_detokenize_request_read(body, w->arena, &ids));
  int64_t bytes = 0;
  for (int64_t i = 0; i < ids.count; i++) {
    int64_t length = 0;
    ot_tokenizer_bytes(f->tokenizer, ids.ids[i], &length);
    bytes += TEXT_COPIES * length;
  }
  OT_TRY(ot_service_reserve(f->service, bytes));
  const ot_status status = ot_tokenizer_decode(f->tokenizer, ids.ids, ids.count, &text);
  ot_json_text_bytes(w, "prompt", text.data ? (const char *)text.data : "", text.length);
  ot_buffer_release(&text);
  ot_service_return(f->service, bytes);
  return status;
}

// Reads and writes long texts one at a time.
static ot_status convert(const ot_facts *f, ot_fact fact, const ot_request_body *body,
                         ot_json_writer *w) {
  ot_encoder *const encoder = ot_service_enter(f->service, body->length);
  const ot_status status =
      fact == OT_FACT_TOKENIZE ? tokenize(f, encoder, body, w) : detokenize(f, body, w);
  ot_service_leave(f->service, body->length);
  return status;
}

// ---- the model and its tokenizer ----

static void write_models(const ot_facts *f, ot_json_writer *w) {
  const ot_service_options *const o = ot_service_options_of(f->service);
  ot_json_text(w, "object", "list");
  ot_json_array(w, "data");
  ot_json_object(w, NULL);
  ot_json_text(w, "id", o->model);
  ot_json_text(w, "object", "model");
  ot_json_integer(w, "created", 0);
  ot_json_text(w, "owned_by", "orthant");
  ot_json_integer(w, "max_model_len", o->positions);
  ot_json_object(w, "meta");
  ot_json_integer(w, "step", f->step);
  ot_json_integer(w, "vocab_size", ot_runtime_any_graph(o->runtime)->request.model->vocab_size);
  ot_json_end(w);
  ot_json_end(w);
  ot_json_end(w);
}

static void write_tokenizer(const ot_facts *f, ot_json_writer *w) {
  ot_json_text(w, "tokenizer_class", "orthant");
  ot_json_text(w, "eos_token", text_of(f, f->special.eos, w->arena));
  ot_json_text(w, "bos_token", text_of(f, f->special.bos, w->arena));
  ot_json_text(w, "pad_token", text_of(f, f->special.pad, w->arena));
  ot_json_text(w, "chat_template", ot_tokenizer_chat_template(f->tokenizer));
}

static ot_status write_teacher(const ot_facts *f, ot_arena *arena, const char **answer) {
  const ot_service_options *const o = ot_service_options_of(f->service);
  OT_TRY(ot_service_check_teacher(o));
  *answer = ot_lesson_facts_write(&o->facts, arena);
  return OT_OK;
}

// ---- figures ----

typedef struct figure {
  const char *name, *type, *help;
  double value;
} figure;

static const char *metrics(const ot_facts *f, ot_arena *arena) {
  const ot_service_counts c = ot_service_count(f->service);
  const ot_inference_counts *const e = &c.engine;
  const double used = e->pages > 0 ? 1 - (double)e->unused_pages / (double)e->pages : 0;
  const figure all[] = {
      {"num_requests_running", "gauge", "sequences that are computed", (double)e->running},
      {"num_requests_waiting", "gauge", "sequences that wait", (double)e->waiting},
      {"kv_cache_usage_perc", "gauge", "share of the cache in use, 1: all", used},
      {"prompt_tokens_total", "counter", "tokens of prompts", (double)e->prompt_tokens},
      {"prefix_cache_queries_total", "counter", "tokens of prompts looked for in the cache",
       (double)e->prompt_tokens},
      {"prefix_cache_hits_total", "counter", "tokens of prompts found in the cache",
       (double)e->cached_tokens},
      {"generation_tokens_total", "counter", "tokens generated", (double)e->generated_tokens},
      {"iterations_total", "counter", "iterations of the engine", (double)e->iterations},
      {"iteration_tokens_total", "counter", "tokens computed in them", (double)e->rows},
      {"requests_total", "counter", "requests for completions", (double)c.submitted},
      {"requests_refused_total", "counter", "requests refused because too many waited",
       (double)c.refused},
      {"requests_finished_total", "counter", "requests answered", (double)c.finished},
      {"requests_cancelled_total", "counter", "requests whose clients left", (double)c.cancelled},
      {"requests_failed_total", "counter", "requests that failed", (double)c.failed},
      {"time_to_first_token_seconds_sum", "counter", "waits for first tokens", c.first_token_s},
      {"time_to_first_token_seconds_count", "counter", "texts that have begun",
       (double)c.first_tokens},
  };
  const char *text = "";
  for (int i = 0; i < OT_COUNT(all); i++) {
    text = ot_arena_format(
        arena, "%s# HELP orthant:%s %s\n# TYPE orthant:%s %s\northant:%s %.17g\n", text,
        all[i].name, all[i].help, all[i].name, all[i].type, all[i].name, all[i].value);
  }
  return text;
}

ot_status ot_facts_write(ot_facts *facts, ot_fact fact, const ot_request_body *body,
                         ot_arena *arena, const char **answer) {
  ot_json_writer w = ot_json_begin(arena, 0);
  ot_status status = OT_OK;
  ot_json_object(&w, NULL);
  switch (fact) {
    case OT_FACT_TOKENIZE:
    case OT_FACT_DETOKENIZE:
      status = convert(facts, fact, body, &w);
      break;
    case OT_FACT_MODELS:
      write_models(facts, &w);
      break;
    case OT_FACT_TOKENIZER:
      write_tokenizer(facts, &w);
      break;
    case OT_FACT_TEACHER:
      return write_teacher(facts, arena, answer);
    case OT_FACT_HEALTH:
      ot_json_text(&w, "status", "ok");
      break;
    case OT_FACT_METRICS:
      *answer = metrics(facts, arena);
      return OT_OK;
  }
  if (status == OT_OK) ot_json_end(&w);
  *answer = w.text;
  return status;
}

// ---- create ----

ot_status ot_facts_create(ot_service *service, int64_t step, ot_facts **out) {
  const ot_service_options *const o = ot_service_options_of(service);
  const ot_model *const model = ot_runtime_any_graph(o->runtime)->request.model;
  ot_facts *const facts = calloc(1, sizeof *facts);
  *out = facts;
  OT_CHECK(facts, OT_ENVIRONMENT, "out of memory");
  *facts = (ot_facts){.service = service,
                      .tokenizer = o->tokenizer,
                      .special = ot_special_tokens_of(o->tokenizer, model),
                      .step = step};
  return OT_OK;
}

void ot_facts_destroy(ot_facts **facts) {
  if (!facts || !*facts) return;
  free(*facts);
  *facts = NULL;
}
