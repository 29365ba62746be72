// SPDX-License-Identifier: Apache-2.0
#include "judge/recomputation.h"

#include <math.h>
#include <string.h>

#include "describe/moe.h"
#include "host/heap.h"
#include "judge/assemble.h"
#include "judge/block_tensors.h"

typedef struct stream {
  ot_graph graph;
  ot_plain *plain;
  ot_plain_type type;
  ot_dtype dtype;
  bool shares;       // the forward pass of an earlier stream is its own
  bool wanted;       // its gradients are
  void **inputs;     // [num_blocks] what enters each block
  void *slope[2];    // gradient of what the block returned, and of what entered it
  char *buffer;      // gradients of the block that is computed
  void **gradients;  // [num_parameters] in the buffer; of a tied head, until the embedding has
                     // added them
} stream;

typedef struct recomputation {
  const ot_recomputation_request *request;
  ot_arena *arena;
  int num_blocks, num_parameters;
  int first_block, end_block;  // that are computed
  const ot_graph *graph;       // of stream 0: parameters are the same in all
  ot_block_tensors tensors;
  ot_plain_scratch scratch;  // of all streams
  stream *streams;
  int tied;        // parameter of a tied head; -1: none
  double **chunk;  // [num_streams + 1] lines of gradients and of weights
} recomputation;

// ---- weights ----

static ot_status read_weight(void *context, const ot_weight_tensor *t, int64_t first, int64_t count,
                             double *out) {
  const recomputation *const r = context;
  const ot_recorded_step *const step = r->request->step;
  ot_recorded_view view;
  if (!ot_recorded_find(step, OT_RECORDED_WEIGHT, t->name, &view)) {
    ot_fail(OT_ENVIRONMENT, "%s: there is no weight %s", step->path, t->name);
    return ot_fail_hint(OT_ENVIRONMENT,
                        "record every parameter of the model under its Hugging Face name");
  }
  OT_CHECK(view.elements == t->rows * t->cols, OT_USAGE,
           "%s: weight %s has %lld elements, config.json says %lld", step->path, t->name,
           (long long)view.elements, (long long)(t->rows * t->cols));
  const ot_assembly_request some = {.view = &view, .first = first, .count = count, .dtype = OT_F64};
  return ot_assemble(step, &some, NULL, out, NULL);
}

// ---- streams ----

// Whether two streams have the same forward pass: they differ in what is predicted only.
static bool same_forward(const ot_recomputation_stream *a, const ot_recomputation_stream *b) {
  const ot_plain_batch *const x = &a->step->rows.batch, *const y = &b->step->rows.batch;
  return a->type == b->type && a->reversed == b->reversed && x->ids == y->ids &&
         x->positions == y->positions && x->first == y->first && x->choices == y->choices &&
         memcmp(&a->step->model, &b->step->model, sizeof a->step->model) == 0;
}

static int64_t input_bytes(const stream *s, int block) {
  const ot_graph *const g = &s->graph;
  return ot_plain_inputs(s->plain, block) * g->request.sequence_length *
         g->request.model->hidden_size * ot_dtype_bytes(s->dtype);
}

// Whether a block that is computed reads or returns what enters block `block`.
static bool is_entered(const recomputation *r, const ot_graph *graph, int block) {
  const int end = r->request->end_block > 0 ? r->request->end_block : graph->num_blocks;
  return block >= r->request->first_block && block <= end;
}

// Reserves what enters the blocks of stream `index`, which an earlier one may have.
static void reserve_inputs(recomputation *r, int index) {
  const ot_recomputation_stream *const how = r->request->streams;
  stream *const s = &r->streams[index];
  for (int i = 0; i < index && !s->shares && !how[index].apart; i++) {
    s->shares = same_forward(&how[i], &how[index]);
    s->inputs = r->streams[i].inputs;
  }
  if (s->shares) return;
  s->inputs = ot_arena_array(r->arena, s->graph.num_blocks, sizeof *s->inputs);
  for (int b = 1; b < s->graph.num_blocks; b++) {
    if (is_entered(r, &s->graph, b)) s->inputs[b] = ot_arena_take(r->arena, input_bytes(s, b));
  }
}

static ot_status open_stream(recomputation *r, int index) {
  const ot_recomputation_stream *const how = &r->request->streams[index];
  stream *const s = &r->streams[index];
  int64_t most = 0;
  OT_TRY(ot_plain_build_graph(&how->step->model, how->step->rows.batch.rows, r->arena, &s->graph));
  const ot_plain_request request = {.graph = &s->graph,
                                    .batch = &how->step->rows.batch,
                                    .type = how->type,
                                    .reversed = how->reversed,
                                    .threads = r->request->threads,
                                    .losses = how->step->losses,
                                    .scratch = &r->scratch};
  OT_TRY(ot_plain_create(&request, &s->plain));
  s->type = how->type;
  s->dtype = ot_plain_dtype(how->type);
  s->wanted = true;
  s->gradients = ot_arena_array(r->arena, s->graph.num_parameters, sizeof *s->gradients);
  reserve_inputs(r, index);
  for (int b = 1; b < s->graph.num_blocks; b++)
    most = input_bytes(s, b) > most ? input_bytes(s, b) : most;
  for (int k = 0; k < 2; k++) s->slope[k] = ot_arena_take(r->arena, most);
  return OT_OK;
}

static void reserve_chunk(recomputation *r) {
  int64_t most = 0;
  for (int t = 0; t < r->tensors.map.num_tensors; t++) {
    const ot_weight_tensor *const tensor = &r->tensors.map.tensors[t];
    const int64_t elements = ot_weight_chunk_lines(tensor) * ot_weight_line_elements(tensor);
    most = elements > most ? elements : most;
  }
  r->chunk = ot_arena_array(r->arena, r->request->num_streams + 1, sizeof *r->chunk);
  for (int i = 0; i <= r->request->num_streams; i++)
    r->chunk[i] = ot_arena_array(r->arena, most, sizeof **r->chunk);
}

// Gradients of a block, and of a tied head, which last until the embedding.
static void reserve_gradients(recomputation *r, stream *s) {
  const int64_t bytes = ot_dtype_bytes(s->dtype);
  s->buffer = ot_arena_take(r->arena, r->tensors.elements * bytes);
  if (r->tied < 0) return;
  const int64_t elements = ot_parameter_elements(&r->graph->parameters[r->tied]);
  s->gradients[r->tied] = ot_arena_take(r->arena, elements * bytes);
}

static ot_status open_streams(recomputation *r) {
  const int count = r->request->num_streams;
  const ot_block_reader reader = {read_weight, r};
  unsigned types = 0;
  r->streams = ot_arena_array(r->arena, count, sizeof *r->streams);
  for (int i = 0; i < count; i++) {
    OT_TRY(open_stream(r, i));
    types |= 1u << r->streams[i].type;
  }
  r->graph = &r->streams[0].graph;
  r->num_blocks = r->graph->num_blocks;
  r->first_block = r->request->first_block;
  r->end_block = r->request->end_block > 0 ? r->request->end_block : r->num_blocks;
  r->num_parameters = r->graph->num_parameters;
  r->tied = -1;
  for (int i = 0; i < r->num_parameters; i++)
    r->tied = r->graph->parameters[i].tied_to >= 0 ? i : r->tied;
  OT_TRY(ot_block_tensors_create(r->graph, &reader, types, r->arena, &r->tensors));
  reserve_chunk(r);
  for (int i = 0; i < count; i++) reserve_gradients(r, &r->streams[i]);
  return OT_OK;
}

// ---- blocks ----

static ot_plain_block block_of(const recomputation *r, const stream *s, int block) {
  return (ot_plain_block){.index = block,
                          .weights = ot_block_tensors_weights(&r->tensors, s->type)};
}

// Zeros, to which the backward pass adds.
static void clear_gradients(const recomputation *r, stream *s, int block) {
  const ot_block *const b = &r->graph->blocks[block];
  const int64_t bytes = ot_dtype_bytes(s->dtype);
  for (int i = b->first_parameter; i < b->first_parameter + b->num_parameters; i++) {
    const ot_parameter *const p = &r->graph->parameters[i];
    if (p->kind == OT_PARAMETER_BUFFER || i == r->tied) continue;
    s->gradients[i] = s->buffer + r->tensors.offset[i] * bytes;
    memset(s->gradients[i], 0, (size_t)(ot_parameter_elements(p) * bytes));
  }
}

static void report(const recomputation *r, int done) {
  const int all = 2 * (r->end_block - r->first_block) - 1;
  if (r->request->progress) r->request->progress(r->request->context, done, all);
}

// Sends what a block exchanges: its block, direction, values and router.
static ot_status exchange(const recomputation *r, int index, ot_recomputed_exchange e) {
  const stream *const s = &r->streams[index];
  if (!r->request->exchange) return OT_OK;
  e.stream = index;
  e.dtype = s->dtype;
  e.inputs = ot_plain_inputs(s->plain, e.backward ? e.block : e.block + 1);
  return r->request->exchange(r->request->context, &e);
}

static ot_status run_forward(recomputation *r, int b) {
  OT_TRY(ot_block_tensors_load(&r->tensors, b));
  for (int i = 0; i < r->request->num_streams; i++) {
    stream *const s = &r->streams[i];
    if (s->shares) continue;
    ot_recomputed_exchange e = {.block = b, .values = s->inputs[b + 1]};
    ot_plain_block block = block_of(r, s, b);
    block.router = &e.router;
    ot_plain_forward(s->plain, &block, s->inputs[b], s->inputs[b + 1]);
    OT_TRY(exchange(r, i, e));
  }
  return OT_OK;
}

// Fills in what enters the first block and the gradient of what leaves the last one.
static ot_status begin_range(recomputation *r) {
  const int first = r->first_block, end = r->end_block;
  for (int i = 0; i < r->request->num_streams; i++) {
    stream *const s = &r->streams[i];
    const ot_recomputed_exchange enter = {.block = first - 1, .values = s->inputs[first]};
    const ot_recomputed_exchange leave = {.block = end, .backward = true, .values = s->slope[0]};
    if (first > 1) OT_TRY(exchange(r, i, enter));
    if (end < r->num_blocks) OT_TRY(exchange(r, i, leave));
  }
  return first == 1 ? run_forward(r, 0) : OT_OK;
}

static ot_status forward(recomputation *r) {
  const int last = r->num_blocks - 1;
  OT_TRY(begin_range(r));
  for (int b = r->first_block; b < r->end_block && b < last; b++) {
    OT_TRY(run_forward(r, b));
    report(r, b + 1 - r->first_block);
  }
  return OT_OK;
}

// ---- gradients of a tensor ----

// Lines of the gradient of stream `s`; a tied tensor has the gradients of both uses.
static void gather(const recomputation *r, stream *s, ot_weight_lines_request lines, double *out) {
  const int parameter = lines.tensor->pieces[0].parameter;
  lines.dtype = s->dtype;
  lines.values = (const void *const *)s->gradients;
  ot_weight_lines_gather(&lines, out);
  if (r->tied < 0 || r->graph->parameters[r->tied].tied_to != parameter) return;
  void *const own = s->gradients[parameter];
  s->gradients[parameter] = s->gradients[r->tied];
  lines.add = true;
  ot_weight_lines_gather(&lines, out);
  s->gradients[parameter] = own;
}

static void gather_weight(const recomputation *r, ot_weight_lines_request lines, double *out) {
  const int first = r->graph->blocks[r->tensors.block].first_parameter;
  lines.dtype = r->streams[0].dtype;
  lines.values = ot_block_tensors_weights(&r->tensors, r->streams[0].type) - first;
  ot_weight_lines_gather(&lines, out);
}

static ot_status send_lines(recomputation *r, const ot_weight_lines_request *lines) {
  const int streams = r->request->num_streams;
  const ot_weight_tensor *const t = lines->tensor;
  const int64_t length = ot_weight_line_elements(t);
  const double *gradients[OT_RECOMPUTATION_STREAMS] = {NULL};
  gather_weight(r, *lines, r->chunk[streams]);
  for (int i = 0; i < streams; i++) {
    if (!r->streams[i].wanted) continue;
    gather(r, &r->streams[i], *lines, r->chunk[i]);
    gradients[i] = r->chunk[i];
  }
  const ot_recomputed values = {.name = t->name,
                                .elements = t->rows * t->cols,
                                .first = lines->first * length,
                                .count = lines->count * length,
                                .weight = r->chunk[streams],
                                .gradients = gradients};
  return r->request->receive(r->request->context, &values);
}

static ot_status send_tensor(recomputation *r, const ot_weight_tensor *t) {
  const int64_t lines = ot_weight_lines(t), most = ot_weight_chunk_lines(t);
  for (int64_t first = 0; first < lines; first += most) {
    const int64_t left = lines - first;
    const ot_weight_lines_request request = {
        .graph = r->graph, .tensor = t, .first = first, .count = left < most ? left : most};
    OT_TRY(send_lines(r, &request));
  }
  return OT_OK;
}

static ot_status send_block(recomputation *r, int block) {
  for (int t = r->tensors.map.num_tensors - 1; t >= 0; t--) {
    const ot_weight_tensor *const tensor = &r->tensors.map.tensors[t];
    const ot_parameter *const p = &r->graph->parameters[tensor->pieces[0].parameter];
    if (p->block == block && ot_parameter_is_trained(p)) OT_TRY(send_tensor(r, tensor));
  }
  return OT_OK;
}

// ---- backward ----

// The losses of the router of a layer that the step adds.
static double router_losses(const ot_judged_step *step, const ot_plain_router *router) {
  const double balance =
      step->losses & OT_PLAIN_BALANCE ? ot_moe_aux_weight(&step->model) * router->balance : 0;
  const double z = step->losses & OT_PLAIN_Z ? step->model.moe.z_coefficient * router->z : 0;
  return balance + z;
}

static void pass_back(const recomputation *r, int index, int b, double *loss) {
  stream *const s = &r->streams[index];
  ot_plain_block block = block_of(r, s, b);
  ot_plain_router router = {0};
  clear_gradients(r, s, b);
  block.router = &router;
  block.gradients = s->gradients + r->graph->blocks[b].first_parameter;
  if (b + 1 == r->num_blocks) {
    *loss = ot_plain_head(s->plain, &block, s->inputs[b], s->slope[0]);
    return;
  }
  ot_plain_backward(s->plain, &block, s->inputs[b], s->slope[0], b > 0 ? s->slope[1] : NULL);
  *loss += router_losses(r->request->streams[index].step, &router);
  void *const entered = s->slope[1];
  s->slope[1] = s->slope[0];
  s->slope[0] = entered;
}

static void drop_unwanted(recomputation *r) {
  for (int i = 0; r->request->wants && i < r->request->num_streams; i++) {
    stream *const s = &r->streams[i];
    s->wanted = s->wanted && r->request->wants(r->request->context, i);
  }
}

static ot_status run_backward(recomputation *r, int b, double *losses) {
  OT_TRY(ot_block_tensors_load(&r->tensors, b));
  for (int i = 0; i < r->request->num_streams; i++) {
    stream *const s = &r->streams[i];
    if (!s->wanted) continue;
    pass_back(r, i, b, &losses[i]);
    const ot_recomputed_exchange entered = {.block = b, .backward = true, .values = s->slope[0]};
    if (b > 0) OT_TRY(exchange(r, i, entered));
  }
  return OT_OK;
}

static ot_status backward(recomputation *r, double *losses) {
  const int all = 2 * (r->end_block - r->first_block) - 1;
  for (int b = r->end_block - 1; b >= r->first_block; b--) {
    OT_TRY(run_backward(r, b, losses));
    OT_TRY(send_block(r, b));
    drop_unwanted(r);
    report(r, all - (b - r->first_block));
  }
  return OT_OK;
}

static ot_status compute(recomputation *r, double *losses) {
  OT_TRY(open_streams(r));
  for (int i = 0; i < r->request->num_streams; i++) losses[i] = NAN;
  OT_TRY(forward(r));
  return backward(r, losses);
}

ot_status ot_recomputation_run(const ot_recomputation_request *request, double *losses) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  recomputation r = {.request = request, .arena = &arena};
  OT_ASSERT(request->num_streams <= OT_RECOMPUTATION_STREAMS);
  const ot_status status = compute(&r, losses);
  for (int i = 0; r.streams && i < request->num_streams; i++) ot_plain_destroy(&r.streams[i].plain);
  ot_heap_release(&r.scratch.heap);
  ot_heap_release(&heap);
  return status;
}
