// SPDX-License-Identifier: Apache-2.0
// Faults of communication in an emitted schedule: one call of one group lost, cut short, sent to
// other ranks, or done wrong, on all its members alike (the silent kind) or on one alone.
#pragma once

#include "support/rank_case.h"

typedef enum rank_fault {
  RANK_DELETE,      // not called, by no member; of a message: neither sent nor received
  RANK_DELETE_ONE,  // not called by the last member; of a message: not received
  RANK_SHORTEN,     // a cache line of elements less (of each block)
  RANK_MISGROUP,    // over another group of as many ranks
  RANK_ACCUMULATE,  // reductions: adds where it should overwrite, and the reverse
  RANK_TWICE,       // reductions: done twice
  RANK_SCALE,       // reductions: the sum is doubled
  RANK_FAULTS,
} rank_fault;

const char *rank_fault_name(rank_fault fault);

// A call in the training step of a world, and what is wrong with it.
typedef struct rank_mutant {
  rank_fault fault;
  ot_group_kind kind, other;  // other: of RANK_MISGROUP
  int first;                  // lowest rank of the group; of a message: the sender
  int call;                   // number among the calls of its group; of a message: among those of
                              // the sender on `kind`
  int ranks[RANK_MAX];        // [size] members, or sender and receiver
  int calls[RANK_MAX];        // [size] number of the call on each
  int size;
} rank_mutant;

// All mutants of schedules [ranks] that are no equivalents: mutants [returned] in `arena`.
// Equivalent by construction, and so left out:
//   twice        of a reduction that neither adds to what it writes nor reads it: the second one
//                finds what the first one found, and writes what it wrote
//   misgroup     to a group of the same members whose calls are on the same lane
//   shorten      where there is not more than one line
//   delete       of a gather whose place still holds the bucket from the gather before: the same
//                weights would be fetched over themselves
//   any          of a sum of gradients, where all that it makes wrong is padding, or parameters of
//                another stage in the bucket of a tied embedding: nobody reads it
int rank_mutants(const ot_schedule *schedules, int ranks, ot_arena *arena, rank_mutant **mutants);

// Changes the schedule of a rank, if the mutant changes it, with new segments in `arena`. The old
// ones stay as they are. In the form of rank_request.amend: `mutant` is a rank_mutant.
void rank_mutate(ot_schedule *schedule, ot_arena *arena, void *mutant);

// "delete: call 3 of group shard, ranks 0 2, reduce_scatter in reduce.layers.1" into `text`
// [RANK_TEXT].
const char *rank_describe_mutant(const rank_mutant *mutant, const ot_schedule *schedules,
                                 char *text);
