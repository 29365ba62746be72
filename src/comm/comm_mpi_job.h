// SPDX-License-Identifier: Apache-2.0
// An MPI job: what its launcher and its MPI are told at the start; how it fails, that is the news
// that ranks send each other, and who tells the user. Called by one thread at a time. Private to
// comm/.
#pragma once

#include <mpi.h>

#include "comm/comm_parts.h"

// ---- the launch ----

// Before MPI is there: it shall not spin where it blocks when cores are fewer than ranks.
void ot_mpi_prepare(void);
// OT_RANKS when the launcher's number of processes is not MPI's.
ot_status ot_mpi_check_launch(int size);
// Ranks on this machine, and whether it has cores for all. Collective over the world. Blocks.
ot_status ot_mpi_count_local(int *ranks, bool *cores);
// True: MPI yields in polls that find nothing. Returns what was before.
bool ot_mpi_set_yields(bool yields);

// ---- failures ----

typedef struct ot_mpi_news {
  ot_comm *comm;           // whose
  MPI_Comm control;        // the null communicator, as `receive`, before this is open
  MPI_Request receive;     // from any rank
  int32_t in;              // what it receives
  int32_t failure, waits;  // sent by this rank
  bool *answered;          // [size] ranks that are known to have failed, or to wait
  bool muted;              // another rank tells the user of the failure
  bool broken;             // MPI itself failed: perhaps a process is dead
} ot_mpi_news;

// Collective over the world. Blocks.
ot_status ot_mpi_news_open(ot_mpi_news *news);
void ot_mpi_news_close(ot_mpi_news *news);
// Takes what other ranks have said, and answers. OT_RANKS when one of them has failed.
ot_status ot_mpi_hear(ot_mpi_news *news);
// This process has failed: finds out which rank is to tell the user, and of a wait that timed out,
// which ranks are to blame. Blocks, for a fraction of a second.
void ot_mpi_elect(ot_mpi_news *news);
// This rank's main has failed otherwise than by agreement. Returns `status`, with a message on the
// rank that tells the user and without on others, and makes the process end the job when it exits.
ot_status ot_mpi_end_job(const ot_mpi_news *news, const ot_failure *failure);
// For rank 0 to print: launchers end the job at the first process that returns another code than 0.
void ot_mpi_let_others_print(void);
