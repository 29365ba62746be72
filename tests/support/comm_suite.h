// SPDX-License-Identifier: Apache-2.0
// Conformance suite: passing it defines a back end of comm.h. Each case runs on all ranks of a
// world of any size and reports an error as a failure.
#pragma once

#include "comm/comm.h"

typedef struct comm_case {
  const char *name;
  ot_status (*run)(ot_comm *comm);
} comm_case;

// All cases; their number in `count`.
const comm_case *comm_cases(int *count);

// An ot_rank_main that runs the case given as `context`.
ot_status comm_case_main(ot_comm *comm, void *context);
// An ot_rank_main that runs all cases.
ot_status comm_suite_main(ot_comm *comm, void *context);

// Runs an fp32 all-to-all-v in which members `from` and `to` disagree about the number of rows
// between them. Every back end must reject it.
typedef struct comm_row_mismatch {
  int from, to;
  int32_t sent, expected, most;  // rows; most: at least the larger of the two, >= 2
  int64_t count;                 // elements per row
} comm_row_mismatch;
ot_status comm_uneven_exchange(ot_comm *comm, const comm_row_mismatch *uneven);

#define COMM_EXPECT(condition)                                                             \
  do {                                                                                     \
    if (!(condition)) return ot_fail(OT_BUG, "%s:%d: %s", __FILE__, __LINE__, #condition); \
  } while (0)
