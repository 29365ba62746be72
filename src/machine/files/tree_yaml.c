// SPDX-License-Identifier: Apache-2.0
// YAML through libfyaml's events: unlike its documents, they have the place of every value and take
// time linear in the text.
#include <libfyaml.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "base/text.h"
#include "files/tree_file.h"

typedef struct builder {
  const ot_tree_origin *origin;
  ot_arena *arena;
  struct fy_parser *parser;
  ot_node *open[OT_TREE_DEPTH_MAX];            // collections under construction
  const char *key[OT_TREE_DEPTH_MAX];          // of a map: the key whose value follows, or null
  struct fy_mark key_mark[OT_TREE_DEPTH_MAX];  // its position
  int64_t children[OT_TREE_DEPTH_MAX];
  int depth;
  int values;
  int documents;
  ot_node *root;
} builder;

static ot_status fail_at(const builder *b, const struct fy_mark *mark, const char *what) {
  if (!mark) return ot_fail(OT_USAGE, "%s (%s)", what, b->origin->name);
  return ot_fail(OT_USAGE, "%s (%s:%d:%d)", what, b->origin->name, mark->line + 1,
                 mark->column + 1);
}

static const struct fy_mark *mark_of(struct fy_event *event) { return fy_event_start_mark(event); }

// libfyaml's mark of a quoted text is after its quote.
static bool is_quoted(struct fy_event *event) {
  if (event->type != FYET_SCALAR) return false;
  const enum fy_scalar_style style = fy_token_scalar_style(event->scalar.value);
  return style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED;
}

static ot_node *create(builder *b, struct fy_event *event, ot_node_kind kind) {
  ot_node *const node = ot_node_create(b->arena, kind);
  const struct fy_mark *const mark = mark_of(event);
  node->source = b->origin->name;
  node->directory = b->origin->directory;
  node->line = mark ? mark->line + 1 : 0;
  node->column = mark ? mark->column + (is_quoted(event) ? 0 : 1) : 0;
  return node;
}

// Adds a finished or begun node at the current position of the event stream.
static ot_status place(builder *b, struct fy_event *event, ot_node *node) {
  if (++b->values > OT_TREE_VALUES_MAX) return fail_at(b, mark_of(event), "more than 65536 values");
  if (b->depth == 0) {
    if (b->root) return fail_at(b, mark_of(event), "more than one YAML document");
    b->root = node;
    return OT_OK;
  }
  const int top = b->depth - 1;
  ot_node *const parent = b->open[top];
  if (parent->kind == OT_NODE_LIST) {
    ot_node_append(parent, node);
    return OT_OK;
  }
  if (!b->key[top]) return fail_at(b, mark_of(event), "a key must be plain text");
  if (node->column == 0) {
    // A value without text (`key:`) gets the place of its key.
    node->line = b->key_mark[top].line + 1;
    node->column = b->key_mark[top].column + 1;
  }
  ot_node_put(b->arena, parent, b->key[top], node);
  b->key[top] = NULL;
  return OT_OK;
}

static ot_status read_key(builder *b, struct fy_event *event, const char *text) {
  const int top = b->depth - 1;
  const ot_node *const same = ot_node_child(b->open[top], text);
  if (same) {
    return fail_at(
        b, mark_of(event),
        ot_arena_format(b->arena, "duplicate key \"%.200s\", first at line %d", text, same->line));
  }
  if (++b->children[top] > OT_TREE_KEYS_MAX) {
    return fail_at(b, mark_of(event), "more than 5000 keys in one map");
  }
  b->key[top] = text;
  if (mark_of(event)) b->key_mark[top] = *mark_of(event);
  return OT_OK;
}

static ot_status read_scalar(builder *b, struct fy_event *event) {
  size_t length = 0;
  const char *const text = fy_token_get_text(event->scalar.value, &length);
  const bool plain = fy_token_scalar_style(event->scalar.value) == FYSS_PLAIN;
  char *const copy = ot_arena_text(b->arena, text ? text : "", text ? (int64_t)length : 0);
  if (strlen(copy) != length) return fail_at(b, mark_of(event), "a text with a zero byte");
  const bool in_map = b->depth > 0 && b->open[b->depth - 1]->kind == OT_NODE_MAP;
  if (in_map && !b->key[b->depth - 1]) return read_key(b, event, copy);
  const bool is_null =
      plain && (length == 0 || strcmp(copy, "~") == 0 || strcmp(copy, "null") == 0 ||
                strcmp(copy, "Null") == 0 || strcmp(copy, "NULL") == 0);
  ot_node *const node = create(b, event, is_null ? OT_NODE_NULL : OT_NODE_SCALAR);
  node->text = is_null ? NULL : copy;
  node->quoted = !plain;
  // Versions of libfyaml differ in whether a value without text has a place.
  if (plain && length == 0) node->column = 0;
  return place(b, event, node);
}

static ot_status begin(builder *b, struct fy_event *event, ot_node_kind kind) {
  if (b->depth == OT_TREE_DEPTH_MAX) {
    return fail_at(b, mark_of(event), "lists and maps nest more than 64 deep");
  }
  ot_node *const node = create(b, event, kind);
  OT_TRY(place(b, event, node));
  b->open[b->depth] = node;
  b->key[b->depth] = NULL;
  b->children[b->depth] = 0;
  b->depth++;
  return OT_OK;
}

static ot_status refuse_decoration(builder *b, struct fy_event *event, struct fy_token *anchor,
                                   struct fy_token *tag) {
  if (anchor) return fail_at(b, mark_of(event), "anchors (&name) are not supported");
  if (tag) return fail_at(b, mark_of(event), "tags (!name) are not supported");
  return OT_OK;
}

static ot_status read_event(builder *b, struct fy_event *event) {
  switch (event->type) {
    case FYET_SCALAR:
      OT_TRY(refuse_decoration(b, event, event->scalar.anchor, event->scalar.tag));
      return read_scalar(b, event);
    case FYET_MAPPING_START:
      OT_TRY(refuse_decoration(b, event, event->mapping_start.anchor, event->mapping_start.tag));
      return begin(b, event, OT_NODE_MAP);
    case FYET_SEQUENCE_START:
      OT_TRY(refuse_decoration(b, event, event->sequence_start.anchor, event->sequence_start.tag));
      return begin(b, event, OT_NODE_LIST);
    case FYET_MAPPING_END:
    case FYET_SEQUENCE_END:
      b->depth--;
      return OT_OK;
    case FYET_ALIAS:
      return fail_at(b, mark_of(event), "aliases (*name) are not supported");
    case FYET_DOCUMENT_START:
      if (b->documents++ > 0) return fail_at(b, mark_of(event), "more than one YAML document");
      return OT_OK;
    default:
      return OT_OK;
  }
}

// Reports the parser's first error.
static ot_status malformed(const builder *b, struct fy_diag *diagnostics) {
  void *iterator = NULL;
  const struct fy_diag_error *const error = fy_diag_errors_iterate(diagnostics, &iterator);
  if (!error) return ot_fail(OT_USAGE, "not valid YAML (%s)", b->origin->name);
  return ot_fail(OT_USAGE, "not valid YAML: %s (%s:%d:%d)", error->msg, b->origin->name,
                 error->line > 0 ? error->line : 1, error->column > 0 ? error->column : 1);
}

static ot_status build(builder *b, struct fy_diag *diagnostics) {
  for (struct fy_event *event; (event = fy_parser_parse(b->parser)) != NULL;) {
    const ot_status status = read_event(b, event);
    fy_parser_event_free(b->parser, event);
    OT_TRY(status);
  }
  if (fy_parser_get_stream_error(b->parser)) return malformed(b, diagnostics);
  void *iterator = NULL;
  if (fy_diag_errors_iterate(diagnostics, &iterator)) return malformed(b, diagnostics);
  return OT_OK;
}

// libfyaml accepts control characters that YAML 1.2 (5.1) forbids, and silently ends a plain text
// at a byte that is not UTF-8.
static ot_status check_characters(const ot_tree_origin *origin, const char *text, int64_t bytes) {
  int line = 1;
  int column = 1;
  int64_t commas = 0;
  for (int64_t i = 0; i < bytes; column++) {
    const unsigned char c = (unsigned char)text[i];
    const bool control = (c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f;
    utf8proc_int32_t point;
    const utf8proc_ssize_t width =
        utf8proc_iterate((const utf8proc_uint8_t *)text + i, bytes - i, &point);
    OT_CHECK(!control && width > 0, OT_USAGE, "not valid YAML: byte 0x%02x is not text (%s:%d:%d)",
             c, origin->name, line, column);
    // libfyaml keeps a list in brackets whole, at 200 bytes a value, before its first event.
    commas += c == ',';
    OT_CHECK(commas < 2 * OT_TREE_VALUES_MAX, OT_USAGE, "more than %d commas (%s:%d:%d)",
             2 * OT_TREE_VALUES_MAX - 1, origin->name, line, column);
    i += width;
    if (c != '\n') continue;
    line++;
    column = 0;
  }
  return OT_OK;
}

static ot_status parse(builder *b, struct fy_diag *diagnostics, const char *text, int64_t bytes) {
  const struct fy_parse_cfg settings = {
      .flags = FYPCF_QUIET | FYPCF_DEFAULT_VERSION_1_2 | FYPCF_JSON_NONE,
      .diag = diagnostics,
  };
  b->parser = fy_parser_create(&settings);
  OT_CHECK(b->parser, OT_ENVIRONMENT, "cannot create a YAML parser (out of memory?)");
  ot_status status = OT_OK;
  if (fy_parser_set_string(b->parser, text, (size_t)bytes) != 0) {
    status = ot_fail(OT_ENVIRONMENT, "cannot start the YAML parser (%s)", b->origin->name);
  } else {
    status = build(b, diagnostics);
  }
  fy_parser_destroy(b->parser);
  return status;
}

ot_status ot_tree_parse_yaml(const ot_tree_origin *origin, const char *text, int64_t bytes,
                             ot_arena *arena, ot_node **out) {
  OT_CHECK(bytes <= OT_TREE_BYTES_MAX, OT_USAGE, "%lld bytes of YAML; allowed: up to %d (%s)",
           (long long)bytes, OT_TREE_BYTES_MAX, origin->name);
  OT_TRY(check_characters(origin, text, bytes));
  struct fy_diag_cfg quiet;
  fy_diag_cfg_default(&quiet);
  quiet.fp = NULL;
  struct fy_diag *const diagnostics = fy_diag_create(&quiet);
  OT_CHECK(diagnostics, OT_ENVIRONMENT, "cannot create a YAML parser (out of memory?)");
  fy_diag_set_collect_errors(diagnostics, true);
  builder b = {.origin = origin, .arena = arena};
  const ot_status status = parse(&b, diagnostics, text, bytes);
  fy_diag_destroy(diagnostics);
  OT_TRY(status);
  *out = b.root;
  if (!b.root || b.root->kind == OT_NODE_NULL) {
    *out = ot_node_create(arena, OT_NODE_MAP);
    (*out)->source = origin->name;
    (*out)->directory = origin->directory;
  }
  return OT_OK;
}
