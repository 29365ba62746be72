// SPDX-License-Identifier: Apache-2.0
// A build without libcurl.
#include <stddef.h>

#include "distill/http_exchange.h"

ot_status ot_http_create(const char *key, ot_http **out) {
  (void)key;
  *out = NULL;
  ot_fail(OT_ENVIRONMENT, "this program was built without libcurl, which asks a server");
  return ot_fail_hint(OT_ENVIRONMENT, "install libcurl4-openssl-dev and build again");
}

void ot_http_destroy(ot_http **http) { *http = NULL; }

ot_status ot_http_exchange(ot_http *http, const ot_http_request *request, ot_buffer *answer,
                           int *code) {
  (void)http, (void)request, (void)answer;
  *code = 0;
  return OT_OK;
}
