// SPDX-License-Identifier: Apache-2.0
// The address that a server listens at, and the names by which browsers may call it: a page of a
// stranger can reach a server on this machine by a name of its own that resolves to it (DNS
// rebinding), but its requests have that name as their Host.
#pragma once

#include <stdbool.h>

#include "base/status.h"

// A socket that listens at `host` (an address in digits, or "localhost") and `port`, 0: any that is
// free; it does not block. `::` stands for all addresses, those of IPv4 too. OT_ENVIRONMENT, naming
// both, if the port is in use by anyone or may not be used; OT_USAGE if `host` is no address.
ot_status ot_address_listen(const char *host, int port, int *listening);

// The port of a socket that listens, or 0.
int ot_address_port(int listening);

// Whether only this machine can reach a server at `host`.
bool ot_address_is_loopback(const char *host);

// Whether a request with `header` as its Host may be meant for a server at `host`: an address of
// the loopback, "localhost", `host` itself, or one of `names` (separated by commas; or null). If
// others can reach it: any address in digits and this machine's own name, too. The port is not
// compared.
bool ot_address_is_named(const char *header, const char *host, const char *names);
