// SPDX-License-Identifier: Apache-2.0
// The ranks of a run: this rank's coordinates in the mesh, the ranks of its machine, and host-side
// collectives between steps. A null team is one rank, for which nothing here fails or blocks.
#pragma once

#include "comm/comm.h"
#include "describe/mesh.h"

typedef struct ot_team ot_team;

// Splits the ranks of `comm` (kept; null: one rank) according to `parallel`. OT_RANKS and OT_USAGE
// as ot_mesh_build. Collective over the world.
ot_status ot_team_create(const ot_run_parallel *parallel, ot_comm *comm, ot_team **out);
void ot_team_destroy(ot_team **team);

int ot_team_rank(const ot_team *team);
int ot_team_size(const ot_team *team);
ot_comm *ot_team_comm(const ot_team *team);
const ot_mesh *ot_team_mesh(const ot_team *team);  // null: one rank

// Coordinate along an axis of the mesh, and its degree.
int ot_team_index(const ot_team *team, ot_axis axis);
int ot_team_degree(const ot_team *team, ot_axis axis);
// The same along dp_replicate x dp_shard.
int ot_team_data_index(const ot_team *team);
int ot_team_data_degree(const ot_team *team);

// Ranks that share this rank's cores, itself included.
int ot_team_sharing(const ot_team *team);
// Cores per rank among the ranks that share this rank's cores, at least 1.
int ot_team_threads(const ot_team *team);

// Numbers that identify a machine and a process: equal on the ranks that share it.
int64_t ot_team_machine(const ot_team *team);
int64_t ot_team_process(const ot_team *team);

// True on the rank that writes files and reports.
bool ot_team_leads(const ot_team *team);

// All ranks return OT_OK if `status` is OT_OK everywhere, else the status and message of the lowest
// rank that failed. Call it after any operation that may fail on a single rank, before the next
// collective. Collective over the world. Blocks.
ot_status ot_team_agree(ot_team *team, ot_status status);

// Sets the timeout of waits: a rank that others wait for longer than `seconds` is named, and the
// run ends; 0: none (the default). Not for phases in which ranks wait long for a leader that reads
// a model. A leader that writes one requests it in blocks: each block is a separate wait.
void ot_team_watch(ot_team *team, double seconds);

// OT_RANKS, naming the ranks that differ, unless the value is equal on all. Collective over the
// world.
ot_status ot_team_check_equal(ot_team *team, uint64_t value, const char *what);

// Broadcasts the text of the leader, or of `rank`, at most OT_TEAM_TEXT - 1 bytes. Collective over
// the world. Blocks.
enum { OT_TEAM_TEXT = 4096 };
ot_status ot_team_share(ot_team *team, char *text);
ot_status ot_team_share_of(ot_team *team, int rank, char *text);

// All-reduces `values` [count <= OT_TEAM_VALUES] in rank order. Collective over the world. Blocks;
// allocates nothing.
enum { OT_TEAM_VALUES = 16 };
ot_status ot_team_sum(ot_team *team, double *values, int count);

// all[r] = `mine` of rank r, [size]. Collective over the world. Blocks; allocates nothing.
ot_status ot_team_collect(ot_team *team, int64_t mine, int64_t *all);
