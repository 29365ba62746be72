// SPDX-License-Identifier: Apache-2.0
#include "judge/logprobs_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "judge/block_tensors.h"
#include "runtime/model_files.h"

// The rows of a view: each text as one document.
typedef struct view_rows {
  ot_plain_batch batch;
  int64_t capacity;
  int32_t *ids, *targets, *positions;
  int64_t *first, *token;  // token of the pair that a row predicts; -1: none
  double *weights;
  int64_t end[1];
} view_rows;

typedef struct stream {
  const ot_logprob_stream *how;
  const view_rows *rows;
  ot_graph graph;
  ot_plain *plain;  // null: the view changes no text
  void *x[2];       // what enters a block, and what leaves it
} stream;

struct ot_logprob_model {
  ot_heap heap;
  ot_arena arena;
  ot_logprob_model_request request;
  ot_model_files files;
  ot_checkpoint *checkpoint;
  ot_weight_source *sources;  // [tensors of the map]
  ot_graph graph;             // of one token: for parameters
  ot_block_tensors tensors;
  int64_t num_texts, num_tokens, longest;
  view_rows views[OT_VIEWS];
  stream *streams;
};

// ---- texts ----

static bool is_computed(const ot_logprob_match *m) { return m->num_ids > 1 && m->count > 0; }

static ot_status check_ids(const ot_logprob_model *m, const ot_logprob_match *text) {
  const ot_model *const model = &m->files.model;
  const char *const name = text->of[0]->name;
  OT_CHECK(text->num_ids <= model->max_positions, OT_USAGE,
           "%s: %lld tokens, the model of %s has positions for %lld", name,
           (long long)text->num_ids, m->files.path, (long long)model->max_positions);
  for (int64_t i = 0; i < text->num_ids; i++) {
    OT_CHECK(text->ids[i] < model->vocab_size, OT_USAGE,
             "%s: token %lld is %d, the model of %s has ids up to %lld", name, (long long)i,
             text->ids[i], m->files.path, (long long)model->vocab_size - 1);
  }
  return OT_OK;
}

// Counts the first texts that can be computed, as many as most_tokens allows.
static ot_status choose_texts(ot_logprob_model *m) {
  const ot_logprob_pair *const p = m->request.pair;
  int64_t rows = 0;
  for (int64_t i = 0; i < p->num_matches; i++) {
    const ot_logprob_match *const text = &p->matches[i];
    if (!is_computed(text)) continue;
    if (m->num_texts > 0 && rows + text->num_ids > m->request.most_tokens) break;
    OT_TRY(check_ids(m, text));
    rows += text->num_ids;
    m->num_texts++;
    m->num_tokens += text->count;
    if (text->num_ids > m->longest) m->longest = text->num_ids;
  }
  return OT_OK;
}

// ---- rows of a view ----

static void add_row(view_rows *v, int32_t id, int32_t position, int64_t first) {
  const int64_t r = v->batch.rows++;
  v->ids[r] = id;
  v->targets[r] = -1;
  v->positions[r] = position;
  v->first[r] = first;
  v->token[r] = -1;
}

// How a view changes a text.
typedef struct change {
  int64_t before, skipped;  // tokens before it, and of it at its beginning
  int32_t id;               // of the tokens before it
  int64_t gap;              // token from which on positions are one higher
} change;

static int32_t padding_id(const ot_model *model) {
  return model->pad_id >= 0 ? (int32_t)model->pad_id
                            : (model->bos_id >= 0 ? (int32_t)model->bos_id : 0);
}

// The number of tokens of the prompt: before the first one that is scored.
static int64_t prompt_of(const ot_logprob_model *m, const ot_logprob_match *text) {
  return m->request.pair->place[text->first];
}

// False if the view does not change the text.
static bool find_change(const ot_logprob_model *m, const ot_logprob_match *text,
                        ot_logprob_view view, change *out) {
  const int64_t bos = m->files.model.bos_id;
  *out = (change){.gap = text->num_ids};
  if (view == OT_VIEW_BOS) {
    const bool begins = text->ids[0] == bos;
    out->skipped = begins;
    out->before = !begins;
    out->id = (int32_t)bos;
    return bos >= 0 && text->num_ids > 2;
  }
  if (view == OT_VIEW_PADDING) {
    out->before = m->longest - text->num_ids;
    out->id = padding_id(&m->files.model);
    return out->before > 0;
  }
  if (view == OT_VIEW_POSITIONS) out->gap = prompt_of(m, text);
  return view == OT_VIEW_TEXT || out->gap > 1;
}

static void add_text(const ot_logprob_model *m, const ot_logprob_match *text, const change *c,
                     view_rows *v) {
  const int64_t begin = v->batch.rows, most = m->files.model.max_positions;
  const int64_t rows = c->before + text->num_ids - c->skipped;
  int64_t next = text->first;
  if (rows + (c->gap < text->num_ids) > most) return;
  for (int64_t i = 0; i < c->before; i++) add_row(v, c->id, (int32_t)i, begin);
  for (int64_t i = c->skipped; i + 1 < text->num_ids; i++) {
    const int64_t r = v->batch.rows;
    add_row(v, text->ids[i], (int32_t)(r - begin + (i >= c->gap)), begin);
    while (next < text->first + text->count && m->request.pair->place[next] <= i) next++;
    if (next == text->first + text->count || m->request.pair->place[next] != i + 1) continue;
    v->token[r] = next;
    v->targets[r] = text->ids[i + 1];
  }
}

static void build_view(ot_logprob_model *m, ot_logprob_view view) {
  view_rows *const v = &m->views[view];
  const ot_logprob_pair *const p = m->request.pair;
  int64_t texts = 0, capacity = 1;
  change c;
  for (int64_t i = 0, n = 0; i < p->num_matches && n < m->num_texts; i++) {
    if (!is_computed(&p->matches[i])) continue;
    n++;
    if (find_change(m, &p->matches[i], view, &c)) capacity += c.before + p->matches[i].num_ids;
  }
  v->ids = ot_arena_array(&m->arena, capacity, sizeof *v->ids);
  v->targets = ot_arena_array(&m->arena, capacity, sizeof *v->targets);
  v->positions = ot_arena_array(&m->arena, capacity, sizeof *v->positions);
  v->first = ot_arena_array(&m->arena, capacity, sizeof *v->first);
  v->token = ot_arena_array(&m->arena, capacity, sizeof *v->token);
  v->weights = ot_arena_array(&m->arena, capacity, sizeof *v->weights);
  for (int64_t i = 0; i < p->num_matches && texts < m->num_texts; i++) {
    if (!is_computed(&p->matches[i])) continue;
    texts++;
    if (find_change(m, &p->matches[i], view, &c)) add_text(m, &p->matches[i], &c, v);
  }
  v->end[0] = v->batch.rows;
  v->batch = (ot_plain_batch){.rows = v->batch.rows,
                              .ids = v->ids,
                              .targets = v->targets,
                              .positions = v->positions,
                              .first = v->first,
                              .weights = v->weights,
                              .num_groups = 1,
                              .group_end = v->end,
                              .group_weight = 1};
}

// ---- the checkpoint ----

static ot_status read_weight(void *context, const ot_weight_tensor *t, int64_t first, int64_t count,
                             double *out) {
  const ot_logprob_model *const m = context;
  const ot_weight_reader reading = {.checkpoint = m->checkpoint,
                                    .set = OT_CHECKPOINT_MODEL,
                                    .source = m->sources[t - m->tensors.map.tensors]};
  return ot_weight_read(&reading, first, count, OT_F64, out);
}

static ot_status open_checkpoint(ot_logprob_model *m) {
  static const ot_config_request no_settings = {0};
  const ot_block_reader reader = {read_weight, m};
  ot_weight_notes notes = {0};
  unsigned types = 0;
  OT_TRY(ot_model_files_open(m->request.path, OT_CHECKPOINT_HASH_HEADERS, &no_settings, &m->arena,
                             &m->files));
  OT_TRY(ot_checkpoint_create(m->files.path, &m->checkpoint));
  OT_TRY(ot_plain_build_graph(&m->files.model, 1, &m->arena, &m->graph));
  for (int i = 0; i < m->request.num_streams; i++) types |= 1u << m->request.streams[i].type;
  OT_TRY(ot_block_tensors_create(&m->graph, &reader, types, &m->arena, &m->tensors));
  m->tensors.map.files = &m->files.model;
  m->sources = ot_arena_array(&m->arena, m->tensors.map.num_tensors, sizeof *m->sources);
  return ot_weights_match(&m->arena, &m->tensors.map, m->checkpoint, m->sources, &notes);
}

// ---- streams ----

static ot_status open_stream(ot_logprob_model *m, const ot_logprob_stream *how, stream *s) {
  s->how = how;
  s->rows = &m->views[how->view];
  if (s->rows->batch.rows == 0) return OT_OK;
  OT_TRY(ot_plain_build_graph(&m->files.model, s->rows->batch.rows, &m->arena, &s->graph));
  const ot_plain_request request = {.graph = &s->graph,
                                    .batch = &s->rows->batch,
                                    .type = how->type,
                                    .reversed = how->reversed,
                                    .threads = m->request.threads};
  OT_TRY(ot_plain_create(&request, &s->plain));
  int64_t most = 1;
  for (int b = 1; b < s->graph.num_blocks; b++)
    most = ot_plain_inputs(s->plain, b) > most ? ot_plain_inputs(s->plain, b) : most;
  const int64_t elements = most * s->rows->batch.rows * m->files.model.hidden_size;
  for (int k = 0; k < 2; k++)
    s->x[k] = ot_arena_take(&m->arena, elements * ot_dtype_bytes(ot_plain_dtype(how->type)));
  return OT_OK;
}

static ot_plain_block block_of(ot_logprob_model *m, const stream *s) {
  return (ot_plain_block){.index = m->tensors.block,
                          .weights = ot_block_tensors_weights(&m->tensors, s->how->type)};
}

static void forward(ot_logprob_model *m, stream *s) {
  const ot_plain_block block = block_of(m, s);
  ot_plain_forward(s->plain, &block, block.index > 0 ? s->x[0] : NULL, s->x[1]);
  void *const left = s->x[1];
  s->x[1] = s->x[0];
  s->x[0] = left;
}

// The weights of the head stay.
static ot_status compute(ot_logprob_model *m) {
  const int blocks = m->graph.num_blocks, count = m->request.num_streams;
  for (int b = 0; b < blocks; b++) {
    OT_TRY(ot_block_tensors_load(&m->tensors, b));
    for (int i = 0; i < count && b + 1 < blocks; i++) {
      if (m->streams[i].plain) forward(m, &m->streams[i]);
    }
    if (m->request.progress) m->request.progress(m->request.context, b + 1, blocks);
  }
  return OT_OK;
}

static ot_status create(ot_logprob_model *m) {
  OT_TRY(open_checkpoint(m));
  OT_TRY(choose_texts(m));
  for (int v = 0; v < OT_VIEWS; v++) build_view(m, (ot_logprob_view)v);
  m->streams = ot_arena_array(&m->arena, m->request.num_streams, sizeof *m->streams);
  for (int i = 0; i < m->request.num_streams; i++)
    OT_TRY(open_stream(m, &m->request.streams[i], &m->streams[i]));
  return m->num_texts > 0 ? compute(m) : OT_OK;
}

ot_status ot_logprob_model_create(const ot_logprob_model_request *request, ot_logprob_model **out) {
  *out = NULL;
  ot_logprob_model *m = calloc(1, sizeof *m);
  OT_CHECK(m, OT_ENVIRONMENT, "judge: out of memory");
  m->arena = ot_heap_arena_create(&m->heap);
  m->request = *request;
  const ot_status status = create(m);
  if (status != OT_OK) ot_logprob_model_destroy(&m);
  *out = m;
  return status;
}

void ot_logprob_model_destroy(ot_logprob_model **model) {
  ot_logprob_model *const m = *model;
  if (!m) return;
  for (int i = 0; m->streams && i < m->request.num_streams; i++)
    ot_plain_destroy(&m->streams[i].plain);
  ot_checkpoint_destroy(&m->checkpoint);
  ot_heap_release(&m->heap);
  free(m);
  *model = NULL;
}

// ---- results ----

int64_t ot_logprob_model_vocab(const ot_logprob_model *m) { return m->files.model.vocab_size; }
int64_t ot_logprob_model_texts(const ot_logprob_model *m) { return m->num_texts; }
int64_t ot_logprob_model_tokens(const ot_logprob_model *m) { return m->num_tokens; }

const char *ot_logprob_model_words(const ot_logprob_model *m, ot_arena *arena) {
  return ot_arena_format(arena, "%s, %s parameters", m->files.model.model_type,
                         ot_figure_count(arena, (double)ot_model_parameters(&m->files.model)));
}

typedef struct visiting {
  const view_rows *rows;
  ot_logprob_visit *visit;
  void *context;
} visiting;

static void visit_row(void *context, int64_t row, const double *logits) {
  const visiting *const v = context;
  if (v->rows->token[row] >= 0)
    v->visit(v->context, v->rows->token[row], v->rows->targets[row], logits);
}

void ot_logprob_model_visit(ot_logprob_model *m, int index, ot_logprob_visit *visit,
                            void *context) {
  const stream *const s = &m->streams[index];
  visiting v = {s->rows, visit, context};
  if (!s->plain) return;
  const ot_plain_block block = block_of(m, s);
  ot_plain_logits(s->plain, &block, s->x[0], visit_row, &v);
}
