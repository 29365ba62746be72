// SPDX-License-Identifier: Apache-2.0
// An MPI job: its settings at start; the failure notices between ranks; which rank reports to the
// user. Called by one thread at a time. Private to comm/.
#pragma once

#include <mpi.h>

#include "comm/comm_parts.h"

// ---- the launch ----

// Before MPI_Init: blocking calls shall not spin when cores are fewer than ranks.
void ot_mpi_prepare(void);
// OT_RANKS if the launcher's number of processes is not MPI's.
ot_status ot_mpi_check_launch(int size);
// Sets the local size and rank of `comm`; `cores`: whether this machine has cores for all ranks.
// Collective over the world. Blocks.
ot_status ot_mpi_count_local(ot_comm *comm, bool *cores);
// True: MPI yields in polls that find nothing. Returns the previous setting.
bool ot_mpi_set_yields(bool yields);

// ---- failures ----

typedef struct ot_mpi_news {
  ot_comm *comm;           // owner
  MPI_Comm control;        // null communicator, as `receive`, before open
  MPI_Request receive;     // from any rank
  int32_t in;              // receive buffer
  int32_t failure, waits;  // sent by this rank
  int32_t asks;            // the same, see ot_comm_ask
  bool asked;              // all ranks have been asked
  bool *answered;          // [size] ranks known to have failed or to wait
  bool muted;              // another rank reports the failure
  bool broken;             // MPI itself failed: perhaps a process is dead
} ot_mpi_news;

// Collective over the world. Blocks.
ot_status ot_mpi_news_open(ot_mpi_news *news);
void ot_mpi_news_close(ot_mpi_news *news);
// Reads notices of other ranks and replies; asks the others once this process is asked. OT_RANKS if
// a rank has failed.
ot_status ot_mpi_receive_news(ot_mpi_news *news);
// This process has failed: determines which rank reports and, after a timed-out wait, which ranks
// are to blame. Blocks for a fraction of a second.
void ot_mpi_choose_reporter(ot_mpi_news *news);
// This rank's main failed other than by agreement. Returns `status`, with a message on the rank
// that reports and without on others, and makes the process end the job when it exits.
ot_status ot_mpi_end_job(const ot_mpi_news *news, const ot_failure *failure);
// For rank 0 to print: launchers end the job at the first process with a nonzero exit code.
void ot_mpi_wait_for_output(void);
