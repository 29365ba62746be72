// SPDX-License-Identifier: Apache-2.0
// Memory that a process of this machine may use.
#pragma once

#include <stdint.h>

// The least limit of memory of the control groups of this process and those around them, in bytes,
// of version 1 and 2; INT64_MAX if there is none.
int64_t ot_host_group_limit_bytes(void);

// All memory that processes may use here: that of the machine, or the limit of the control groups.
// *what, if not null, names which: "this machine has".
int64_t ot_host_memory_bytes(const char **what);

// The bytes that new allocations can use: the kernel's estimate (MemAvailable), at most the limit
// of the control groups; INT64_MAX if neither is known.
int64_t ot_host_available_bytes(void);

// Resident memory of this process now; 0 if it is not known.
int64_t ot_host_resident_bytes(void);

// The limit of address space or data of this process (ulimit -v, -d), the smaller one, in bytes,
// and its option for ulimit in *option; INT64_MAX without one.
int64_t ot_host_address_limit_bytes(char *option);
