// SPDX-License-Identifier: Apache-2.0
// Where the calls of the conformance suite have their buffers: in host memory, as the cases make
// them, or in copies on the rank's GPU.
#pragma once

#include "comm/comm.h"

// Until the end of the rank's main, comm_run uses the rank's GPU. Collective over the world.
ot_status comm_place_on_gpu(ot_comm *comm);
void comm_place_on_host(void);

// On a GPU: groups or messages have been added. Messages: with both neighbours in the world, tags 0
// and 1. Collective over the world.
ot_status comm_join(ot_comm *comm);

// Starts `call` and waits; on a GPU, on copies of its buffers that are copied back.
ot_status comm_run(ot_comm *comm, const ot_comm_call *call);
