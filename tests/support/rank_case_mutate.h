// SPDX-License-Identifier: Apache-2.0
// Communication faults in an emitted schedule: one call of one group is lost, shortened,
// misdirected or executed wrongly, on all its members alike (a silent fault) or on one member.
#pragma once

#include "support/rank_case.h"

typedef enum rank_fault {
  RANK_DELETE,      // no member calls it; a message: neither sent nor received
  RANK_DELETE_ONE,  // the last member does not call it; a message: not received
  RANK_SHORTEN,     // one cache line of elements less (in each block)
  RANK_MISGROUP,    // over another group of the same size
  RANK_ACCUMULATE,  // reductions: accumulates instead of overwriting, or the reverse
  RANK_TWICE,       // reductions: executed twice
  RANK_SCALE,       // reductions: the result is doubled
  RANK_FAULTS,
} rank_fault;

const char *rank_fault_name(rank_fault fault);

// A call in the training step of a world, and its fault.
typedef struct rank_mutant {
  rank_fault fault;
  ot_group_kind kind, other;  // other: for RANK_MISGROUP
  int first;                  // lowest rank of the group; a message: the sender
  int call;                   // index among the calls of its group; a message: among the sends of
                              // `first` on `kind`
  int ranks[RANK_MAX];        // [size] members, or sender and receiver
  int calls[RANK_MAX];        // [size] number of the call on each
  int size;
} rank_mutant;

// All mutants of schedules [ranks] that are not equivalent: mutants [returned] in `arena`. Omitted
// because equivalent by construction:
//   twice        a reduction that neither accumulates nor works in place: the second call has the
//               same inputs and result
//   misgroup     to a group of the same members whose calls run on the same lane
//   shorten      if there is only one line
//   delete       a gather whose output still holds the bucket of an earlier gather: it would fetch
//               the same weights again
//   any          a gradient reduction if it corrupts only padding, or parameters of another stage
//               in the bucket of a tied embedding: these are never read
int rank_mutants(const ot_schedule *schedules, int ranks, ot_arena *arena, rank_mutant **mutants);

// Applies the mutant to the schedule of a rank if it affects that rank; new segments in `arena`,
// old ones unchanged. Has the type of rank_request.amend: `mutant` is a rank_mutant.
void rank_mutate(ot_schedule *schedule, ot_arena *arena, void *mutant);

// "delete: call 3 of group shard, ranks 0 2, reduce_scatter in reduce.layers.1" into `text`
// [RANK_TEXT].
const char *rank_describe_mutant(const rank_mutant *mutant, const ot_schedule *schedules,
                                 char *text);
