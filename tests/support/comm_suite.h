// SPDX-License-Identifier: Apache-2.0
// What every back end of comm.h has to do; passing it is the definition of a back end. A case runs
// on all ranks of a world of any size and says what is wrong by a failure.
#pragma once

#include "comm/comm.h"

typedef struct comm_case {
  const char *name;
  ot_status (*run)(ot_comm *comm);
} comm_case;

// All cases, and how many.
const comm_case *comm_cases(int *count);

// An ot_rank_main that runs the case at `context`.
ot_status comm_case_main(ot_comm *comm, void *context);
// An ot_rank_main that runs all cases.
ot_status comm_suite_main(ot_comm *comm, void *context);

// Runs an exchange of fp32 in which members `from` and `to` mean other numbers of rows between
// them: what every back end has to refuse.
typedef struct comm_uneven {
  int from, to;
  int32_t sent, expected, most;  // rows; most: not less than both, >= 2
  int64_t count;                 // elements of a row
} comm_uneven;
ot_status comm_uneven_exchange(ot_comm *comm, const comm_uneven *uneven);

#define COMM_EXPECT(condition)                                                             \
  do {                                                                                     \
    if (!(condition)) return ot_fail(OT_BUG, "%s:%d: %s", __FILE__, __LINE__, #condition); \
  } while (0)
