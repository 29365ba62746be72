// SPDX-License-Identifier: Apache-2.0
// Functions of libcurl by their names; its header has their types and constants.
#include "distill/http_exchange.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <stdlib.h>

#include "base/text.h"
#include "files/disk.h"
#include "host/shared_library.h"

static const char *const library_names[] = {"libcurl.so.4", "libcurl-gnutls.so.4",
                                            "libcurl.4.dylib"};

typedef struct functions {
  CURL *(*easy_init)(void);
  void (*easy_cleanup)(CURL *);
  CURLcode (*easy_setopt)(CURL *, CURLoption, ...);
  CURLcode (*easy_perform)(CURL *);
  CURLcode (*easy_getinfo)(CURL *, CURLINFO, ...);
  struct curl_slist *(*slist_append)(struct curl_slist *, const char *);
  void (*slist_free_all)(struct curl_slist *);
} functions;

struct ot_http {
  functions call;
  CURL *curl;
  struct curl_slist *headers;
  char why[CURL_ERROR_SIZE];
  ot_buffer *answer;  // of the request under way
  int64_t most_bytes;
};

// ---- the library ----

static ot_status load(functions *to) {
  const ot_symbol symbols[] = {
      {"curl_easy_init", &to->easy_init},           {"curl_easy_cleanup", &to->easy_cleanup},
      {"curl_easy_setopt", &to->easy_setopt},       {"curl_easy_perform", &to->easy_perform},
      {"curl_easy_getinfo", &to->easy_getinfo},     {"curl_slist_append", &to->slist_append},
      {"curl_slist_free_all", &to->slist_free_all},
  };
  void *library = NULL;
  for (int i = 0; i < OT_COUNT(library_names) && !library; i++) {
    library = dlopen(library_names[i], RTLD_NOW | RTLD_LOCAL);
  }
  if (!library) {
    ot_fail(OT_ENVIRONMENT, "libcurl, which asks a server, cannot be loaded: %s", dlerror());
    return ot_fail_hint(OT_ENVIRONMENT, "install libcurl4");
  }
  const char *const missing = ot_symbols_find(library, symbols, OT_COUNT(symbols));
  OT_CHECK(!missing, OT_ENVIRONMENT, "libcurl has no %s", missing);
  return OT_OK;
}

// ---- answers ----

static size_t append(char *bytes, size_t size, size_t count, void *context) {
  ot_http *const http = context;
  const int64_t length = (int64_t)(size * count);
  const bool fits = http->answer->length + length <= http->most_bytes;
  return fits && ot_buffer_append(http->answer, bytes, length) == OT_OK ? size * count : 0;
}

// ---- create ----

// Adds a header; false without memory.
static bool add_header(ot_http *http, const char *text) {
  struct curl_slist *const longer = http->call.slist_append(http->headers, text);
  if (longer) http->headers = longer;
  return longer != NULL;
}

static bool add_headers(ot_http *http, const char *key) {
  char bearer[OT_DISK_LINE_BYTES + 32];
  ot_text_format(bearer, sizeof bearer, "Authorization: Bearer %s", key ? key : "");
  // Without "Expect", which costs a round trip.
  return add_header(http, "Content-Type: application/json") && add_header(http, "Expect:") &&
         (!key || add_header(http, bearer));
}

static ot_status open(ot_http *http, const char *key) {
  functions *const f = &http->call;
  OT_TRY(load(f));
  http->curl = f->easy_init();
  OT_CHECK(http->curl && add_headers(http, key), OT_ENVIRONMENT, "out of memory (HTTP client)");
  f->easy_setopt(http->curl, CURLOPT_NOSIGNAL, 1L);
  f->easy_setopt(http->curl, CURLOPT_PROXY, "");
  f->easy_setopt(http->curl, CURLOPT_PROTOCOLS_STR, "http,https");
  f->easy_setopt(http->curl, CURLOPT_HTTPHEADER, http->headers);
  f->easy_setopt(http->curl, CURLOPT_ERRORBUFFER, http->why);
  f->easy_setopt(http->curl, CURLOPT_WRITEFUNCTION, append);
  f->easy_setopt(http->curl, CURLOPT_WRITEDATA, http);
  return OT_OK;
}

ot_status ot_http_create(const char *key, ot_http **out) {
  ot_http *http = calloc(1, sizeof *http);
  *out = NULL;
  OT_CHECK(http, OT_ENVIRONMENT, "out of memory (HTTP client)");
  const ot_status status = open(http, key);
  if (status != OT_OK) ot_http_destroy(&http);
  *out = http;
  return status;
}

void ot_http_destroy(ot_http **http) {
  if (!http || !*http) return;
  ot_http *const h = *http;
  if (h->headers) h->call.slist_free_all(h->headers);
  if (h->curl) h->call.easy_cleanup(h->curl);
  free(h);
  *http = NULL;
}

// ---- requests ----

ot_status ot_http_exchange(ot_http *http, const ot_http_request *request, ot_buffer *answer,
                           int *code) {
  functions *const f = &http->call;
  const double ms = 1e3 * request->timeout_s;
  long status = 0;
  http->answer = answer;
  http->most_bytes = request->most_bytes;
  http->why[0] = '\0';
  answer->length = 0;
  f->easy_setopt(http->curl, CURLOPT_URL, request->url);
  f->easy_setopt(http->curl, CURLOPT_TIMEOUT_MS, ms < 1 ? 1L : (long)ms);
  if (request->body) {
    const curl_off_t length = ot_text_length(request->body);
    f->easy_setopt(http->curl, CURLOPT_POST, 1L);
    f->easy_setopt(http->curl, CURLOPT_POSTFIELDSIZE_LARGE, length);
    f->easy_setopt(http->curl, CURLOPT_POSTFIELDS, request->body);
  } else {
    f->easy_setopt(http->curl, CURLOPT_HTTPGET, 1L);
  }
  const CURLcode found = f->easy_perform(http->curl);
  if (found == CURLE_OK) f->easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &status);
  OT_CHECK(found != CURLE_WRITE_ERROR, OT_ENVIRONMENT,
           "the answer is longer than the %lld bytes that are allowed (%s)",
           (long long)request->most_bytes, request->url);
  *code = (int)status;
  if (found == CURLE_OK) return OT_OK;
  answer->length = 0;
  return ot_buffer_append_text(answer, http->why[0] ? http->why : "the connection failed");
}
