// SPDX-License-Identifier: Apache-2.0
#include "judge/recomputation.h"

#include <string.h>

#include "checkpoint/weights.h"
#include "host/heap.h"
#include "judge/assemble.h"

enum { CHUNK = 1 << 18 };

typedef struct stream {
  ot_graph graph;
  ot_plain *plain;
  ot_dtype dtype;
  void **inputs;     // [num_blocks] what enters each block
  void *slope[2];    // gradient of what the block returned, and of what entered it
  void **gradients;  // [num_parameters] of the block that is computed; of a tied head, until the
                     // embedding has added them
} stream;

typedef struct recomputation {
  const ot_recomputation_request *request;
  ot_arena *arena;  // of the whole computation
  int num_blocks, num_parameters;
  const ot_graph *graph;  // of stream 0: parameters are the same in all
  ot_weight_map map;
  stream *streams;
  double **weights;        // [num_parameters] of the block that is computed
  float **narrow_weights;  // the same as float, if a stream needs them
  bool narrow;             // whether a stream computes in float
  ot_heap block_heap;      // weights and gradients of one block
  ot_arena block;
} recomputation;

// ---- streams ----

static ot_status build_graph(const ot_judged_step *step, ot_arena *arena, ot_graph *out) {
  const ot_graph_request request = {.model = &step->model,
                                    .mode = OT_MODE_TRAIN,
                                    .micro_batch_size = 1,
                                    .sequence_length = step->rows.batch.rows,
                                    .compute = OT_F64,
                                    .storage = OT_F64,
                                    .threads = 1};
  return ot_graph_build(&request, arena, out);
}

static ot_status open_stream(recomputation *r, const ot_recomputation_stream *how, stream *s) {
  OT_TRY(build_graph(how->step, r->arena, &s->graph));
  const ot_plain_request request = {.graph = &s->graph,
                                    .batch = &how->step->rows.batch,
                                    .type = how->type,
                                    .reversed = how->reversed,
                                    .threads = r->request->threads,
                                    .losses = how->step->losses};
  OT_TRY(ot_plain_create(&request, &s->plain));
  s->dtype = ot_plain_dtype(how->type);
  s->inputs = ot_arena_array(r->arena, s->graph.num_blocks, sizeof *s->inputs);
  s->gradients = ot_arena_array(r->arena, s->graph.num_parameters, sizeof *s->gradients);
  return OT_OK;
}

static int64_t input_bytes(const stream *s, int block) {
  const ot_graph *const g = &s->graph;
  return ot_plain_inputs(s->plain, block) * g->request.sequence_length *
         g->request.model->hidden_size * ot_dtype_bytes(s->dtype);
}

static ot_status open_streams(recomputation *r) {
  const int count = r->request->num_streams;
  r->streams = ot_arena_array(r->arena, count, sizeof *r->streams);
  for (int i = 0; i < count; i++) {
    stream *const s = &r->streams[i];
    int64_t most = 0;
    OT_TRY(open_stream(r, &r->request->streams[i], s));
    for (int b = 1; b < s->graph.num_blocks; b++) {
      const int64_t bytes = input_bytes(s, b);
      most = bytes > most ? bytes : most;
      s->inputs[b] = ot_arena_take(r->arena, bytes);
    }
    for (int k = 0; k < 2; k++) s->slope[k] = ot_arena_take(r->arena, most);
    r->narrow = r->narrow || s->dtype == OT_F32;
  }
  r->graph = &r->streams[0].graph;
  r->num_blocks = r->graph->num_blocks;
  r->num_parameters = r->graph->num_parameters;
  r->weights = ot_arena_array(r->arena, r->num_parameters, sizeof *r->weights);
  r->narrow_weights = ot_arena_array(r->arena, r->num_parameters, sizeof *r->narrow_weights);
  return ot_weight_map_build(r->arena, r->graph->parameters, r->num_parameters, &r->map);
}

// ---- weights of a block ----

static const ot_parameter *parameter_of(const recomputation *r, const ot_weight_tensor *t) {
  return &r->graph->parameters[t->pieces[0].parameter];
}

// The place of element `column` of our row `row` in the order of the file.
static int64_t place_of(const ot_weight_tensor *t, int64_t row, int64_t column) {
  const int64_t file_row = ot_weight_file_row(t, row);
  return t->transposed ? column * t->rows + file_row : file_row * t->cols + column;
}

typedef void visit(void *context, int parameter, int64_t element, int64_t place);

// Each element of an HF tensor: its parameter and place there, and its place in the file.
static void each_element(const recomputation *r, const ot_weight_tensor *t, visit *call,
                         void *context) {
  for (int k = 0; k < t->num_pieces; k++) {
    const ot_weight_slice *const p = &t->pieces[k];
    const int64_t cols = r->graph->parameters[p->parameter].cols;
    for (int64_t i = 0; i < p->rows; i++) {
      for (int64_t c = 0; c < cols; c++)
        call(context, p->parameter, (p->first_row + i) * cols + c, place_of(t, p->hf_first + i, c));
    }
  }
}

typedef struct scattering {
  double **to;         // by parameter
  const double *from;  // in the order of the file
} scattering;

static void scatter(void *context, int parameter, int64_t element, int64_t place) {
  const scattering *const s = context;
  s->to[parameter][element] = s->from[place];
}

static int64_t elements_of(const ot_weight_tensor *t) { return t->rows * t->cols; }

// The values of an HF tensor in the order of its file.
static ot_status read_weight(recomputation *r, const ot_weight_tensor *t, double *out) {
  ot_recorded_view view;
  const ot_recorded_step *const step = r->request->step;
  if (!ot_recorded_find(step, OT_RECORDED_WEIGHT, t->name, &view)) {
    ot_fail(OT_ENVIRONMENT, "%s: there is no weight %s", step->path, t->name);
    return ot_fail_hint(OT_ENVIRONMENT,
                        "record every parameter of the model under its Hugging Face name");
  }
  OT_CHECK(view.elements == elements_of(t), OT_USAGE,
           "%s: weight %s has %lld elements, config.json says %lld", step->path, t->name,
           (long long)view.elements, (long long)elements_of(t));
  const ot_assembly_request whole = {.view = &view, .count = view.elements, .dtype = OT_F64};
  ot_assembly copies;
  return ot_assemble(step, &whole, &r->block, out, &copies);
}

static void copy_narrow(recomputation *r, int parameter) {
  const int64_t count = ot_parameter_elements(&r->graph->parameters[parameter]);
  float *const to = r->narrow_weights[parameter] = ot_arena_array(&r->block, count, sizeof(float));
  for (int64_t i = 0; i < count; i++) to[i] = (float)r->weights[parameter][i];
}

static int source_of(const recomputation *r, int parameter) {
  const int tied = r->graph->parameters[parameter].tied_to;
  return tied >= 0 ? tied : parameter;
}

// The weights of a block. A tied head has those of the embedding.
static ot_status load_block(recomputation *r, int block) {
  const ot_block *const b = &r->graph->blocks[block];
  ot_heap_release(&r->block_heap);
  r->block = ot_heap_arena_create(&r->block_heap);
  for (int i = 0; i < b->num_parameters; i++) {
    const int p = source_of(r, b->first_parameter + i);
    r->weights[p] =
        ot_arena_array(&r->block, ot_parameter_elements(&r->graph->parameters[p]), sizeof(double));
  }
  for (int t = 0; t < r->map.num_tensors; t++) {
    const ot_weight_tensor *const tensor = &r->map.tensors[t];
    const int parameter = tensor->pieces[0].parameter;
    bool needed = parameter_of(r, tensor)->block == block;
    for (int i = 0; i < b->num_parameters && !needed; i++)
      needed = source_of(r, b->first_parameter + i) == parameter;
    if (!needed) continue;
    scattering s = {r->weights, NULL};
    double *const values = ot_arena_array(&r->block, elements_of(tensor), sizeof *values);
    OT_TRY(read_weight(r, tensor, values));
    s.from = values;
    each_element(r, tensor, scatter, &s);
  }
  for (int i = 0; i < b->num_parameters && r->narrow; i++)
    copy_narrow(r, source_of(r, b->first_parameter + i));
  return OT_OK;
}

// ---- blocks ----

static ot_plain_block block_of(recomputation *r, const stream *s, int block, bool gradients) {
  const ot_block *const b = &r->graph->blocks[block];
  const void **const weights = ot_arena_array(&r->block, b->num_parameters, sizeof *weights);
  for (int i = 0; i < b->num_parameters; i++) {
    const int p = source_of(r, b->first_parameter + i);
    weights[i] = s->dtype == OT_F64 ? (const void *)r->weights[p] : r->narrow_weights[p];
  }
  return (ot_plain_block){.index = block,
                          .weights = weights,
                          .gradients = gradients ? s->gradients + b->first_parameter : NULL};
}

static void begin_gradients(recomputation *r, stream *s, int block) {
  const ot_block *const b = &r->graph->blocks[block];
  for (int i = b->first_parameter; i < b->first_parameter + b->num_parameters; i++) {
    const ot_parameter *const p = &r->graph->parameters[i];
    ot_arena *const arena = p->tied_to >= 0 ? r->arena : &r->block;
    s->gradients[i] =
        p->kind == OT_PARAMETER_BUFFER
            ? NULL
            : ot_arena_array(arena, ot_parameter_elements(p), ot_dtype_bytes(s->dtype));
  }
}

static void report(const recomputation *r, int done) {
  if (r->request->progress) r->request->progress(r->request->context, done, 2 * r->num_blocks - 1);
}

static ot_status forward(recomputation *r) {
  for (int b = 0; b + 1 < r->num_blocks; b++) {
    OT_TRY(load_block(r, b));
    for (int i = 0; i < r->request->num_streams; i++) {
      stream *const s = &r->streams[i];
      const ot_plain_block block = block_of(r, s, b, false);
      ot_plain_forward(s->plain, &block, s->inputs[b], s->inputs[b + 1]);
    }
    report(r, b + 1);
  }
  return OT_OK;
}

static double value_of(ot_dtype dtype, const void *data, int64_t i) {
  return dtype == OT_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

// ---- gradients of a tensor ----

typedef struct gathering {
  const recomputation *r;
  int stream;  // gradients only
  double *to;  // in the order of the file
} gathering;

static void gather_weight(void *context, int parameter, int64_t element, int64_t place) {
  const gathering *const g = context;
  g->to[place] = g->r->weights[parameter][element];
}

// A tied tensor has the gradients of both uses.
static void gather(void *context, int parameter, int64_t element, int64_t place) {
  const gathering *const g = context;
  const stream *const s = &g->r->streams[g->stream];
  double sum = value_of(s->dtype, s->gradients[parameter], element);
  for (int i = parameter + 1; i < g->r->num_parameters; i++) {
    if (g->r->graph->parameters[i].tied_to == parameter)
      sum += value_of(s->dtype, s->gradients[i], element);
  }
  g->to[place] = sum;
}

static ot_status send_tensor(recomputation *r, const ot_weight_tensor *t) {
  const int streams = r->request->num_streams;
  const int64_t elements = elements_of(t);
  double *const weight = ot_arena_array(&r->block, elements, sizeof *weight);
  double **const all = ot_arena_array(&r->block, streams, sizeof *all);
  const double **const chunk = ot_arena_array(&r->block, streams, sizeof *chunk);
  gathering weights = {.r = r, .to = weight};
  each_element(r, t, gather_weight, &weights);
  for (int i = 0; i < streams; i++) {
    gathering g = {r, i, ot_arena_array(&r->block, elements, sizeof *g.to)};
    each_element(r, t, gather, &g);
    all[i] = g.to;
  }
  for (int64_t first = 0; first < elements; first += CHUNK) {
    const int64_t left = elements - first;
    for (int i = 0; i < streams; i++) chunk[i] = all[i] + first;
    const ot_recomputed values = {t->name,        elements, first, left < CHUNK ? left : CHUNK,
                                  weight + first, chunk};
    OT_TRY(r->request->receive(r->request->context, &values));
  }
  return OT_OK;
}

static ot_status send_block(recomputation *r, int block) {
  for (int t = r->map.num_tensors - 1; t >= 0; t--) {
    const ot_weight_tensor *const tensor = &r->map.tensors[t];
    const ot_parameter *const p = parameter_of(r, tensor);
    if (p->block == block && ot_parameter_is_trained(p)) OT_TRY(send_tensor(r, tensor));
  }
  return OT_OK;
}

static ot_status backward(recomputation *r, double *losses) {
  for (int b = r->num_blocks - 1; b >= 0; b--) {
    OT_TRY(load_block(r, b));
    for (int i = 0; i < r->request->num_streams; i++) {
      stream *const s = &r->streams[i];
      begin_gradients(r, s, b);
      const ot_plain_block block = block_of(r, s, b, true);
      if (b + 1 == r->num_blocks) {
        losses[i] = ot_plain_head(s->plain, &block, s->inputs[b], s->slope[0]);
        continue;
      }
      ot_plain_backward(s->plain, &block, s->inputs[b], s->slope[0], b > 0 ? s->slope[1] : NULL);
      void *const entered = s->slope[1];
      s->slope[1] = s->slope[0];
      s->slope[0] = entered;
    }
    OT_TRY(send_block(r, b));
    report(r, 2 * r->num_blocks - 1 - b);
  }
  return OT_OK;
}

static ot_status compute(recomputation *r, double *losses) {
  OT_TRY(open_streams(r));
  OT_TRY(forward(r));
  return backward(r, losses);
}

ot_status ot_recomputation_run(const ot_recomputation_request *request, double *losses) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  recomputation r = {.request = request, .arena = &arena};
  const ot_status status = compute(&r, losses);
  for (int i = 0; r.streams && i < request->num_streams; i++) ot_plain_destroy(&r.streams[i].plain);
  ot_heap_release(&r.block_heap);
  ot_heap_release(&heap);
  return status;
}
