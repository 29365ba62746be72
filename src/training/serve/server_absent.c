// SPDX-License-Identifier: Apache-2.0
// A build without libmicrohttpd.
#include "serve/server.h"

ot_status ot_server_create(const ot_server_options *options, ot_service *service, ot_server **out) {
  (void)options;
  (void)service;
  *out = NULL;
  ot_fail(OT_ENVIRONMENT, "this program was built without libmicrohttpd, which serving needs");
  return ot_fail_hint(OT_ENVIRONMENT, "install libmicrohttpd-dev and build again");
}

void ot_server_destroy(ot_server **server, ot_service **service) {
  (void)server;
  ot_service_destroy(service);
}

int ot_server_port(const ot_server *server) {
  (void)server;
  return 0;
}
