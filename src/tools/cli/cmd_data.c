// SPDX-License-Identifier: Apache-2.0
// `orthant data inspect` and `orthant data decode`: the contents of a token shard.
#include <stdio.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "cli/verbs.h"
#include "data/shard_meta.h"
#include "data/token_shard.h"
#include "tokenizer/tokenizer.h"

static const char *const format_names[] = {
    [OT_DATA_AUTO] = "auto",       [OT_DATA_MEGATRON] = "megatron",   [OT_DATA_LLMC] = "llmc",
    [OT_DATA_NANOGPT] = "nanogpt", [OT_DATA_NANOGPT32] = "nanogpt32",
};

static const char *const boundary_names[] = {
    [OT_BOUNDARY_AUTO] = "auto",
    [OT_BOUNDARY_END] = "end",
    [OT_BOUNDARY_START] = "start",
};

typedef struct session {
  const ot_options *options;
  ot_arena *arena;
  ot_token_shard *tokens;
  const ot_token_shard_info *about;
  ot_shard_origin origin;
  ot_tokenizer *tokenizer;
  ot_json_writer json;
  bool as_json;
  ot_token_list ids;
  ot_buffer text;
} session;

// ---- inspect ----

static void inspect_as_json(session *s, const ot_token_shard_scan_result *scan) {
  ot_json_writer *const json = &s->json;
  ot_json_object(json, NULL);
  ot_json_text(json, "format", format_names[s->about->format]);
  ot_json_text(json, "bin", s->about->bin_path);
  ot_json_text(json, "idx", s->about->idx_path);
  ot_json_text(json, "dtype", s->about->dtype);
  ot_json_integer(json, "tokens", s->about->tokens);
  ot_json_integer(json, "documents", scan->documents);
  if (!s->about->idx_path) {
    ot_json_text(json, "document_boundary", boundary_names[s->about->boundary]);
  }
  ot_json_integer(json, "max_id", scan->max_id);
  ot_json_integer(json, "bytes", s->about->tokens * s->about->token_bytes);
  ot_json_object(json, "meta");
  if (s->origin.found) {
    ot_json_text(json, "tool", s->origin.tool);
    ot_json_text(json, "tokenizer", s->origin.tokenizer);
    ot_json_text(json, "tokenizer_xxh3_128", s->origin.tokenizer_hash);
    ot_json_integer(json, "vocab_size", s->origin.vocab_size);
    ot_json_integer(json, "eod", s->origin.eod);
    ot_json_integer(json, "text_bytes", s->origin.text_bytes);
    ot_json_text(json, "bin_xxh3_128", s->origin.bin_hash);
  }
  ot_json_end(json);
  ot_json_end(json);
  puts(json->text);
}

static ot_status inspect(session *s) {
  ot_token_shard_scan_result scan;
  OT_TRY(ot_token_shard_verify(s->tokens));
  OT_TRY(ot_token_shard_scan(s->tokens, &scan));
  if (s->as_json) {
    inspect_as_json(s, &scan);
    return OT_OK;
  }
  const ot_token_shard_info *const about = s->about;
  printf("format     %s, %s\n", format_names[about->format], about->dtype);
  printf("file       %s, %lld bytes of tokens\n", about->bin_path,
         (long long)(about->tokens * about->token_bytes));
  printf("tokens     %lld, largest id %d\n", (long long)about->tokens, scan.max_id);
  printf("documents  %lld\n", (long long)scan.documents);
  if (!about->idx_path && about->eod >= 0)
    printf("           each %s with id %lld\n",
           about->boundary == OT_BOUNDARY_START ? "begins" : "ends", (long long)about->eod);
  if (!s->origin.found) return OT_OK;
  printf("tokenizer  %s (%s), %lld entries, end of document %lld\n", s->origin.tokenizer,
         s->origin.tokenizer_hash, (long long)s->origin.vocab_size, (long long)s->origin.eod);
  printf("made by    %s from %lld bytes of text\n", s->origin.tool,
         (long long)s->origin.text_bytes);
  return OT_OK;
}

// ---- decode ----

static ot_status open_tokenizer(session *s) {
  const char *const given = ot_options_text(s->options, "tokenizer");
  if (!given && !s->origin.found) {
    ot_fail(OT_USAGE, "%s does not name its tokenizer", s->about->bin_path);
    return ot_fail_hint(OT_USAGE, "name it with --tokenizer");
  }
  OT_TRY(ot_tokenizer_create(given ? given : s->origin.tokenizer, &s->tokenizer));
  if (!s->origin.found) return OT_OK;
  char hash[OT_CONTENT_HASH_BYTES];
  ot_tokenizer_hash(s->tokenizer, hash);
  if (strcmp(hash, s->origin.tokenizer_hash) == 0) return OT_OK;
  if (given) {
    fprintf(stderr, "note: %s is not the tokenizer that made %s\n", given, s->about->bin_path);
    return OT_OK;
  }
  ot_fail(OT_ENVIRONMENT, "%s has changed since it made %s", s->origin.tokenizer,
          s->about->bin_path);
  return ot_fail_hint(OT_ENVIRONMENT, "name the right tokenizer with --tokenizer");
}

static void print_document_json(session *s, int64_t document, bool ended) {
  ot_json_writer *const json = &s->json;
  ot_json_object(json, NULL);
  ot_json_integer(json, "document", document);
  ot_json_boolean(json, "ended", ended);
  ot_json_array(json, "tokens");
  for (int64_t i = 0; i < s->ids.count; i++) ot_json_integer(json, NULL, s->ids.ids[i]);
  ot_json_end(json);
  ot_json_text_bytes(json, "text", (const char *)s->text.data, s->text.length);
  ot_json_end(json);
  fwrite(json->text, 1, (size_t)json->length, stdout);
  json->length = 0;
}

// The text of one document, byte for byte, without its end-of-document id at either end.
static ot_status print_document(void *context, int64_t document, int64_t first, int64_t count) {
  session *const s = context;
  s->ids.count = 0;
  s->text.length = 0;
  OT_TRY(ot_token_list_reserve(&s->ids, count));
  OT_TRY(ot_token_shard_read(s->tokens, first, count, s->ids.ids));
  s->ids.count = count;
  const int64_t eod = s->origin.found ? s->origin.eod : s->about->eod;
  const bool begins = !s->about->idx_path && s->about->boundary == OT_BOUNDARY_START;
  const bool marked = count > 0 && eod >= 0 && s->ids.ids[begins ? 0 : count - 1] == eod;
  const bool ended = marked && !begins;
  const ot_status status =
      ot_tokenizer_decode(s->tokenizer, s->ids.ids + (marked && begins), count - marked, &s->text);
  if (status != OT_OK) {
    return ot_fail(status, "%s: document %lld: %s", s->about->bin_path, (long long)document,
                   ot_fail_message());
  }
  if (s->as_json) {
    print_document_json(s, document, ended);
  } else {
    fwrite(s->text.data, 1, (size_t)s->text.length, stdout);
  }
  return OT_OK;
}

static ot_status decode(session *s) {
  OT_TRY(open_tokenizer(s));
  if (ot_options_given(s->options, "document")) {
    const int64_t document = ot_options_integer(s->options, "document");
    int64_t first, count;
    OT_TRY(ot_token_shard_document(s->tokens, document, &first, &count));
    OT_TRY(print_document(s, document, first, count));
    if (s->as_json) puts("");
    return OT_OK;
  }
  if (s->as_json) ot_json_array(&s->json, NULL);
  OT_TRY(ot_token_shard_each_document(s->tokens, print_document, s));
  if (!s->as_json) return OT_OK;
  ot_json_end(&s->json);
  puts(s->json.text);
  return OT_OK;
}

// ---- the verb ----

static ot_status show(session *s) {
  const char *const action = ot_options_argument(s->options, 0);
  const bool inspects = strcmp(action, "inspect") == 0;
  OT_CHECK(inspects || strcmp(action, "decode") == 0, OT_USAGE,
           "unknown action \"%s\" (orthant data); allowed: inspect, decode", action);
  const int format = ot_options_choice(s->options, "format");
  const ot_token_shard_request request = {
      .path = ot_options_argument(s->options, 1),
      .format = (ot_data_format)format,
      .eod = ot_options_given(s->options, "eod-id") ? ot_options_integer(s->options, "eod-id") : -1,
      .boundary = (ot_document_boundary)ot_options_choice(s->options, "document-boundary"),
  };
  OT_TRY(ot_token_shard_create(&request, &s->tokens));
  s->about = ot_token_shard_describe(s->tokens);
  OT_TRY(ot_shard_origin_read(s->about->bin_path, s->arena, &s->origin));
  s->as_json = ot_options_json(s->options);
  s->json = ot_json_begin(s->arena, 0);
  return inspects ? inspect(s) : decode(s);
}

static ot_status run(const ot_options *options) {
  session s = {.options = options, .arena = ot_options_arena(options)};
  const ot_status status = show(&s);
  ot_token_shard_destroy(&s.tokens);
  ot_tokenizer_destroy(&s.tokenizer);
  ot_token_list_release(&s.ids);
  ot_buffer_release(&s.text);
  return status;
}

static const ot_option rows[] = {
    {"document", OT_OPTION_INTEGER, "N", NULL, 0, INT64_MAX,
     .help = "decode only this document, counted from 0"},
    {"tokenizer", OT_OPTION_PATH, "FILE|bytes",
     .help = "the tokenizer; default: the one that PREFIX.meta.json names"},
    {"format", OT_OPTION_CHOICE, "auto|megatron|llmc|nanogpt|nanogpt32", "auto",
     .help = "format of the shard; auto cannot detect headerless files (nanogpt, 16 or 32 bits)"},
    {"eod-id", OT_OPTION_INTEGER, "ID", NULL, 0, INT32_MAX,
     .help = "end-of-document id in formats without an index"},
    {"document-boundary", OT_OPTION_CHOICE, "auto|end|start", "auto",
     .help = "position of that id in a document; auto: llmc start, nanogpt end"},
};

const ot_verb ot_verb_data = {
    .name = "data",
    .summary = "show a token shard: data inspect PREFIX, data decode PREFIX",
    .arguments = "inspect|decode PREFIX",
    .min_arguments = 2,
    .max_arguments = 2,
    .details =
        "inspect reads every token and prints format, counts, largest id and origin.\n"
        "decode prints the text of all documents, or of one, without their end-of-document ids.",
    .examples =
        "  orthant data inspect data/train\n"
        "  orthant data decode data/train --document 17",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
