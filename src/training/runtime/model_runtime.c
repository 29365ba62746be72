// SPDX-License-Identifier: Apache-2.0
// From a request to an allocated model runtime.
#include "runtime/model_runtime.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/backend_rules.h"
#include "base/quantity.h"
#include "base/text.h"
#include "device/device.h"
#include "host/address_space.h"
#include "host/available.h"
#include "host/cores.h"
#include "runtime/runtime_state.h"
#include "schedule/rank_request.h"
#include "schedule/segment.h"

ot_backend ot_runtime_choose_device(ot_run_device device, int ranks) {
  const bool fits = ranks == 1 && ot_device_count(OT_BACKEND_CUDA) > 0;
  const bool chosen = device == OT_DEVICE_CUDA || (device == OT_DEVICE_AUTO && fits);
  return chosen ? OT_BACKEND_CUDA : OT_BACKEND_CPU;
}

ot_run_device ot_runtime_device_of(ot_backend backend) {
  static const ot_run_device devices[] = {
      [OT_BACKEND_CPU] = OT_DEVICE_CPU, [OT_BACKEND_CUDA] = OT_DEVICE_CUDA};
  return devices[backend];
}

ot_runtime_memory_use ot_runtime_use_of_memory(const ot_runtime *runtime) {
  int64_t unused = 0, all = 0;
  const ot_status status = ot_executor_device_memory(runtime->executor, &unused, &all);
  if (status == OT_OK && all > 0) return (ot_runtime_memory_use){all - unused, all};
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (ot_runtime_memory_use){(int64_t)usage.ru_maxrss * 1024, -1};
}

enum { EXCHANGE_WORDS = 1 << 17 };  // a megabyte

// ---- planning ----

// With its threads.
static ot_rank_request complete(const ot_rank_request *rank) {
  ot_rank_request wanted = *rank;
  if (wanted.graph.threads <= 0) wanted.graph.threads = ot_host_cores();
  return wanted;
}

ot_status ot_runtime_plan(const ot_rank_request *rank, ot_arena *arena, ot_graph *graphs,
                          ot_schedule *schedule) {
  const ot_rank_request wanted = complete(rank);
  return ot_rank_build(&wanted, arena, graphs, schedule);
}

// ---- create ----

// The first of the ranks that hold the same elements counts them.
static void find_place(ot_runtime *runtime, const ot_mesh *mesh, int rank) {
  const bool sharded = mesh && mesh->degree[OT_AXIS_DP_SHARD] > 1;
  const bool first_cp = !mesh || ot_mesh_coordinate(mesh, rank, OT_AXIS_CP) == 0;
  const bool first_shard = !mesh || ot_mesh_coordinate(mesh, rank, OT_AXIS_DP_SHARD) == 0;
  const bool first_copy = !mesh || ot_mesh_coordinate(mesh, rank, OT_AXIS_DP_REPLICATE) == 0;
  runtime->counts_shards = first_cp && (first_copy || !sharded);
  runtime->counts_buckets = first_cp && first_shard && first_copy;
}

// Parameters of the whole model; operators do not matter, so the smallest mode is used.
static ot_status find_whole(ot_runtime *runtime, const ot_rank_request *rank, ot_arena *arena) {
  runtime->whole = runtime->shape;
  if (!ot_mesh_splits_parameters(rank->schedule.mesh)) return OT_OK;
  runtime->whole = &runtime->whole_graph;
  return ot_rank_build_whole(rank, OT_MODE_LOGITS, arena, &runtime->whole_graph);
}

static ot_status plan(ot_runtime *runtime, const ot_rank_request *rank,
                      const ot_runtime_faults *faults, ot_arena *arena) {
  OT_TRY(ot_rank_build(rank, arena, runtime->graphs, &runtime->schedule));
  if (faults && faults->amend) faults->amend(&runtime->schedule, arena, faults->context);
  ot_heap scratch = {0};
  ot_arena check_arena = ot_heap_arena_create(&scratch);
  const ot_status checked = ot_schedule_check(&runtime->schedule, &check_arena);
  ot_heap_release(&scratch);
  if (!faults || !faults->unchecked) OT_TRY(checked);
  for (int mode = OT_MODES - 1; mode >= 0; mode--) {
    if ((rank->modes >> mode) & 1u) runtime->shape = &runtime->graphs[mode];
  }
  OT_ASSERT(runtime->shape != NULL);
  OT_TRY(find_whole(runtime, rank, arena));
  find_place(runtime, rank->schedule.mesh, rank->schedule.rank);
  return OT_OK;
}

ot_status ot_runtime_check_memory(const ot_memory_need *need, ot_arena *arena) {
  const char *what;
  const int ranks = need->local_ranks > 1 ? need->local_ranks : 1;
  const int inside = need->process_ranks > 1 ? need->process_ranks : 1;
  const int64_t there = ot_host_memory_bytes(&what);
  const int64_t needed = need->peak_bytes * ranks + ot_host_resident_bytes() * (ranks / inside);
  if (needed < there)
    return ot_host_check_address_space(need->peak_bytes * inside, need->threads * inside);
  ot_fail(OT_ENVIRONMENT, "the run needs %s, %s %s", ot_figure_bytes(arena, needed), what,
          ot_figure_bytes(arena, there));
  return ot_fail_hint(OT_ENVIRONMENT,
                      "a smaller model or micro-batch, parallel.recompute=full, or more machines");
}

// The device of this rank's back end.
static int ordinal_of(const ot_runtime_request *request) {
  if (ot_backend_rules_of(request->rank.graph.backend)->host) return 0;
  if (!request->comm) return request->ordinal;
  return ot_comm_ordinal(request->comm, ot_device_count(request->rank.graph.backend));
}

// Before any rank allocates, because ranks may share the memory.
static ot_status check_device(ot_runtime *runtime, const ot_runtime_request *request) {
  const int local_ranks = request->comm ? ot_comm_local_size(request->comm) : 1;
  const ot_memory_breakdown *const memory = &runtime->schedule.memory;
  ot_arena arena = ot_heap_arena_create(&runtime->heap);
  if (ot_backend_rules_of(request->rank.graph.backend)->host) {
    const ot_memory_need need = {
        .peak_bytes = memory->peak_bytes,
        .local_ranks = local_ranks,
        .process_ranks = request->comm ? ot_comm_process_ranks(request->comm) : 1,
        .threads = runtime->schedule.threads};
    return ot_runtime_check_memory(&need, &arena);
  }
  const ot_gpu_need need = {.ordinal = ordinal_of(request),
                            .ranks = ot_gpu_sharers(local_ranks),
                            .memory = memory,
                            .advisor = request->advisor};
  return ot_gpu_check_memory(&need, &arena, NULL);
}

static void *room_to_publish(ot_runtime *runtime, ot_arena *arena) {
  if (ot_schedule_find_order(&runtime->schedule, OT_ORDER_PUBLISH, 0) < 0) return NULL;
  const int64_t size = ot_dtype_bytes(ot_runtime_copy_dtype(runtime, OT_COPY_WEIGHT));
  return ot_arena_array(arena, ot_graph_largest_parameter(runtime->whole), size);
}

static ot_status create_executor(ot_runtime *runtime, const ot_runtime_request *request) {
  const bool poison = request->faults && request->faults->poison;
  const ot_executor_options options = {.ordinal = ordinal_of(request),
                                       .comm = request->comm,
                                       .publish = &runtime->publish,
                                       .overlap = !request->serial,
                                       .events = request->events,
                                       .no_graphs = request->no_graphs,
                                       .poison = poison};
  OT_TRY(ot_executor_create(&runtime->schedule, &options, &runtime->executor));
  // Health sums slots over ranks, of which each writes its own. Tests with poison guard the others.
  if (poison) return OT_OK;
  const ot_region *const updates = ot_schedule_region(&runtime->schedule, "updates");
  ot_executor_fill(runtime->executor, updates->offset, 0, updates->bytes);
  return OT_OK;
}

// Failures that may occur on one rank are agreed on before the next collective.
static ot_status create(ot_runtime *runtime, const ot_runtime_request *request,
                        bool *lacks_kernel) {
  ot_comm *const comm = request->comm;
  if (!runtime) return ot_fail(OT_ENVIRONMENT, "out of memory");
  const ot_mesh *const mesh = request->rank.schedule.mesh;
  runtime->model = *request->rank.graph.model;
  runtime->modes = request->rank.modes;
  runtime->publish = (ot_executor_publish){ot_runtime_publish_block, runtime};
  if (mesh) runtime->mesh = *mesh;
  if (comm && ot_comm_size(comm) > 1) runtime->comm = comm;
  ot_arena arena = ot_heap_arena_create(&runtime->heap);
  ot_rank_request rank = complete(&request->rank);
  rank.graph.model = &runtime->model;
  ot_status status = plan(runtime, &rank, request->faults, &arena);
  if (status == OT_OK && rank.schedule.rank == 0)
    runtime->published = room_to_publish(runtime, &arena);
  if (status == OT_OK && !ot_backend_rules_of(rank.graph.backend)->host) {
    status = ot_gpu_check_kernels(ordinal_of(request), &runtime->schedule);
    *lacks_kernel = status != OT_OK;
  }
  if (status == OT_OK) status = check_device(runtime, request);
  if (!comm || ot_comm_size(comm) == 1) {
    return status == OT_OK ? create_executor(runtime, request) : status;
  }
  if (status == OT_OK) status = ot_host_allreduce_create(comm, EXCHANGE_WORDS, &runtime->exchange);
  OT_TRY(ot_comm_agree(comm, status));
  OT_TRY(ot_executor_join(&runtime->schedule, comm, ordinal_of(request)));
  return ot_comm_agree(comm, create_executor(runtime, request));
}

static ot_status create_on_cpu(const ot_runtime_request *request, ot_runtime **out) {
  ot_runtime_request own = *request;
  const char *const reason = ot_fail_message();
  own.rank.graph.backend = OT_BACKEND_CPU;
  own.may_fall_back = false;
  char note[sizeof(*out)->note];
  ot_text_format(note, sizeof note, "the CPU runs it: %s", reason);
  OT_TRY(ot_runtime_create(&own, out));
  ot_text_format((*out)->note, sizeof(*out)->note, "%s", note);
  return OT_OK;
}

ot_status ot_runtime_create(const ot_runtime_request *request, ot_runtime **out) {
  bool lacks_kernel = false;
  *out = calloc(1, sizeof **out);
  const ot_status status = create(*out, request, &lacks_kernel);
  if (status != OT_OK) ot_runtime_destroy(out);
  return lacks_kernel && request->may_fall_back ? create_on_cpu(request, out) : status;
}

void ot_runtime_destroy(ot_runtime **runtime) {
  if (!runtime || !*runtime) return;
  ot_executor_destroy(&(*runtime)->executor);
  ot_host_allreduce_destroy(&(*runtime)->exchange);
  ot_heap_release(&(*runtime)->heap);
  free(*runtime);
  *runtime = NULL;
}

const char *ot_runtime_note(const ot_runtime *runtime) {
  return runtime->note[0] != '\0' ? runtime->note : NULL;
}

const ot_schedule *ot_runtime_schedule(const ot_runtime *runtime) { return &runtime->schedule; }

ot_backend ot_runtime_backend(const ot_runtime *runtime) { return runtime->shape->request.backend; }

ot_comm *ot_runtime_comm(const ot_runtime *runtime) { return runtime->comm; }

const ot_mesh *ot_runtime_mesh(const ot_runtime *runtime) {
  return runtime->mesh.ranks > 0 ? &runtime->mesh : NULL;
}

ot_executor *ot_runtime_executor(ot_runtime *runtime) { return runtime->executor; }

const ot_graph *ot_runtime_graph(const ot_runtime *runtime, ot_mode mode) {
  OT_ASSERT((runtime->modes >> mode) & 1u);
  return &runtime->graphs[mode];
}

bool ot_runtime_has_mode(const ot_runtime *runtime, ot_mode mode) {
  return ((runtime->modes >> mode) & 1u) != 0;
}

const ot_graph *ot_runtime_any_graph(const ot_runtime *runtime) { return runtime->shape; }

const ot_graph *ot_runtime_whole_graph(const ot_runtime *runtime) { return runtime->whole; }

// ---- batches ----

static const ot_region *order_region(const ot_runtime *runtime, ot_mode mode, const char *name) {
  for (int i = 0; i < runtime->schedule.num_regions; i++) {
    const ot_region *const region = &runtime->schedule.regions[i];
    const bool mine = !region->persistent && region->order == (int)ot_order_of_mode(mode);
    if (mine && ot_text_equal(region->name, name)) return region;
  }
  OT_UNREACHABLE();
}

int64_t ot_runtime_batch_offset(const ot_runtime *runtime, ot_mode mode, int micro_batch,
                                ot_batch_field field) {
  const ot_graph *const graph = ot_runtime_graph(runtime, mode);
  return order_region(runtime, mode, "batch")->offset +
         micro_batch * ot_segment_batch_bytes(graph) + ot_segment_batch_offset(graph, field);
}

int64_t ot_runtime_batch_bytes(const ot_runtime *runtime, ot_mode mode, ot_batch_field field) {
  const ot_tensor_type type = ot_graph_batch_type(ot_runtime_graph(runtime, mode), field);
  return ot_type_bytes(&type);
}

void ot_runtime_load_batch(ot_runtime *runtime, ot_mode mode, int micro_batch, ot_batch_field field,
                           const void *data) {
  ot_executor_write(runtime->executor, ot_runtime_batch_offset(runtime, mode, micro_batch, field),
                    data, ot_runtime_batch_bytes(runtime, mode, field));
}

void ot_runtime_read_batch(const ot_runtime *runtime, ot_mode mode, int micro_batch,
                           ot_batch_field field, void *to) {
  ot_executor_read(runtime->executor, ot_runtime_batch_offset(runtime, mode, micro_batch, field),
                   to, ot_runtime_batch_bytes(runtime, mode, field));
}

void ot_runtime_read_result(const ot_runtime *runtime, ot_mode mode, ot_result result, void *to,
                            int64_t bytes) {
  const ot_graph *const graph = ot_runtime_graph(runtime, mode);
  const int64_t offset =
      order_region(runtime, mode, "result")->offset + ot_segment_result_offset(graph, result);
  ot_executor_read(runtime->executor, offset, to, bytes);
}

void ot_runtime_expert_sums(const ot_runtime *runtime, double sums[OT_EXPERT_SUMS]) {
  const ot_region *const region = ot_schedule_region(&runtime->schedule, "expert_sums");
  double block[OT_EXPERT_SUMS];
  for (int k = 0; k < OT_EXPERT_SUMS; k++) sums[k] = 0;
  for (int i = 0; i < runtime->schedule.num_blocks; i++) {
    ot_executor_read(runtime->executor, region->offset + (int64_t)i * (int64_t)sizeof block, block,
                     sizeof block);
    for (int k = 0; k < OT_EXPERT_SUMS; k++) sums[k] += block[k];
  }
}

int ot_runtime_hashed_micro_batches(const ot_runtime *runtime) {
  const int order = ot_schedule_find_order(&runtime->schedule, OT_ORDER_CHECKSUM, 0);
  OT_ASSERT(order >= 0);
  return runtime->schedule.orders[order].micro_batches;
}

ot_status ot_runtime_hash_gradients(ot_runtime *runtime, int64_t *hashes) {
  const ot_schedule *const schedule = &runtime->schedule;
  const ot_region *const region = ot_schedule_region(schedule, "squares");
  OT_TRY(
      ot_executor_run(runtime->executor, ot_schedule_find_order(schedule, OT_ORDER_CHECKSUM, 0)));
  const int64_t slots = schedule->slots_per_part, bytes = 8 * schedule->num_parts * slots;
  uint64_t *const found = malloc((size_t)bytes);
  OT_CHECK(found, OT_ENVIRONMENT, "out of memory (hashes of gradients)");
  ot_executor_read(runtime->executor, region->offset, found, bytes);
  for (int part = 0; part < schedule->num_parts; part++) {
    uint64_t sum = 0;
    for (int64_t slot = 0; slot < slots; slot++) sum += found[part * slots + slot];
    hashes[part] = (int64_t)sum;
  }
  free(found);
  return OT_OK;
}

ot_status ot_runtime_run(ot_runtime *runtime, ot_mode mode, int micro_batches) {
  const int order =
      ot_schedule_find_order(&runtime->schedule, ot_order_of_mode(mode), micro_batches);
  OT_ASSERT(order >= 0);
  return ot_executor_run(runtime->executor, order);
}
