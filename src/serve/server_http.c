// SPDX-License-Identifier: Apache-2.0
// Connections by libmicrohttpd. An exchange is one request and its answer; it owns its job, and a
// connection that waits is suspended until the engine's thread wakes it.
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text.h"
#include "host/heap.h"
#include "serve/facts.h"
#include "serve/server.h"
#include "serve/service_job.h"

struct ot_server {
  ot_server_options options;
  ot_service *service;
  ot_facts *facts;
  struct MHD_Daemon *daemon;
};

enum { CONNECTION_BYTES = 1 << 16, STREAM_BYTES = 1 << 14 };

// ---- exchanges ----

typedef struct exchange {
  ot_server *server;
  struct MHD_Connection *connection;
  int socket;
  ot_buffer body;
  bool too_large, answered;
  ot_job *job;
} exchange;

static void resume(void *context) { MHD_resume_connection(((exchange *)context)->connection); }

// The peer has closed its end. Nothing is to be read before the answer, so looking takes nothing.
static bool is_gone(void *context) {
  char byte;
  const ssize_t n = recv(((exchange *)context)->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static enum MHD_Result queue(exchange *e, int code, struct MHD_Response *response,
                             const char *type) {
  if (!response) return MHD_NO;
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
  MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
  if (code == 401) MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
  if (code == 429 || code == 503) {
    MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
  }
  const enum MHD_Result result = MHD_queue_response(e->connection, (unsigned)code, response);
  MHD_destroy_response(response);
  e->answered = true;
  return result;
}

static enum MHD_Result answer(exchange *e, int code, const char *text, int64_t length,
                              const char *type) {
  return queue(e, code,
               MHD_create_response_from_buffer((size_t)length, (void *)(uintptr_t)text,
                                               MHD_RESPMEM_MUST_COPY),
               type);
}

static enum MHD_Result refuse(exchange *e, int code, const char *message) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const char *const text = ot_answer_error(&arena, code, message);
  const enum MHD_Result result = answer(e, code, text, ot_text_length(text), "application/json");
  ot_heap_release(&heap);
  return result;
}

// ---- the key ----

// Compares all bytes, so that the time tells nothing about the key.
static bool is_key(const char *given, const char *key) {
  const size_t length = strlen(key);
  unsigned char differs = strlen(given) != length;
  for (size_t i = 0; i < length && !(differs && strlen(given) < length); i++) {
    differs |= (unsigned char)(given[i] ^ key[i]);
  }
  return !differs;
}

static bool is_allowed(const exchange *e) {
  const char *const key = e->server->options.key;
  if (!key) return true;
  const char *const header =
      MHD_lookup_connection_value(e->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
  return header && strncmp(header, "Bearer ", 7) == 0 && is_key(header + 7, key);
}

// ---- jobs ----

enum { COMPLETION = -1, CHAT = -2, LESSON = -3 };

static ssize_t read_stream(void *context, uint64_t position, char *to, size_t most) {
  (void)position;
  exchange *const e = context;
  bool done = false;
  const int64_t n = ot_job_read(e->job, to, (int64_t)most, &done);
  if (n > 0) return (ssize_t)n;
  if (done) return MHD_CONTENT_READER_END_OF_STREAM;
  MHD_suspend_connection(e->connection);
  return 0;
}

// Answers once the job is done; until then the connection is suspended.
static enum MHD_Result continue_job(exchange *e) {
  const char *body = NULL;
  int64_t length = 0;
  int code = 200;
  if (ot_job_streams(e->job)) {
    return queue(
        e, 200,
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BYTES, read_stream, e, NULL),
        "text/event-stream");
  }
  if (ot_job_answer(e->job, &body, &length, &code)) {
    return answer(e, code, body ? body : "", length, "application/json");
  }
  MHD_suspend_connection(e->connection);
  return MHD_YES;
}

static ot_request_body body_of(const exchange *e) {
  const char *const text = e->body.data ? (const char *)e->body.data : "";
  return (ot_request_body){.text = text, .length = e->body.length};
}

static enum MHD_Result submit(exchange *e, int kind) {
  const ot_job_owner owner = {.wake = resume, .is_gone = is_gone, .context = e};
  bool busy = false;
  ot_request_body body = body_of(e);
  body.chat = kind == CHAT;
  body.lesson = kind == LESSON;
  const ot_status status = ot_service_submit(e->server->service, &body, &owner, &busy, &e->job);
  if (status != OT_OK) return refuse(e, status == OT_USAGE ? 400 : 500, ot_fail_message());
  if (busy) return refuse(e, 429, "too many requests wait");
  return continue_job(e);
}

static enum MHD_Result show_fact(exchange *e, ot_fact kind) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const char *text = NULL;
  const ot_request_body body = body_of(e);
  const ot_status status = ot_facts_write(e->server->facts, kind, &body, &arena, &text);
  const char *const type =
      kind == OT_FACT_METRICS ? "text/plain; version=0.0.4" : "application/json";
  const enum MHD_Result result = status == OT_OK
                                     ? answer(e, 200, text, ot_text_length(text), type)
                                     : refuse(e, status == OT_USAGE ? 400 : 500, ot_fail_message());
  ot_heap_release(&heap);
  return result;
}

// ---- routes ----

typedef struct route {
  const char *path;
  bool posts;  // else GET
  int fact;    // an ot_fact, or a job
} route;

static const route routes[] = {
    {"/v1/completions", true, COMPLETION},   {"/v1/chat/completions", true, CHAT},
    {"/v1/teacher", false, OT_FACT_TEACHER}, {"/v1/teacher/targets", true, LESSON},
    {"/tokenize", true, OT_FACT_TOKENIZE},   {"/detokenize", true, OT_FACT_DETOKENIZE},
    {"/v1/models", false, OT_FACT_MODELS},   {"/tokenizer_info", false, OT_FACT_TOKENIZER},
    {"/health", false, OT_FACT_HEALTH},      {"/metrics", false, OT_FACT_METRICS},
};

static enum MHD_Result dispatch(exchange *e, const char *path, const char *method) {
  if (e->too_large) return refuse(e, 413, "the request is too large");
  for (int i = 0; i < OT_COUNT(routes); i++) {
    const route *const r = &routes[i];
    if (strcmp(path, r->path) != 0) continue;
    if (strcmp(method, r->posts ? "POST" : "GET") != 0) {
      return refuse(e, 405, r->posts ? "use POST" : "use GET");
    }
    return r->fact < 0 ? submit(e, r->fact) : show_fact(e, (ot_fact)r->fact);
  }
  return refuse(e, 404, "there is nothing at this path");
}

static enum MHD_Result begin(ot_server *server, struct MHD_Connection *connection, void **context) {
  exchange *const e = calloc(1, sizeof *e);
  if (!e) return MHD_NO;
  const union MHD_ConnectionInfo *const info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  e->server = server;
  e->connection = connection;
  e->socket = info ? info->connect_fd : -1;
  *context = e;
  return is_allowed(e) ? MHD_YES : refuse(e, 401, "the key is missing or wrong");
}

static void take_body(exchange *e, const char *data, size_t size) {
  const int64_t most = e->server->options.most_body_bytes;
  e->too_large |= e->body.length + (int64_t)size > most;
  if (!e->too_large && ot_buffer_append(&e->body, data, (int64_t)size) != OT_OK) {
    e->too_large = true;
  }
}

static enum MHD_Result handle(void *server, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *data,
                              size_t *size, void **context) {
  (void)version;
  exchange *const e = *context;
  if (!e) return begin(server, connection, context);
  if (*size > 0) {
    take_body(e, data, *size);
    *size = 0;
    return MHD_YES;
  }
  if (e->answered) return MHD_YES;
  return e->job ? continue_job(e) : dispatch(e, path, method);
}

static void end(void *server, struct MHD_Connection *connection, void **context,
                enum MHD_RequestTerminationCode code) {
  (void)server;
  (void)connection;
  (void)code;
  exchange *const e = *context;
  if (!e) return;
  ot_job_release(&e->job);
  ot_buffer_release(&e->body);
  free(e);
  *context = NULL;
}

// ---- the server ----

static ot_status parse_address(const ot_server_options *o, struct sockaddr_storage *to,
                               bool *is_v6) {
  struct sockaddr_in *const v4 = (struct sockaddr_in *)to;
  struct sockaddr_in6 *const v6 = (struct sockaddr_in6 *)to;
  memset(to, 0, sizeof *to);
  const char *const host = strcmp(o->host, "localhost") == 0 ? "127.0.0.1" : o->host;
  *is_v6 = strchr(host, ':') != NULL;
  if (*is_v6) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)o->port);
  } else {
    v4->sin_family = AF_INET;
    v4->sin_port = htons((uint16_t)o->port);
  }
  const int parsed =
      *is_v6 ? inet_pton(AF_INET6, host, &v6->sin6_addr) : inet_pton(AF_INET, host, &v4->sin_addr);
  OT_CHECK(parsed == 1, OT_USAGE, "%s is not an address, such as 127.0.0.1 or ::1", o->host);
  return OT_OK;
}

static ot_status start(ot_server *server) {
  const ot_server_options *const o = &server->options;
  struct sockaddr_storage address;
  bool is_v6 = false;
  OT_TRY(parse_address(o, &address, &is_v6));
  const unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO | MHD_ALLOW_SUSPEND_RESUME |
                         (is_v6 ? MHD_USE_IPv6 : 0u);
  server->daemon = MHD_start_daemon(flags, (uint16_t)o->port, NULL, NULL, handle, server,
                                    MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_CONNECTION_LIMIT,
                                    (unsigned)o->most_connections, MHD_OPTION_CONNECTION_TIMEOUT,
                                    (unsigned)o->idle_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                    (size_t)CONNECTION_BYTES, MHD_OPTION_LISTENING_ADDRESS_REUSE,
                                    1u, MHD_OPTION_NOTIFY_COMPLETED, end, NULL, MHD_OPTION_END);
  OT_CHECK(server->daemon, OT_ENVIRONMENT, "cannot listen at %s port %d: %s", o->host, o->port,
           strerror(errno));
  return OT_OK;
}

ot_status ot_server_create(const ot_server_options *options, ot_service *service, ot_server **out) {
  ot_server *const server = calloc(1, sizeof *server);
  *out = server;
  OT_CHECK(server, OT_ENVIRONMENT, "out of memory");
  server->options = *options;
  server->service = service;
  ot_status status = ot_facts_create(service, options->tokenizer, options->step, &server->facts);
  if (status == OT_OK) status = start(server);
  if (status != OT_OK) {
    ot_facts_destroy(&server->facts);
    free(server);
    *out = NULL;
  }
  return status;
}

// Suspended connections must be resumed before the daemon ends: the service ends their jobs, which
// wakes them.
void ot_server_destroy(ot_server **server, ot_service **service) {
  if (!server || !*server) {
    ot_service_destroy(service);
    return;
  }
  ot_server *const s = *server;
  const MHD_socket listening = MHD_quiesce_daemon(s->daemon);
  ot_service_stop(*service);
  MHD_stop_daemon(s->daemon);
  if (listening != MHD_INVALID_SOCKET) close(listening);
  ot_service_destroy(service);
  ot_facts_destroy(&s->facts);
  free(s);
  *server = NULL;
}

int ot_server_port(const ot_server *server) {
  const union MHD_DaemonInfo *const info =
      MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);
  return info ? info->port : server->options.port;
}
