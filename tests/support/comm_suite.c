// SPDX-License-Identifier: Apache-2.0
// The list of the conformance suite.
#include "support/comm_suite.h"

#include "support/comm_cases.h"

static const comm_case all_cases[] = {
    {"ends_know_themselves", comm_ends_know_themselves},
    {"every_kind_and_type", comm_every_kind_and_type},
    {"large_calls", comm_large_calls},
    {"exchanges_of_any_rows", comm_exchanges_of_any_rows},
    {"exchanges_of_many_runs", comm_exchanges_of_many_runs},
    {"exchange_of_nothing", comm_exchange_of_nothing},
    {"exchanges_at_once", comm_exchanges_at_once},
    {"groups_of_some_ranks", comm_groups_of_some_ranks},
    {"many_calls_at_once", comm_many_calls_at_once},
    {"progress_without_waiting", comm_progress_without_waiting},
    {"messages_cross", comm_messages_cross},
    {"messages_come_early_and_late", comm_messages_come_early_and_late},
    {"threads_of_a_rank", comm_threads_of_a_rank},
    {"bytes_are_counted", comm_bytes_are_counted},
    {"ranks_agree", comm_ranks_agree},
    {"values_are_compared", comm_values_are_compared},
    {"the_world_is_divided", comm_the_world_is_divided},  // the last: it stays so
};

const comm_case *comm_cases(int *count) {
  *count = OT_COUNT(all_cases);
  return all_cases;
}

ot_status comm_case_main(ot_comm *comm, void *context) {
  const comm_case *const wanted = context;
  const ot_status status = wanted->run(comm);
  if (status != OT_OK) return ot_fail(status, "%s: %s", wanted->name, ot_fail_message());
  return OT_OK;
}

ot_status comm_suite_main(ot_comm *comm, void *context) {
  (void)context;
  for (int i = 0; i < OT_COUNT(all_cases); i++) {
    OT_TRY(comm_case_main(comm, (void *)&all_cases[i]));
  }
  return OT_OK;
}
