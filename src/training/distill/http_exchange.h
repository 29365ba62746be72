// SPDX-License-Identifier: Apache-2.0
// A client of HTTP, by libcurl, which is loaded when the first one is created: a program without
// requests does not wait for that library. Proxies and redirections are not followed.
#pragma once

#include <stdint.h>

#include "tokenizer/buffer.h"

typedef struct ot_http ot_http;

// OT_ENVIRONMENT if libcurl cannot be loaded, or this build has none. One thread at a time.
//   key  the bearer key of every request; null: none
ot_status ot_http_create(const char *key, ot_http **out);
void ot_http_destroy(ot_http **http);

typedef struct ot_http_request {
  const char *url;
  const char *body;  // JSON, for POST; null: GET
  double timeout_s;  // until the whole answer is there
  int64_t most_bytes;
} ot_http_request;

// Fills `answer` with the body of what the server says and `code` with its status; 0: no answer,
// and `answer` says why. Keeps the connection for the next request. Blocks.
ot_status ot_http_exchange(ot_http *http, const ot_http_request *request, ot_buffer *answer,
                           int *code);
