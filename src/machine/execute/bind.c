// SPDX-License-Identifier: Apache-2.0
// Resolves tasks to kernels and communicator calls.
#include "execute/bind.h"

#include "base/backend_rules.h"
#include "base/dtype.h"
#include "kernels/kernels.h"
#include "ops/catalog.h"
#include "ops/collective.h"
#include "schedule/bodies.h"
#include "schedule/joined.h"

// ---- communication calls ----

static ot_comm_kind call_kind(ot_op_kind op) {
  static const struct {
    ot_op_kind op;
    ot_comm_kind kind;
  } kinds[] = {
      {OT_OP_ALL_GATHER, OT_COMM_ALL_GATHER},
      {OT_OP_REDUCE_SCATTER, OT_COMM_REDUCE_SCATTER},
      {OT_OP_ALL_REDUCE, OT_COMM_ALL_REDUCE},
      {OT_OP_ALL_TO_ALL, OT_COMM_ALL_TO_ALL},
      {OT_OP_SHIFT, OT_COMM_SHIFT},
      {OT_OP_ALL_TO_ALL_V, OT_COMM_ALL_TO_ALL_V},
      {OT_OP_ALL_TO_ALL_V_BACK, OT_COMM_ALL_TO_ALL_V},
      {OT_OP_SEND, OT_COMM_SEND},
      {OT_OP_RECEIVE, OT_COMM_RECEIVE},
  };
  for (int i = 0; i < OT_COUNT(kinds); i++) {
    if (kinds[i].op == op) return kinds[i].kind;
  }
  OT_UNREACHABLE();
}

// The dtype in which a reduction accumulates: that of its result, or the compute dtype if that is
// wider.
static ot_dtype sum_type(const ot_task *task) {
  const ot_dtype made = task->out[0].type.dtype;
  return made == OT_BF16 ? task->attributes.compute : made;
}

static const ot_operand *payload(const ot_task *task) {
  return task->op == OT_OP_RECEIVE ? &task->out[0] : &task->in[ot_op_sent_input(task->op)];
}

// The element count of the call as comm.h defines it: per block or per token where the call has
// these.
static int64_t call_count(ot_comm_kind kind, const ot_task *task) {
  const ot_tensor_type *const type = &payload(task)->type;
  const int64_t all = ot_type_elements(type);
  if (kind == OT_COMM_ALL_TO_ALL_V) return all / type->dim[0];
  const bool blocks = kind == OT_COMM_REDUCE_SCATTER || kind == OT_COMM_ALL_TO_ALL;
  return blocks ? all / task->attributes.group_size : all;
}

// The call without its buffers.
static ot_comm_call describe(const ot_task *task, const char *name) {
  const ot_comm_kind kind = call_kind(task->op);
  return (ot_comm_call){
      .kind = kind,
      .group = task->attributes.group,
      .peer = task->attributes.peer,
      .tag = task->attributes.tag,
      .count = call_count(kind, task),
      .dtype = payload(task)->type.dtype,
      .sum = sum_type(task),
      .sum_on_wire = task->attributes.sum_on_wire,
      .accumulate = kind == OT_COMM_REDUCE_SCATTER && task->attributes.accumulate,
      .narrow = kind == OT_COMM_REDUCE_SCATTER && task->out[0].type.dtype != sum_type(task),
      .name = name,
  };
}

static void *at(const ot_entry *entry, const ot_operand *operand, char *memory) {
  if (operand->base == OT_BASE_NONE) return NULL;
  OT_ASSERT(entry->base[operand->base] >= 0);
  return memory + entry->base[operand->base] + operand->offset;
}

static ot_comm_splits runs_at(const ot_entry *entry, const ot_operand *runs, const ot_operand *rows,
                              char *memory) {
  return (ot_comm_splits){
      .runs = (int)runs->type.dim[1], .run = at(entry, runs, memory), .rows = rows->type.dim[0]};
}

const ot_operand *ot_bind_splits(const ot_task *task) {
  return task->op == OT_OP_ALL_TO_ALL_V        ? &task->in[1]
         : task->op == OT_OP_ALL_TO_ALL_V_BACK ? &task->in[2]
                                               : NULL;
}

int64_t ot_bind_most_splits(const ot_schedule *schedule) {
  int64_t most = 0;
  for (int i = 0; i < schedule->num_segments; i++) {
    for (int k = 0; k < schedule->segments[i].num_tasks; k++) {
      const ot_operand *const tables = ot_bind_splits(&schedule->segments[i].tasks[k]);
      if (!tables) continue;
      const int64_t all = ot_type_elements(&tables[0].type) + ot_type_elements(&tables[1].type);
      if (all > most) most = all;
    }
  }
  return most;
}

ot_status ot_bind_read_splits(ot_device *device, char *memory, int ranks, int32_t *to,
                              ot_comm_splits *splits) {
  const int64_t bytes = (int64_t)ranks * splits->runs * 2 * (int64_t)sizeof *to;
  const int64_t offset = (const char *)splits->run - memory;
  splits->run = to;
  return ot_device_read(device, memory, offset, to, bytes);
}

// Dispatch sends from `home` to `here` (expert_exchange.h); combine sends from `here` to `home`.
static void bind_runs(const ot_entry *entry, const ot_task *task, char *memory,
                      ot_comm_call *call) {
  const bool back = task->op == OT_OP_ALL_TO_ALL_V_BACK;
  const ot_operand *const runs = ot_bind_splits(task);
  call->sends = runs_at(entry, &runs[back ? 1 : 0], payload(task), memory);
  call->receives = runs_at(entry, &runs[back ? 0 : 1], &task->out[0], memory);
}

ot_comm_call ot_bind_call(const ot_entry *entry, const ot_task *task, char *memory,
                          const char *name) {
  ot_comm_call call = describe(task, name);
  call.send = at(entry, &task->in[ot_op_sent_input(task->op)], memory);
  call.receive = at(entry, &task->out[0], memory);
  if (call.kind == OT_COMM_ALL_TO_ALL_V) bind_runs(entry, task, memory, &call);
  if (task->workspace_bytes > 0) {
    call.workspace = memory + entry->base[OT_BASE_SCRATCH] + task->workspace;
  }
  return call;
}

// ---- kinds of calls ----

// Adds the route of `task` to `routes` [count], unless it is there; returns their number.
static int add_route(const ot_task *task, ot_comm_route *routes, int count) {
  const ot_op_attributes *const a = &task->attributes;
  const bool message = task->kind != OT_TASK_COLLECTIVE;
  const ot_comm_route made = {.group = a->group,
                              .kind = call_kind(task->op),
                              .peer = message ? a->peer : 0,
                              .tag = message ? a->tag : 0};
  for (int i = 0; i < count; i++) {
    const ot_comm_route *const r = &routes[i];
    const bool same = r->group == made.group && r->kind == made.kind;
    if (same && r->peer == made.peer && r->tag == made.tag) return count;
  }
  routes[count] = made;
  return count + 1;
}

int ot_bind_routes(const ot_schedule *schedule, ot_arena *arena, ot_comm_route **routes) {
  int tasks = 0, count = 0;
  for (int i = 0; i < schedule->num_segments; i++) tasks += schedule->segments[i].num_tasks;
  *routes = ot_arena_array(arena, tasks + 1, sizeof **routes);
  for (int i = 0; i < schedule->num_segments; i++) {
    const ot_segment *const segment = &schedule->segments[i];
    for (int k = 0; k < segment->num_tasks; k++) {
      const ot_task_kind kind = segment->tasks[k].kind;
      const bool calls =
          kind != OT_TASK_COMPUTE && kind != OT_TASK_REPEAT && kind != OT_TASK_PUBLISH;
      if (calls) count = add_route(&segment->tasks[k], *routes, count);
    }
  }
  return count;
}

// ---- segments ----

static ot_status find_kernel(const ot_task *task, ot_kernel *kernel) {
  const ot_op_attributes *const a = &task->attributes;
  const ot_backend_rules *const rules = ot_backend_rules_of(a->backend);
  *kernel = ot_kernel_find(a->backend, task->op, a->compute);
  OT_CHECK(*kernel, OT_ENVIRONMENT, "op %s has no %s kernel on %s%s", ot_task_name(task),
           ot_dtype_name(a->compute), rules->where, rules->host ? "" : " (try device=cpu)");
  const char *const reason = ot_kernel_refuses(a->backend, task->op, a);
  OT_CHECK(!reason, OT_ENVIRONMENT, "op %s: %s (try device=cpu)", ot_task_name(task), reason);
  return OT_OK;
}

static ot_status bind_kernel(const ot_segment *segment, int index, ot_backend backend,
                             ot_bound_task *bound) {
  const ot_task *const task = &segment->tasks[index];
  OT_CHECK(task->attributes.backend == backend, OT_BUG,
           "schedule: op %s is of another back end than its schedule", ot_task_name(task));
  OT_TRY(find_kernel(task, &bound->kernel));
  bound->joined = ot_kernel_find_joined(backend, task->op, task->attributes.compute);
  OT_CHECK(bound->count <= 1 || bound->joined, OT_BUG,
           "schedule: %s, task %d: %d calls of op %s run in one launch, its kernel takes one",
           segment->name, index, bound->count, ot_task_name(task));
  return OT_OK;
}

ot_status ot_bind_check_kernels(const ot_schedule *schedule, const ot_device_info *info) {
  ot_kernel kernel;
  OT_CHECK(ot_kernel_fits_device(schedule->backend), OT_ENVIRONMENT,
           "%s has compute capability %d.%d, for which this build has no kernels (try device=cpu, "
           "or build with -DOT_CUDA_ARCHITECTURES=%d)",
           info->name, info->capability / 10, info->capability % 10, info->capability);
  for (int i = 0; i < schedule->num_segments; i++) {
    const ot_segment *const segment = &schedule->segments[i];
    for (int k = 0; k < segment->num_tasks; k++) {
      if (segment->tasks[k].kind != OT_TASK_COMPUTE) continue;
      OT_TRY(find_kernel(&segment->tasks[k], &kernel));
    }
  }
  return OT_OK;
}

static ot_status bind_call(const ot_task *task, const ot_comm *comm, const char *name) {
  const ot_op_attributes *const a = &task->attributes;
  OT_CHECK(comm, OT_RANKS, "executor: %s needs %d ranks, but there is no communicator", name,
           a->group_size);
  const int size = ot_comm_group_size(comm, a->group);
  OT_CHECK(size == a->group_size, OT_RANKS, "executor: %s needs %d ranks, its group has %d", name,
           a->group_size, size);
  const ot_comm_call call = describe(task, name);
  const int64_t needed = ot_comm_workspace(&call, size);
  OT_CHECK(task->workspace_bytes >= needed, OT_BUG, "schedule: %s needs %lld bytes, it has %lld",
           name, (long long)needed, (long long)task->workspace_bytes);
  OT_CHECK(!call.narrow || task->out[0].type.dtype == OT_BF16, OT_BUG,
           "schedule: %s reduces in %s and cannot store %s", name, ot_dtype_name(call.sum),
           ot_dtype_name(task->out[0].type.dtype));
  const bool message = task->kind != OT_TASK_COLLECTIVE;
  OT_CHECK(!message || (a->peer >= 0 && a->peer < size && a->peer != a->group_index), OT_BUG,
           "schedule: the peer of %s is %d of %d", name, a->peer, size);
  return OT_OK;
}

static ot_status bind_segment(const ot_schedule *schedule, const ot_segment *segment,
                              const ot_comm *comm, ot_arena *arena, ot_bound_task **bound) {
  OT_TRY(ot_segment_check_bodies(segment));
  OT_TRY(ot_segment_check_joined(segment));
  *bound = ot_arena_array(arena, segment->num_tasks + 1, sizeof **bound);
  for (int i = 0; i < segment->num_tasks; i++) {
    const ot_task *const task = &segment->tasks[i];
    (*bound)[i].count = task->joins ? 0 : ot_segment_launch(segment, i);
    if (task->kind == OT_TASK_COMPUTE) {
      OT_TRY(bind_kernel(segment, i, schedule->backend, &(*bound)[i]));
      continue;
    }
    if (task->kind == OT_TASK_REPEAT || task->kind == OT_TASK_PUBLISH) continue;
    (*bound)[i].name = ot_arena_format(arena, "%s/%s", segment->name, ot_task_name(task));
    OT_TRY(bind_call(task, comm, (*bound)[i].name));
  }
  return OT_OK;
}

// ---- programs ----

static ot_status check_waits(const ot_order *order, int index) {
  const ot_entry *const entry = &order->entries[index];
  for (int lane = 0; lane < OT_LANES; lane++) {
    const int other = entry->wait[lane];
    OT_CHECK(other < index, OT_BUG, "schedule: entry %d waits for entry %d, which comes later",
             index, other);
    OT_CHECK(other < 0 || order->entries[other].lane == (ot_lane)lane, OT_BUG,
             "schedule: entry %d waits on lane %s for entry %d, which is on another", index,
             ot_lane_name((ot_lane)lane), other);
  }
  return OT_OK;
}

static ot_status check_entry(const ot_schedule *schedule, const ot_order *order, int index) {
  const ot_entry *const entry = &order->entries[index];
  const ot_segment *const segment = &schedule->segments[entry->segment];
  OT_CHECK(entry->lane != OT_LANE_TENSOR, OT_BUG, "schedule: entry %d (%s) is on lane tensor",
           index, segment->name);
  for (int i = 0; i < segment->num_tasks; i++) {
    const ot_task_kind kind = segment->tasks[i].kind;
    const bool message = kind == OT_TASK_SEND || kind == OT_TASK_RECEIVE;
    const bool walked = kind != OT_TASK_REPEAT || entry->lane == OT_LANE_COMPUTE;
    OT_CHECK(walked && message == (entry->lane == OT_LANE_PIPELINE), OT_BUG,
             "schedule: entry %d (%s): %s on lane %s", index, segment->name,
             ot_task_name(&segment->tasks[i]), ot_lane_name(entry->lane));
  }
  return check_waits(order, index);
}

ot_status ot_bind(const ot_schedule *schedule, const ot_comm *comm, ot_arena *arena,
                  ot_bound_task ***bound) {
  *bound = ot_arena_array(arena, schedule->num_segments + 1, sizeof **bound);
  for (int i = 0; i < schedule->num_segments; i++) {
    OT_TRY(bind_segment(schedule, &schedule->segments[i], comm, arena, &(*bound)[i]));
  }
  for (int i = 0; i < schedule->num_orders; i++) {
    const ot_order *const order = &schedule->orders[i];
    for (int k = 0; k < order->num_entries; k++) OT_TRY(check_entry(schedule, order, k));
  }
  return OT_OK;
}
