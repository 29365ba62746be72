// SPDX-License-Identifier: Apache-2.0
// Whether this process can map what it is about to need.
#pragma once

#include "base/status.h"

// Fails if `bytes` more, and the buffers that the BLAS maps for `threads` threads that call it at
// the same time, cannot be mapped: a limit (ulimit -v, -d) or the kernel's limit of committed
// memory. OpenBLAS tries for ever to map its buffers where that fails, so this comes before the
// first product. Leaves nothing. Concurrent calls wait for each other.
ot_status ot_host_check_address_space(int64_t bytes, int threads);
