// SPDX-License-Identifier: Apache-2.0
// Where ranks stand: predictions, layouts and measurements assume that they fill one host after the
// other, equally many on each.
#pragma once

#include "comm/comm.h"

// OT_RANKS, naming the first rank on another host than expected, unless ranks 0 to per_host - 1 are
// on one host, the next per_host ranks on another, and so on; the last host may have fewer.
// `source`: who says so ("cluster.yaml"). Collective over the world. Blocks.
ot_status ot_rank_hosts_check(ot_comm *comm, int per_host, const char *source);

// Ranks on the host of rank 0. Collective over the world. Blocks.
ot_status ot_rank_hosts_count(ot_comm *comm, int *per_host);
