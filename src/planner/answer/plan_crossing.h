// SPDX-License-Identifier: Apache-2.0
// The parts of an answer about a mixed cluster, whose pools an axis of the plan crosses
// (estimate/crossing.h). On a cluster of one kind of device there are none.
#pragma once

#include "answer/plan_page.h"

// Members of the open object: the pools of the cluster, and the links between them.
void ot_mixed_cluster_write_json(const ot_job *job, ot_json_writer *w);

// Members of the open object: what each pool does.
void ot_crossing_write_json(const ot_job *job, const ot_estimate *estimate, ot_json_writer *w);

// Appends the ranks of each pool as comments, where its stages are consecutive.
void ot_crossing_put_ranks(const ot_job *job, const ot_candidate *candidate, ot_text_builder *out);

// OT_USAGE if no file starts the plan on hosts of `ranks_per_host` ranks: ranks of a pool have to
// be consecutive, as stages are, and alike for a launcher.
ot_status ot_crossing_check_emit(const ot_job *job, const ot_estimate *plan, ot_emit_kind kind,
                                 int ranks_per_host);
