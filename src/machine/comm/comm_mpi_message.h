// SPDX-License-Identifier: Apache-2.0
// One MPI message of any size. Called by one thread at a time. Private to comm/.
#pragma once

#include <mpi.h>

#include "comm/comm_parts.h"

// The text of MPI's error `code`, as a failure.
ot_status ot_mpi_fail(int code, const char *call);
#define OT_TRY_MPI(call)                                                      \
  do {                                                                        \
    const int ot_try_code_ = (call);                                          \
    if (ot_try_code_ != MPI_SUCCESS) return ot_mpi_fail(ot_try_code_, #call); \
  } while (0)

// Starts the message of a transfer.
ot_status ot_mpi_post_message(const ot_comm_transfer *t, int tag, MPI_Comm comm,
                              MPI_Request *request);
// The same for a rank that has left the step (execute/leave.h): of a block that is sent, one byte,
// because nobody uses the values; the other rank needs not have left.
ot_status ot_mpi_post_nothing(const ot_comm_transfer *t, int tag, MPI_Comm comm,
                              MPI_Request *request);
// The message of a transfer of `request` is complete, with MPI's error `code`. OT_RANKS if the
// other rank's byte count differs; it has left the step if it sent one byte of many.
ot_status ot_mpi_check_message(const ot_comm_request *request, const ot_comm_transfer *t, int code,
                               const MPI_Status *status);
