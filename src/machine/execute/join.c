// SPDX-License-Identifier: Apache-2.0
// Ranks must agree before they run on the world, the members of each group, and the ordered
// list of collectives of each group. Buffer addresses may differ between ranks.
#include "base/backend_rules.h"
#include "base/text.h"
#include "execute/bind.h"
#include "execute/execute.h"
#include "host/heap.h"
#include "schedule/bodies.h"

static ot_status check_world(const ot_schedule *schedule, const ot_comm *comm) {
  OT_CHECK(schedule->ranks == ot_comm_size(comm) && schedule->rank == ot_comm_rank(comm), OT_RANKS,
           "the schedule is for rank %d of %d, the communicator is rank %d of %d", schedule->rank,
           schedule->ranks, ot_comm_rank(comm), ot_comm_size(comm));
  return OT_OK;
}

// True if the group exists already, created for another schedule.
static bool is_made(const ot_comm *comm, ot_group_kind kind) {
  return kind == OT_GROUP_WORLD || ot_comm_group_size(comm, kind) > 1;
}

static ot_status check_made(const ot_schedule *schedule, const ot_comm *comm) {
  for (int kind = 0; kind < OT_GROUP_KINDS; kind++) {
    const int size = schedule->group[kind].size;
    if (size < 2 || !is_made(comm, (ot_group_kind)kind)) continue;
    const int made = ot_comm_group_size(comm, (ot_group_kind)kind);
    OT_CHECK(made == size, OT_RANKS, "group %d has %d ranks, the schedule's %d", kind, made, size);
  }
  return OT_OK;
}

// ---- the collectives of a group ----

//   turn  how many collectives of the loop body precede the task; -1: not in a body
static uint64_t hash_task(uint64_t hash, const ot_task *task, int turn) {
  const int64_t fields[] = {
      turn,
      task->op,
      ot_type_elements(&task->in[0].type),
      task->in[0].type.dtype,
      ot_type_elements(&task->out[0].type),
      task->out[0].type.dtype,
      task->attributes.sum_on_wire,
  };
  return ot_hash_bytes(hash, fields, sizeof fields);
}

static uint64_t hash_order(const ot_schedule *schedule, const ot_order *order, ot_group_kind kind) {
  const int64_t head[] = {order->kind, order->micro_batches};
  uint64_t hash = ot_hash_bytes(OT_HASH_START, head, sizeof head);
  for (int i = 0; i < order->num_entries; i++) {
    const ot_segment *const segment = &schedule->segments[order->entries[i].segment];
    for (int k = 0; k < segment->num_tasks; k++) {
      const ot_task *const task = &segment->tasks[k];
      const bool counts = task->kind == OT_TASK_COLLECTIVE && task->attributes.group == kind;
      if (counts) hash = hash_task(hash, task, ot_segment_collective_index(segment, k));
    }
  }
  return hash;
}

static uint64_t hash_group(const ot_schedule *schedule, ot_group_kind kind) {
  const ot_group *const group = &schedule->group[kind];
  uint64_t hash = ot_hash_bytes(OT_HASH_START, &group->size, sizeof group->size);
  for (int i = 0; i < group->size; i++) {
    hash = ot_hash_bytes(hash, &group->ranks[i], sizeof group->ranks[i]);
  }
  for (int i = 0; i < schedule->num_orders; i++) {
    const uint64_t order = hash_order(schedule, &schedule->orders[i], kind);
    hash = ot_hash_bytes(hash, &order, sizeof order);
  }
  return hash;
}

static ot_status use_device(const ot_schedule *schedule, ot_comm *comm, int ordinal) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_comm_route *routes = NULL;
  const int count = ot_bind_routes(schedule, &arena, &routes);
  const ot_status status = ot_comm_use_device(comm, ordinal, routes, count);
  ot_heap_release(&heap);
  return status;
}

ot_status ot_executor_join(const ot_schedule *schedule, ot_comm *comm, int ordinal) {
  ot_status local = check_world(schedule, comm);
  if (local == OT_OK) local = check_made(schedule, comm);
  OT_TRY(ot_comm_agree(comm, local));
  for (int kind = 0; kind < OT_GROUP_KINDS; kind++) {
    const ot_group *const group = &schedule->group[kind];
    if (group->size < 2 || is_made(comm, (ot_group_kind)kind)) continue;
    OT_TRY(ot_comm_add_group(comm, (ot_group_kind)kind, group->ranks, group->size));
  }
  for (int kind = 0; kind < OT_GROUP_KINDS; kind++) {
    if (schedule->group[kind].size < 2) continue;
    const uint64_t hash = hash_group(schedule, (ot_group_kind)kind);
    OT_TRY(ot_comm_check_equal(comm, (ot_group_kind)kind, hash, "the list of its collectives"));
  }
  const bool host = ot_backend_rules_of(schedule->backend)->host;
  return host ? OT_OK : use_device(schedule, comm, ordinal);
}
