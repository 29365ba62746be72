// SPDX-License-Identifier: Apache-2.0
// The ranks of a run: this rank's coordinates in the mesh, the ranks of its machine, and host-side
// collectives between steps. A null world is one rank, for which nothing here fails or blocks.
#pragma once

#include "comm/comm.h"
#include "describe/mesh.h"

typedef struct ot_world ot_world;

// Splits the ranks of `comm` (kept; null: one rank) according to `parallel`. OT_RANKS and OT_USAGE
// as ot_mesh_build. Collective over the world.
ot_status ot_world_create(const ot_run_parallel *parallel, ot_comm *comm, ot_world **out);
void ot_world_destroy(ot_world **world);

int ot_world_rank(const ot_world *world);
int ot_world_size(const ot_world *world);
ot_comm *ot_world_comm(const ot_world *world);
const ot_mesh *ot_world_mesh(const ot_world *world);  // null: one rank

// Coordinate along an axis of the mesh, and its degree.
int ot_world_index(const ot_world *world, ot_axis axis);
int ot_world_degree(const ot_world *world, ot_axis axis);
// The same along dp_replicate x dp_shard.
int ot_world_data_index(const ot_world *world);
int ot_world_data_degree(const ot_world *world);

// Ranks that share this rank's cores, itself included.
int ot_world_core_sharers(const ot_world *world);
// Cores per rank among the ranks that share this rank's cores, at least 1.
int ot_world_threads(const ot_world *world);

// Numbers that identify a machine and a process: equal on the ranks that share it.
int64_t ot_world_machine(const ot_world *world);
int64_t ot_world_process(const ot_world *world);

// True on the rank that writes files and reports.
bool ot_world_is_leader(const ot_world *world);

// All ranks return OT_OK if `status` is OT_OK everywhere, else the status and message of the lowest
// rank that failed. Call it after any operation that may fail on a single rank, before the next
// collective. Collective over the world. Blocks.
ot_status ot_world_agree(ot_world *world, ot_status status);

// The same after reading files that may be damaged: *damaged, whether this rank found damage,
// becomes true on all ranks if a rank did and no other failure happened.
ot_status ot_world_agree_on_damage(ot_world *world, ot_status status, bool *damaged);

// Sets the timeout of waits: a rank that others wait for longer than `seconds` is named, and the
// run ends; 0: none (the default). Not for phases in which ranks wait long for a leader that reads
// a model. A leader that writes one requests it in blocks: each block is a separate wait.
void ot_world_set_timeout(ot_world *world, double seconds);

// OT_RANKS, naming the ranks that differ, unless the value is equal on all. Collective over the
// world.
ot_status ot_world_check_equal(ot_world *world, uint64_t value, const char *what);

// OT_RANKS, naming a rank, its host and the file, unless the file at `path`, whose content has
// `hash` on this rank (0: it does not read the file), has the same content on all that read it.
// Collective over the world.
ot_status ot_world_check_file(ot_world *world, const char *path, uint64_t hash);

// Broadcasts the text of the leader, or of `rank`, at most OT_WORLD_TEXT - 1 bytes. Collective over
// the world. Blocks.
enum { OT_WORLD_TEXT = 4096 };
ot_status ot_world_broadcast(ot_world *world, char *text);
ot_status ot_world_broadcast_from(ot_world *world, int rank, char *text);

// All-reduces `values` [count <= OT_WORLD_VALUES + size] in rank order. Collective over the world.
// Blocks; allocates nothing.
enum { OT_WORLD_VALUES = 24 };
ot_status ot_world_allreduce(ot_world *world, double *values, int count);

// all[r] = `mine` of rank r, [size]. Collective over the world. Blocks; allocates nothing.
ot_status ot_world_allgather(ot_world *world, int64_t mine, int64_t *all);
