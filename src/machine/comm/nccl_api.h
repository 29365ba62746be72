// SPDX-License-Identifier: Apache-2.0
// The part of NCCL 2 that communication uses, declared here so that neither its header nor the
// library are needed to build. Values and sizes are those of nccl.h 2.28; tests/cuda/nccl_abi.cc
// compares them where the header is. Private to comm/.
#pragma once

#include <stddef.h>

#include "base/status.h"

// A communicator of NCCL; one for each member.
typedef struct ot_nccl_comm ot_nccl_comm;

// Names a communicator to all its members.
typedef struct ot_nccl_id {
  char bytes[128];
} ot_nccl_id;

enum {
  OT_NCCL_SYSTEM_ERROR = 2,  // ncclResult_t; 0: success
  OT_NCCL_INVALID_ARGUMENT = 4,
  OT_NCCL_INVALID_USAGE = 5,
  OT_NCCL_REMOTE_ERROR = 6,
  OT_NCCL_IN_PROGRESS = 7,
  OT_NCCL_UINT8 = 1,      // ncclDataType_t
  OT_NCCL_OLDEST = 21403  // the first version with all functions below
};

// All but the texts return an ncclResult_t. `stream` is a cudaStream_t of the device that was the
// thread's when the communicator was made; counts are elements of `type`.
typedef struct ot_nccl_api {
  int (*version)(int *version);  // 10000 major + 100 minor + patch
  int (*make_id)(ot_nccl_id *id);
  // Blocks until all `size` members have called it.
  int (*create)(ot_nccl_comm **comm, int size, ot_nccl_id id, int rank);
  // Between these two, calls of this thread are collected; `end` queues them as one operation, in
  // which all transfers progress at the same time.
  int (*begin)(void);
  int (*end)(void);
  int (*send)(const void *from, size_t count, int type, int peer, ot_nccl_comm *comm, void *stream);
  int (*receive)(void *to, size_t count, int type, int peer, ot_nccl_comm *comm, void *stream);
  int (*all_gather)(const void *from, void *to, size_t count, int type, ot_nccl_comm *comm,
                    void *stream);
  int (*failure)(ot_nccl_comm *comm, int *result);  // of work that is queued
  int (*finalize)(ot_nccl_comm *comm);              // waits for what is queued
  int (*destroy)(ot_nccl_comm *comm);
  int (*abort)(ot_nccl_comm *comm);  // ends what is queued, undone; also destroys
  const char *(*describe)(int result);
  const char *(*last_error)(ot_nccl_comm *comm);  // null: of the thread
} ot_nccl_api;

// Opens the library, for good: its threads may outlive communicators. OT_ENVIRONMENT, naming what
// was searched, if it is missing or too old.
ot_status ot_nccl_open(ot_nccl_api *api);
