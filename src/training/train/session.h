// SPDX-License-Identifier: Apache-2.0
// The parts of a running loop share the request, the trainer with its run directory, and the
// files that the leader appends to. Each part has a state of its own, which the others do not see.
// Private to train/.
#pragma once

#include "record/heartbeat.h"
#include "train/loop_start.h"
#include "train/step_log.h"

typedef struct ot_session {
  const ot_loop_request *request;
  const ot_run *run;
  ot_arena *arena;
  ot_loop_start start;
  ot_step_log log;          // on the leader
  ot_heartbeat *heartbeat;  // on the leader
  int64_t begin_step;       // completed steps when this process began, or fewer if it went back
} ot_session;

static inline bool ot_session_leads(const ot_session *s) {
  return ot_world_is_leader(s->request->world);
}

static inline ot_runtime *ot_session_runtime(const ot_session *s) {
  return ot_trainer_runtime(s->start.trainer);
}

// Completed steps.
static inline int64_t ot_session_step(const ot_session *s) {
  return ot_trainer_position(s->start.trainer).step;
}

// Whether something that is done every `every` steps (0: never) is due after `step`.
static inline bool ot_session_due(int64_t step, int64_t every) {
  return every > 0 && step % every == 0;
}

// OT_FINDINGS on all ranks if the counters of one changed in memory. Collective over the world.
ot_status ot_session_check_position(const ot_session *s);
