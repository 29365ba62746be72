// SPDX-License-Identifier: Apache-2.0
// Cases of the conformance suite, grouped by file. Private to comm_suite.c.
#pragma once

#include "support/comm_suite.h"
#include "support/comm_values.h"

// comm_kinds.c
ot_status comm_every_kind_and_type(ot_comm *comm);
ot_status comm_large_calls(ot_comm *comm);
// All collective kinds on the group, `count` elements per block.
ot_status comm_check_kinds(ot_comm *comm, const comm_members *members, ot_dtype dtype,
                           int64_t count);

// comm_exchanges.c
ot_status comm_exchanges_of_any_rows(ot_comm *comm);
ot_status comm_exchanges_of_many_runs(ot_comm *comm);
ot_status comm_exchange_of_nothing(ot_comm *comm);
ot_status comm_exchanges_at_once(ot_comm *comm);
// An all-to-all-v on the group, rows of `count` elements, runs drawn from `seed`.
ot_status comm_check_exchange(ot_comm *comm, const comm_members *members, ot_dtype dtype,
                              int64_t count, int seed);

// comm_mixes.c
ot_status comm_ends_know_themselves(ot_comm *comm);
ot_status comm_groups_of_some_ranks(ot_comm *comm);
ot_status comm_many_calls_at_once(ot_comm *comm);
ot_status comm_progress_without_waiting(ot_comm *comm);
ot_status comm_messages_cross(ot_comm *comm);
ot_status comm_messages_come_early_and_late(ot_comm *comm);
ot_status comm_threads_of_a_rank(ot_comm *comm);
ot_status comm_bytes_are_counted(ot_comm *comm);
ot_status comm_ranks_agree(ot_comm *comm);
ot_status comm_values_are_compared(ot_comm *comm);
ot_status comm_the_world_is_divided(ot_comm *comm);
