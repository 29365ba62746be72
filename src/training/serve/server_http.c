// SPDX-License-Identifier: Apache-2.0
// Connections by libmicrohttpd, with a thread each, which blocks where it has to wait. An exchange
// is one request and its answer; it owns its job. A client with the wrong key or Host is refused at
// once. What else is wrong with the head of a request is said when its body has been received,
// without keeping that, since a client that sends reads no answer.
#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text.h"
#include "files/json_file.h"
#include "host/heap.h"
#include "serve/address.h"
#include "serve/facts.h"
#include "serve/server.h"
#include "serve/service_job.h"

struct ot_server {
  ot_server_options options;
  ot_service *service;
  ot_facts *facts;
  struct MHD_Daemon *daemon;
  int port;
  _Atomic int64_t body_bytes;  // of memory, for all bodies
};

enum {
  CONNECTION_BYTES = 1 << 16,
  STREAM_BYTES = 1 << 14,
  STACK_BYTES = 2 << 20,  // jansson's parser calls itself for each level of nesting, up to 2,048
  LEAST_BODY_BYTES = 1 << 12,
  MOST_BODIES = 4,       // of the largest size: what is received and dropped of one request
  MOST_LISTS = 1 << 14,  // and objects in a body; prompts and messages are fewer
  MESSAGE_BYTES = 512,
  SPARE_FILES = 16,  // for anything but connections
};

// ---- exchanges ----

typedef struct exchange {
  ot_server *server;
  struct MHD_Connection *connection;
  int socket;
  bool is_1_0;         // of HTTP
  bool sends, probed;  // an answer has begun; a client that has closed its end was written to
  ot_buffer body;
  int64_t received;                  // bytes of the body
  int64_t body_bytes, answer_bytes;  // of memory, reserved
  int refused;  // the status of an answer that is certain before the body is read
  char message[MESSAGE_BYTES];
  ot_job *job;
} exchange;

static bool is_reset(int file) {
  struct pollfd state = {.fd = file};
  return poll(&state, 1, 0) == 1 && (state.revents & (POLLERR | POLLHUP)) != 0;
}

// A client that has closed its end may still read (shutdown), or have gone: only a write shows
// that, which one that has gone answers with a reset. Before an answer that is "100 Continue",
// which a client of HTTP/1.1 has to expect at any time (RFC 9110, 15.2). Nothing is to be read
// before the answer, so looking takes nothing.
static bool is_gone(void *context) {
  static const char probe[] = "HTTP/1.1 100 Continue\r\n\r\n";
  exchange *const e = context;
  char byte;
  const ssize_t n = recv(e->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0) return errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
  if (n > 0) return false;
  if (e->sends || e->probed) return is_reset(e->socket);
  e->probed = true;
  if (e->is_1_0 || send(e->socket, probe, sizeof probe - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    return true;
  }
  return is_reset(e->socket);  // one on this machine has answered
}

static void drop_body(exchange *e) {
  ot_buffer_release(&e->body);
  atomic_fetch_sub(&e->server->body_bytes, e->body_bytes);
  ot_service_return(e->server->service, e->body_bytes);
  e->body_bytes = 0;
}

// The connection's time without a byte begins now: waiting for the model does not count. The
// library notes the time when a limit is set where there is none.
static void begin_idle_time(const exchange *e) {
  const unsigned idle_s = (unsigned)e->server->options.idle_s;
  MHD_set_connection_option(e->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
  MHD_set_connection_option(e->connection, MHD_CONNECTION_OPTION_TIMEOUT, idle_s);
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
  e->sends = true;
  begin_idle_time(e);
  return result;
}

// Copies `text`, unless it lives as long as the job.
static enum MHD_Result answer(exchange *e, int code, const char *text, int64_t length,
                              const char *type) {
  return queue(
      e, code,
      MHD_create_response_from_buffer((size_t)length, (void *)(uintptr_t)text,
                                      e->job ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_COPY),
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

// Notes what is wrong; the first such thing counts.
static void doubt(exchange *e, int code, const char *message) {
  if (e->refused) return;
  e->refused = code;
  ot_text_format(e->message, sizeof e->message, "%s", message);
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

static const char *header_of(const exchange *e, const char *name) {
  return MHD_lookup_connection_value(e->connection, MHD_HEADER_KIND, name);
}

static bool has_key(const exchange *e) {
  const char *const key = e->server->options.key;
  if (!key) return true;
  const char *const header = header_of(e, MHD_HTTP_HEADER_AUTHORIZATION);
  return header && strncmp(header, "Bearer ", 7) == 0 && is_key(header + 7, key);
}

// ---- jobs ----

enum { COMPLETION = -1, CHAT = -2, LESSON = -3 };

static ssize_t read_answer(void *context, uint64_t position, char *to, size_t most) {
  (void)position;
  exchange *const e = context;
  const int64_t n = ot_job_read(e->job, to, (int64_t)most);
  begin_idle_time(e);
  return n > 0 ? (ssize_t)n : MHD_CONTENT_READER_END_OF_STREAM;
}

static enum MHD_Result answer_in_parts(exchange *e, const char *type) {
  return queue(
      e, 200,
      MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BYTES, read_answer, e, NULL),
      type);
}

// Blocks until there is something to send.
static enum MHD_Result answer_job(exchange *e) {
  const char *body = NULL;
  int64_t length = 0;
  if (ot_job_streams(e->job)) return answer_in_parts(e, "text/event-stream");
  const int code = ot_job_await(e->job, &body, &length);
  return body ? answer(e, code, body, length, "application/json")
              : answer_in_parts(e, "application/json");
}

static ot_request_body body_of(const exchange *e) {
  const char *const text = e->body.data ? (const char *)e->body.data : "";
  return (ot_request_body){.text = text, .length = e->body.length};
}

static enum MHD_Result submit(exchange *e, int kind) {
  const ot_job_owner owner = {.is_gone = is_gone, .context = e};
  bool busy = false;
  ot_request_body body = body_of(e);
  body.chat = kind == CHAT;
  body.lesson = kind == LESSON;
  const ot_status status = ot_service_submit(e->server->service, &body, &owner, &busy, &e->job);
  drop_body(e);
  if (status == OT_OK) return answer_job(e);
  return refuse(e, busy ? 429 : status == OT_USAGE ? 400 : 500, ot_fail_message());
}

// Answers with `text`, whose memory is reserved until it has been sent.
static enum MHD_Result answer_fact(exchange *e, const char *text, const char *type) {
  const int64_t length = ot_text_length(text);
  const ot_status status = ot_service_reserve(e->server->service, length);
  if (status != OT_OK) return refuse(e, status == OT_USAGE ? 400 : 429, ot_fail_message());
  e->answer_bytes = length;
  return answer(e, 200, text, length, type);
}

static enum MHD_Result show_fact(exchange *e, ot_fact kind) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const char *text = NULL;
  const ot_request_body body = body_of(e);
  const ot_status status = ot_facts_write(e->server->facts, kind, &body, &arena, &text);
  const char *const type =
      kind == OT_FACT_METRICS ? "text/plain; version=0.0.4" : "application/json";
  drop_body(e);
  const enum MHD_Result result = status == OT_OK
                                     ? answer_fact(e, text, type)
                                     : refuse(e, status == OT_USAGE ? 400 : 429, ot_fail_message());
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
  if (e->refused) return refuse(e, e->refused, e->message);
  for (int i = 0; i < OT_COUNT(routes); i++) {
    const route *const r = &routes[i];
    if (strcmp(path, r->path) != 0) continue;
    if (strcmp(method, r->posts ? "POST" : "GET") != 0) {
      return refuse(e, 405, r->posts ? "use POST" : "use GET");
    }
    const ot_request_body body = body_of(e);
    if (ot_json_check_lists("the request", body.text, body.length, MOST_LISTS) != OT_OK) {
      return refuse(e, 400, ot_fail_message());
    }
    return r->fact < 0 ? submit(e, r->fact) : show_fact(e, (ot_fact)r->fact);
  }
  return refuse(e, 404, "there is nothing at this path");
}

// ---- the head of a request ----

// A page of a stranger reaches a server by a name of its own (serve/address.h), but has no key.
static void check_host(exchange *e) {
  const ot_server_options *const o = &e->server->options;
  const char *const host = header_of(e, MHD_HTTP_HEADER_HOST);
  if (o->key || !host || ot_address_is_named(host, o->host, o->names)) return;
  char message[MESSAGE_BYTES];
  ot_text_format(
      message, sizeof message,
      "the Host of the request, %.100s, is not a name of this server: use its address, or "
      "allow the name with --allow-host, or set --api-key",
      host);
  doubt(e, 403, message);
}

// A page may send other types to any address, without asking the server first.
static void check_type(exchange *e, const char *method) {
  static const char json[] = "application/json";
  const char *const type = header_of(e, MHD_HTTP_HEADER_CONTENT_TYPE);
  if (strcmp(method, "POST") != 0) return;
  if (!type || strncasecmp(type, json, sizeof json - 1) != 0 ||
      !strchr("; \t", type[sizeof json - 1])) {
    doubt(e, 415, "the request needs the header \"Content-Type: application/json\"");
  }
}

static void doubt_size(exchange *e) {
  char message[MESSAGE_BYTES];
  ot_text_format(message, sizeof message, "the body of the request has more than %lld bytes",
                 (long long)e->server->options.most_body_bytes);
  doubt(e, 413, message);
}

// Whether the body is too long even to be received and dropped.
static bool check_length(exchange *e) {
  const char *const text = header_of(e, MHD_HTTP_HEADER_CONTENT_LENGTH);
  const unsigned long long length = text ? strtoull(text, NULL, 10) : 0;
  const unsigned long long most = (unsigned long long)e->server->options.most_body_bytes;
  if (length > most) doubt_size(e);
  return length <= MOST_BODIES * most;
}

static enum MHD_Result begin(ot_server *server, struct MHD_Connection *connection,
                             const char *method, const char *version, void **context) {
  exchange *const e = calloc(1, sizeof *e);
  if (!e) return MHD_NO;
  const union MHD_ConnectionInfo *const info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  e->server = server;
  e->connection = connection;
  e->socket = info ? info->connect_fd : -1;
  e->is_1_0 = strcmp(version, MHD_HTTP_VERSION_1_0) == 0;
  *context = e;
  check_host(e);
  if (!has_key(e)) doubt(e, 401, "the key is missing or wrong");
  if (e->refused || !check_length(e)) return refuse(e, e->refused, e->message);
  check_type(e, method);
  return MHD_YES;
}

// ---- the body ----

// All bodies may have half of the memory: requests whose ends never come do not keep others from
// being answered.
static ot_status reserve_body_bytes(ot_server *server, int64_t bytes) {
  const int64_t most = ot_service_options_of(server->service)->memory_bytes / 2;
  const int64_t all = atomic_fetch_add(&server->body_bytes, bytes) + bytes;
  const ot_status status =
      all <= most ? ot_service_reserve(server->service, bytes)
                  : ot_fail(OT_ENVIRONMENT,
                            "requests that are being received hold more than %lld bytes, half of "
                            "--request-memory; try again later",
                            (long long)most);
  if (status != OT_OK) atomic_fetch_sub(&server->body_bytes, bytes);
  return status;
}

// Reserves what the body will have allocated.
static ot_status reserve_body(exchange *e) {
  int64_t wanted = e->body_bytes > 0 ? e->body_bytes : LEAST_BODY_BYTES;
  while (wanted < e->received) wanted *= 2;
  if (wanted == e->body_bytes) return OT_OK;
  OT_TRY(reserve_body_bytes(e->server, wanted - e->body_bytes));
  e->body_bytes = wanted;
  return OT_OK;
}

// False: the connection is to be closed.
static bool receive_body(exchange *e, const char *data, size_t size) {
  const int64_t most = e->server->options.most_body_bytes;
  e->received += (int64_t)size;
  if (e->received > MOST_BODIES * most) return false;
  if (e->received > most) doubt_size(e);
  if (!e->refused &&
      (reserve_body(e) != OT_OK || ot_buffer_append(&e->body, data, (int64_t)size) != OT_OK)) {
    doubt(e, 429, ot_fail_message());
  }
  if (e->refused) drop_body(e);
  return true;
}

static enum MHD_Result handle(void *server, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *data,
                              size_t *size, void **context) {
  exchange *const e = *context;
  if (!e) return begin(server, connection, method, version, context);
  if (*size > 0) {
    if (!receive_body(e, data, *size)) return MHD_NO;
    *size = 0;
    return MHD_YES;
  }
  return e->sends ? MHD_YES : dispatch(e, path, method);
}

static void end(void *server, struct MHD_Connection *connection, void **context,
                enum MHD_RequestTerminationCode code) {
  (void)server;
  (void)connection;
  (void)code;
  exchange *const e = *context;
  if (!e) return;
  ot_job_release(&e->job);
  drop_body(e);
  ot_service_return(e->server->service, e->answer_bytes);
  free(e);
  *context = NULL;
}

// ---- the server ----

// Each connection is an open file, of which the process may have so many, and select() so many; at
// the limit the library would try without pause to accept the next one. Every file below
// `listening` is open already.
static unsigned most_connections(const ot_server *server, int listening) {
  struct rlimit files;
  const unsigned wanted = (unsigned)server->options.most_connections;
  const unsigned used = (unsigned)listening + 1 + SPARE_FILES;
  unsigned most = FD_SETSIZE;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < most)
    most = (unsigned)files.rlim_cur;
  const unsigned left = most > used ? most - used : 1;
  return left < wanted ? left : wanted;
}

static ot_status start(ot_server *server) {
  const ot_server_options *const o = &server->options;
  int listening = -1;
  OT_TRY(ot_address_listen(o->host, o->port, &listening));
  server->port = ot_address_port(listening);
  // By select(), since with poll() clients above the limit are not left waiting but cut off.
  const unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION;
  server->daemon = MHD_start_daemon(
      flags, 0, NULL, NULL, handle, server, MHD_OPTION_LISTEN_SOCKET, listening,
      MHD_OPTION_CONNECTION_LIMIT, most_connections(server, listening),
      MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)o->idle_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
      (size_t)CONNECTION_BYTES, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES,
      MHD_OPTION_NOTIFY_COMPLETED, end, NULL, MHD_OPTION_END);
  if (!server->daemon) close(listening);
  OT_CHECK(server->daemon, OT_ENVIRONMENT, "cannot start a thread for connections: %s",
           strerror(errno));
  return OT_OK;
}

ot_status ot_server_create(const ot_server_options *options, ot_service *service, ot_server **out) {
  ot_server *const server = calloc(1, sizeof *server);
  *out = server;
  OT_CHECK(server, OT_ENVIRONMENT, "out of memory");
  server->options = *options;
  server->service = service;
  ot_status status = ot_facts_create(service, options->step, &server->facts);
  if (status == OT_OK) status = start(server);
  if (status != OT_OK) {
    ot_facts_destroy(&server->facts);
    free(server);
    *out = NULL;
  }
  return status;
}

// Threads of connections wait for jobs: the service ends those first.
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

int ot_server_port(const ot_server *server) { return server->port; }
