// SPDX-License-Identifier: Apache-2.0
// A service over HTTP, in the form of the OpenAI API:
//   POST /v1/completions  /v1/chat/completions  /tokenize  /detokenize
//   GET  /v1/models  /tokenizer_info  /health  /metrics
// and for runs that learn from a teacher GET /v1/teacher, POST
// /v1/teacher/targets.
// Each connection has a thread (libmicrohttpd), which reads, encodes and writes; the service's
// thread computes. Nothing but the model can be read.
#pragma once

#include "serve/service.h"

typedef struct ot_server ot_server;

typedef struct ot_server_options {
  const char *host;  // an address of this machine, in digits
  int port;          // 0: any that is free
  const char *key;   // the bearer key of every request; null: none
  const char
      *names;  // that requests may have as their Host without a key (serve/address.h), or null
  int most_connections;
  int64_t most_body_bytes;
  int idle_s;    // until a connection on which nothing happens is closed
  int64_t step;  // of the checkpoint
} ot_server_options;

// Listens and answers. Keeps what `options` refers to and `service`. OT_ENVIRONMENT if the port is
// in use, or this build has no libmicrohttpd.
ot_status ot_server_create(const ot_server_options *options, ot_service *service, ot_server **out);

// Stops listening, then ends the service and all connections.
void ot_server_destroy(ot_server **server, ot_service **service);

int ot_server_port(const ot_server *server);
