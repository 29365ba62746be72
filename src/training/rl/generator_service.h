// SPDX-License-Identifier: Apache-2.0
// A generator as a process of its own, on the real clock. It makes whole groups: those whose number
// is its own modulo the number of generators, one after the other, so it needs no orders; it begins
// none while as many as allowed wait for the trainer. Between two decode steps it takes what has
// arrived: new weights, tensor by tensor in place, and limits.
#pragma once

#include "describe/run.h"

typedef struct ot_rl_service_request {
  const ot_run *run;
  int index, count;  // of the generators
  int in, out;       // streams from and to the leading trainer; taken
} ot_rl_service_request;

// Until the trainer stops it or is gone. Blocks.
ot_status ot_rl_service_run(const ot_rl_service_request *request);

// The hash of the settings that both ends of a link must agree on.
uint64_t ot_rl_service_hash(const ot_run *run);
