// SPDX-License-Identifier: Apache-2.0
// Memory of this machine that new use can have.
#pragma once

#include <stdint.h>

// The kernel's estimate (MemAvailable), in bytes; INT64_MAX if it gives none.
int64_t ot_host_available_bytes(void);
