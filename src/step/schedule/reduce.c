// SPDX-License-Identifier: Apache-2.0
// Reductions and gathers of one bucket.
#include "schedule/reduce.h"

#include "ops/operands.h"
#include "schedule/block_view.h"
#include "schedule/layout.h"
#include "schedule/tasks.h"
#include "schedule/update.h"

static const ot_bucket *bucket_of(const ot_reduce_request *r) {
  return &r->schedule->buckets[r->block];
}

static const ot_block *block_of(const ot_reduce_request *r) { return &r->graph->blocks[r->block]; }

static bool among(const ot_reduce_request *r, ot_group_kind kind) {
  return ot_view_size(r->schedule, block_of(r), kind) > 1;
}

static void begin(const ot_reduce_request *r, const char *what, ot_phase phase, ot_arena *arena,
                  ot_segment *segment) {
  const int max_tasks = 8 + 2 * r->graph->blocks[r->block].num_parameters * 4;
  const char *const use = r->tied_use ? "tied" : r->graph->blocks[r->block].name;
  ot_tasks_begin(segment, ot_arena_format(arena, "%s.%s", what, use), phase, max_tasks, arena);
}

// ---- over OT_GROUP_SHARD ----

bool ot_reduce_adds_local_squares(const ot_graph *graph, const ot_parameter *parameter, int part) {
  if (parameter->kind == OT_PARAMETER_BUFFER) return false;
  if (graph->blocks[parameter->block].experts) return false;
  return parameter->parts[part].sum_group < 0 && !ot_update_is_tied_to(graph, parameter);
}

// Rows before the end of part `last`.
static void note_rows(const ot_reduce_request *r, const ot_parameter *p, int last, int64_t rows,
                      ot_segment *segment) {
  const ot_parameter_part *const part = &p->parts[last];
  const int64_t first_row = part->first_row + part->rows - rows;
  ot_task task = ot_task_of(r->graph, OT_OP_SUM_SQUARES);
  task.attributes.accumulate = true;
  task.attributes.scale = ot_update_norm_scale(part);
  task.in[0] = ot_operand_vector(OT_BASE_GRADIENT, r->schedule->gradients,
                                 p->offset + first_row * p->cols, rows * p->cols);
  task.out[0] = ot_operand_vector(OT_BASE_SCALAR, OT_F64, OT_SCALAR_LOCAL_SQUARES, 1);
  ot_tasks_append(segment, &task, 0);
}

// Whether the part after `part` is added with it.
static bool continues(const ot_graph *graph, const ot_parameter *p, int part) {
  if (part + 1 == p->num_parts || p->parts[part + 1].constant != p->parts[part].constant) {
    return false;
  }
  return ot_reduce_adds_local_squares(graph, p, part) &&
         ot_reduce_adds_local_squares(graph, p, part + 1);
}

// |g|^2 of this rank's own gradient, for the gradient noise scale; adjacent parts are combined.
static void note_local_squares(const ot_reduce_request *r, ot_segment *segment) {
  const ot_block *const block = &r->graph->blocks[r->block];
  for (int i = 0; i < block->num_parameters && !r->tied_use; i++) {
    const ot_parameter *const p = &r->graph->parameters[block->first_parameter + i];
    int64_t rows = 0;
    for (int k = 0; k < p->num_parts; k++) {
      if (ot_reduce_adds_local_squares(r->graph, p, k)) rows += p->parts[k].rows;
      if (rows == 0 || continues(r->graph, p, k)) continue;
      note_rows(r, p, k, rows, segment);
      rows = 0;
    }
  }
}

static void scatter(const ot_reduce_request *r, bool adds, ot_segment *segment) {
  const ot_bucket *const bucket = bucket_of(r);
  const ot_dtype kept = r->schedule->gradients;
  const bool narrow = r->precision->reduce == OT_BF16 || r->precision->reduce == OT_F16;
  const ot_dtype wire = narrow ? OT_BF16 : r->graph->request.compute;
  ot_operand payload = ot_operand_vector(OT_BASE_GRADIENT, kept, 0, bucket->elements);
  int64_t staged = 0;
  if (wire != kept) {
    ot_task cast = ot_task_of(r->graph, OT_OP_CAST);
    cast.in[0] = payload;
    payload = ot_operand_vector(OT_BASE_SCRATCH, wire, 0, bucket->elements);
    cast.out[0] = payload;
    ot_tasks_append(segment, &cast, 0);
    staged = ot_align(bucket->elements * ot_dtype_bytes(wire));
  }
  ot_task sum = ot_task_of(r->graph, OT_OP_REDUCE_SCATTER);
  ot_task_set_group(&sum, r->schedule, ot_view_kind(block_of(r), OT_GROUP_SHARD));
  sum.attributes.accumulate = adds;
  sum.attributes.sum_on_wire = r->precision->sum == OT_SUM_WIRE;
  sum.in[0] = payload;
  sum.out[0] = ot_operand_vector(OT_BASE_GRADIENT_PIECE, kept, 0, bucket->shard_elements);
  ot_tasks_append(segment, &sum, staged);
}

// ---- over the other groups ----

static void all_reduce(const ot_reduce_request *r, ot_group_kind kind, int64_t first, int64_t count,
                       ot_segment *segment) {
  const ot_dtype kept = r->schedule->gradients;
  const ot_group_kind own = kind == OT_GROUP_TIED ? kind : ot_view_kind(block_of(r), kind);
  ot_tasks_all_reduce(r->graph, r->schedule, own,
                      ot_operand_vector(OT_BASE_GRADIENT_PIECE, kept, first, count), segment);
}

// Reduces elements [begin, end) of the bucket, clipped to the shard, over `kind`.
static void sum_range(const ot_reduce_request *r, ot_group_kind kind, int64_t begin, int64_t end,
                      ot_segment *segment) {
  const ot_bucket *const bucket = bucket_of(r);
  const int64_t limit = bucket->shard_first + bucket->shard_elements;
  const int64_t from = begin > bucket->shard_first ? begin : bucket->shard_first;
  const int64_t to = end < limit ? end : limit;
  if (from < to) all_reduce(r, kind, from - bucket->shard_first, to - from, segment);
}

// Reduces parts that tp ranks replicate and use on different tokens or heads; parts separated only
// by padding are combined.
static void sum_copies(const ot_reduce_request *r, ot_group_kind kind, ot_segment *segment) {
  enum { GAP = 32 };
  const ot_block *const block = &r->graph->blocks[r->block];
  int64_t begin = -GAP, end = -GAP;
  for (int i = 0; i < block->num_parameters; i++) {
    const ot_parameter *const p = &r->graph->parameters[block->first_parameter + i];
    for (int k = 0; k < p->num_parts; k++) {
      const ot_parameter_part *const part = &p->parts[k];
      const bool copied = part->sum_group == (int)ot_view_kind(block, kind);
      const int64_t first = p->offset + part->first_row * p->cols;
      const bool next = first >= end && first < end + GAP;
      if (copied != next && end > begin) {
        sum_range(r, kind, begin, end, segment);
        begin = end = -GAP;
      }
      if (!copied) continue;
      if (end <= begin) begin = first;
      end = first + part->rows * p->cols;
    }
  }
  if (end > begin) sum_range(r, kind, begin, end, segment);
}

void ot_reduce_build(const ot_reduce_request *request, bool adds, bool last, ot_arena *arena,
                     ot_segment *segment) {
  const ot_reduce_request *const r = request;
  const int64_t piece = bucket_of(r)->shard_elements;
  begin(r, last ? "reduce" : "reduce_part", OT_PHASE_REDUCE, arena, segment);
  if (among(r, OT_GROUP_SHARD)) {
    note_local_squares(r, segment);
    scatter(r, adds, segment);
  }
  if (last && among(r, OT_GROUP_CONTEXT_SUM))
    all_reduce(r, OT_GROUP_CONTEXT_SUM, 0, piece, segment);
  if (last && among(r, OT_GROUP_REPLICATE)) all_reduce(r, OT_GROUP_REPLICATE, 0, piece, segment);
  if (r->tied_use) last = false;
  if (last && among(r, OT_GROUP_TENSOR_SUM)) sum_copies(r, OT_GROUP_TENSOR_SUM, segment);
  if (last && among(r, OT_GROUP_KV_SUM)) sum_copies(r, OT_GROUP_KV_SUM, segment);
}

void ot_reduce_tied(const ot_reduce_request *request, int64_t first, int64_t count, ot_arena *arena,
                    ot_segment *segment) {
  begin(request, "reduce_uses", OT_PHASE_REDUCE, arena, segment);
  if (count > 0) all_reduce(request, OT_GROUP_TIED, first, count, segment);
}

// ---- gathers ----

typedef struct piece_gather {
  ot_group_kind group;
  ot_base piece, whole;
  ot_dtype dtype;
} piece_gather;

static void gather(const ot_reduce_request *r, const piece_gather *what, ot_segment *segment) {
  const ot_bucket *const bucket = bucket_of(r);
  ot_task task = ot_task_of(r->graph, OT_OP_ALL_GATHER);
  ot_task_set_group(&task, r->schedule, ot_view_kind(block_of(r), what->group));
  task.in[0] = ot_operand_vector(what->piece, what->dtype, 0, bucket->shard_elements);
  task.out[0] = ot_operand_vector(what->whole, what->dtype, 0, bucket->elements);
  ot_tasks_append(segment, &task, 0);
}

void ot_reduce_gather_gradient(const ot_reduce_request *request, ot_arena *arena,
                               ot_segment *segment) {
  const piece_gather gradient = {OT_GROUP_SHARD, OT_BASE_GRADIENT_PIECE, OT_BASE_GRADIENT,
                                 request->schedule->gradients};
  begin(request, "spread", OT_PHASE_REDUCE, arena, segment);
  gather(request, &gradient, segment);
}

void ot_reduce_gather_weight(const ot_reduce_request *request, ot_arena *arena,
                             ot_segment *segment) {
  const piece_gather weights = {OT_GROUP_GATHER, OT_BASE_WEIGHT_PIECE, OT_BASE_WEIGHT,
                                request->graph->request.storage};
  begin(request, "gather", OT_PHASE_GATHER, arena, segment);
  gather(request, &weights, segment);
}
