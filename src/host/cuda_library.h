// SPDX-License-Identifier: Apache-2.0
// Libraries of CUDA that a run opens when it needs them: cuBLASLt, NCCL.
#pragma once

// Opens `file` (a name like libnccl.so.2) from the first folder of OT_CUDA_LIBRARIES that has it,
// folders separated by colons, else from where the system looks. Null: dlerror tells why. The
// caller closes it with dlclose.
void *ot_cuda_library_open(const char *file);
