// SPDX-License-Identifier: Apache-2.0
// The socket is made here and not by the library for HTTP, which lets several servers share a port.
#include "serve/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text.h"

enum { NAME_BYTES = 256, BACKLOG = 511 };

typedef union address {
  struct sockaddr any;
  struct sockaddr_in v4;
  struct sockaddr_in6 v6;
} address;

// False if `host` is not an address in digits.
static bool parse(const char *host, int port, address *to) {
  memset(to, 0, sizeof *to);
  if (inet_pton(AF_INET, host, &to->v4.sin_addr) == 1) {
    to->v4.sin_family = AF_INET;
    to->v4.sin_port = htons((uint16_t)port);
    return true;
  }
  to->v6.sin6_family = AF_INET6;
  to->v6.sin6_port = htons((uint16_t)port);
  return inet_pton(AF_INET6, host, &to->v6.sin6_addr) == 1;
}

static const char *digits_of(const char *host) {
  return strcasecmp(host, "localhost") == 0 ? "127.0.0.1" : host;
}

// ---- listening ----

static bool begin_to_listen(int file, const address *at) {
  const int on = 1, off = 0;
  const bool is_v6 = at->any.sa_family == AF_INET6;
  const int flags = fcntl(file, F_GETFL);
  // A port whose last connections have just ended may be used again, one with a server may not.
  return setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
         (!is_v6 || setsockopt(file, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0) &&
         fcntl(file, F_SETFD, FD_CLOEXEC) == 0 && fcntl(file, F_SETFL, flags | O_NONBLOCK) == 0 &&
         bind(file, &at->any, is_v6 ? sizeof at->v6 : sizeof at->v4) == 0 &&
         listen(file, BACKLOG) == 0;
}

static ot_status refuse(const char *host, int port, int why) {
  if (why == EADDRINUSE) {
    ot_fail(OT_ENVIRONMENT, "port %d of %s is in use by another program", port, host);
    return ot_fail_hint(OT_ENVIRONMENT,
                        "`ss -ltnp sport = :%d` shows which; end it, or choose another port with "
                        "--port (0: any that is free)",
                        port);
  }
  ot_fail(OT_ENVIRONMENT, "cannot listen at %s port %d: %s", host, port, strerror(why));
  if (why == EACCES) {
    return ot_fail_hint(OT_ENVIRONMENT, "choose a port from 1024 to 65535 with --port");
  }
  if (why == EADDRNOTAVAIL) {
    return ot_fail_hint(
        OT_ENVIRONMENT,
        "--host is an address of this machine (`ip address` lists them), or 0.0.0.0 "
        "for all");
  }
  return OT_ENVIRONMENT;
}

ot_status ot_address_listen(const char *host, int port, int *listening) {
  address at;
  OT_CHECK(parse(digits_of(host), port, &at), OT_USAGE,
           "--host: %s is not an address, such as 127.0.0.1 or ::1", host);
  const int file = socket(at.any.sa_family, SOCK_STREAM, 0);
  if (file < 0) return refuse(host, port, errno);
  if (!begin_to_listen(file, &at)) {
    const int why = errno;
    close(file);
    return refuse(host, port, why);
  }
  *listening = file;
  return OT_OK;
}

int ot_address_port(int listening) {
  address at;
  socklen_t length = sizeof at;
  if (getsockname(listening, &at.any, &length) != 0) return 0;
  return ntohs(at.any.sa_family == AF_INET6 ? at.v6.sin6_port : at.v4.sin_port);
}

// ---- names ----

static bool is_loopback(const address *at) {
  if (at->any.sa_family == AF_INET) return ntohl(at->v4.sin_addr.s_addr) >> 24 == 127;
  return IN6_IS_ADDR_LOOPBACK(&at->v6.sin6_addr);
}

bool ot_address_is_loopback(const char *host) {
  address at;
  return parse(digits_of(host), 0, &at) && is_loopback(&at);
}

// The name in a Host header, without port and brackets; false if it has none.
static bool name_of(const char *header, char name[NAME_BYTES]) {
  const bool bracketed = header[0] == '[';
  const size_t length = strcspn(header + bracketed, bracketed ? "]" : ":");
  if (length == 0 || length >= NAME_BYTES) return false;
  memcpy(name, header + bracketed, length);
  name[length] = '\0';
  return true;
}

static bool is_among(const char *name, const char *names) {
  const size_t length = strlen(name);
  while (names && *names != '\0') {
    const size_t n = strcspn(names, ",");
    if (n == length && strncasecmp(names, name, n) == 0) return true;
    names += n + (names[n] == ',');
  }
  return false;
}

bool ot_address_is_named(const char *header, const char *host, const char *names) {
  char name[NAME_BYTES], own[NAME_BYTES] = "";
  address at;
  if (!name_of(header, name)) return false;
  if (ot_address_is_loopback(name) || strcasecmp(name, host) == 0 || is_among(name, names)) {
    return true;
  }
  if (ot_address_is_loopback(host)) return false;
  const bool named = gethostname(own, sizeof own - 1) == 0 && strcasecmp(name, own) == 0;
  return named || parse(name, 0, &at);
}
