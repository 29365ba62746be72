// SPDX-License-Identifier: Apache-2.0
// A server of a tiny model on the loopback, and questions to it, for tests of serve/. A test uses
// the arena of support/arena_fixture.h.
#pragma once

#include <jansson.h>

#include "base/arena.h"
#include "serve/server.h"

enum { SITE_POSITIONS = 64, SITE_BODY_BYTES = 1 << 18 };

typedef struct site_options {
  const char *key;       // null: none
  int64_t most_waiting;  // 0: 100
  int64_t memory_bytes;  // 0: 64 MiB
  int idle_s;            // 0: 30
} site_options;

typedef struct site {
  ot_model model;
  ot_runtime *runtime;
  ot_tokenizer *tokenizer;  // of bytes
  ot_service *service;
  ot_server *server;
  int port;
} site;

// `options` may be null. Skips the test in a build without libmicrohttpd.
site open_site(const site_options *options);
void close_site(site *s);

// The options of the server, at the port of `s`.
ot_server_options site_server_options(const site *s, const site_options *options);

// The document `text`, which lives until the site is closed.
json_t *parse(const char *text);

// The answer to a request on a connection of its own, whose status has to be `want`. A null `body`:
// GET. `headers` are whole lines.
json_t *ask_with(const site *s, const char *headers, const char *path, const char *body, int want);
json_t *ask(const site *s, const char *path, const char *body, int want);

// A member by its path, "choices.0.text", or null.
json_t *member(const json_t *object, const char *path);
void expect_text(const json_t *object, const char *path, const char *want);

// Removes the sizes of chunks from an answer of http_receive.
void join_chunks(char *text);
