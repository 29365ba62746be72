// SPDX-License-Identifier: Apache-2.0
// A user's program that judges answers, one JSON object a line. It reads
//   {"id": 7, "prompt": "...", "response": "...", "answer": "..."}
// from its standard input and writes {"id": 7, "reward": 0.5} to its standard output, in order. It
// is started once, without a shell and without a search of PATH, in a process group of its own; no
// descriptor but its standard ones is passed on. An answer that takes too long, is too long or is
// no such line costs the process: the group is killed and started again for the next response.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "rl/edit_similarity.h"

typedef struct ot_verifier ot_verifier;

typedef struct ot_verifier_request {
  const char *const *words;  // [..., null] a path with a slash, and arguments; kept
  double timeout_s;          // for each response, > 0
  int64_t memory_bytes;      // address space of each of its processes; 0: no limit
  int64_t cpu_seconds;       // of each of its processes; 0: no limit
} ot_verifier_request;

enum { OT_VERIFIER_LINE = 1 << 16 };  // bytes of a line that it writes

// OT_USAGE for a path without a slash, OT_ENVIRONMENT if it is no program.
ot_status ot_verifier_create(const ot_verifier_request *request, ot_verifier **out);

// Kills its group.
void ot_verifier_destroy(ot_verifier **verifier);

// One response.
typedef struct ot_verifier_case {
  int64_t id;
  ot_bytes prompt, response, answer;
} ot_verifier_case;

// *judged is false if it gave no reward: then *why says so, until the next call. OT_ENVIRONMENT if
// it cannot be started. Blocks.
ot_status ot_verifier_judge(ot_verifier *verifier, const ot_verifier_case *response, double *reward,
                            bool *judged, const char **why);
