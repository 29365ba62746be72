// SPDX-License-Identifier: Apache-2.0
// Scratch, values and the tape; parameters by their names.
#include "judge/plain_parts.h"

enum { FIRST_BYTES = 1 << 20, ALIGNMENT = 64 };

// ---- scratch ----

// The next piece, made if there is none.
static void next_piece(ot_plain_state *s, int64_t bytes) {
  ot_plain_scratch *const from = s->scratch;
  const int next = from->piece[0] ? s->at.piece + 1 : 0;
  OT_ASSERT(next < OT_PLAIN_MOST_PIECES);
  s->at.piece = next;
  s->at.used = 0;
  if (from->piece[next]) return;
  int64_t size = FIRST_BYTES;
  for (int i = 0; i < next; i++) size += from->bytes[i];
  from->bytes[next] = size > bytes ? size : bytes;
  // Not through an arena, which would touch all of it.
  const ot_arena arena = ot_heap_arena_create(&from->heap);
  from->piece[next] = arena.source(arena.context, from->bytes[next]);
  if (!from->piece[next]) ot_panic_memory(from->bytes[next]);
}

void *OT_KERNEL(ot_plain_take)(ot_plain_state *s, int64_t bytes) {
  const int64_t size = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  const ot_plain_scratch *const from = s->scratch;
  while (!from->piece[0] || s->at.used + size > from->bytes[s->at.piece]) next_piece(s, size);
  void *const memory = from->piece[s->at.piece] + s->at.used;
  s->at.used += size;
  return memory;
}

ot_real *OT_KERNEL(ot_plain_reals)(ot_plain_state *s, int64_t count) {
  return OT_KERNEL(ot_plain_take)(s, count * (int64_t)sizeof(ot_real));
}

void OT_KERNEL(ot_plain_release)(ot_plain_state *s, ot_plain_mark mark) { s->at = mark; }

// ---- values and ops ----

ot_plain_value *OT_KERNEL(ot_plain_make)(ot_plain_state *s, int64_t rows, int64_t width) {
  ot_plain_value *const v = OT_KERNEL(ot_plain_take)(s, sizeof *v);
  *v = (ot_plain_value){OT_KERNEL(ot_plain_reals)(s, rows * width), NULL, rows, width};
  if (!s->gradient) return v;
  v->d = OT_KERNEL(ot_plain_reals)(s, rows * width);
  memset(v->d, 0, (size_t)(rows * width) * sizeof(ot_real));
  return v;
}

void OT_KERNEL(ot_plain_record)(ot_plain_state *s, ot_plain_op op, const void *settings,
                                int64_t bytes) {
  if (!s->gradient) return;
  OT_ASSERT(s->at.num_ops < OT_PLAIN_MOST_OPS);
  if (bytes > 0) op.settings = memcpy(OT_KERNEL(ot_plain_take)(s, bytes), settings, (size_t)bytes);
  s->tape[s->at.num_ops++] = op;
}

void OT_KERNEL(ot_plain_run_back)(ot_plain_state *s, ot_plain_mark mark) {
  const int end = s->at.num_ops;
  for (int i = end - 1; i >= mark.num_ops; i--) {
    const ot_plain_mark before = s->at;
    s->tape[i].backward(s, &s->tape[i]);
    OT_KERNEL(ot_plain_release)(s, before);
  }
}

void OT_KERNEL(ot_plain_give)(const ot_plain_state *s, ot_plain_value *v, const ot_real *d) {
#pragma omp parallel for num_threads(s->threads)
  for (int64_t i = 0; i < v->rows * v->width; i++) v->d[i] = ot_plain_keep(s, v->d[i] + d[i]);
}

// ---- parameters ----

ot_plain_weight OT_KERNEL(ot_plain_find)(const ot_plain_state *s, const char *name,
                                         const char *suffix) {
  const ot_block *const at = &s->graph->blocks[s->block->index];
  const size_t prefix = strlen(at->name) + 1, length = strlen(name);
  for (int i = 0; i < at->num_parameters; i++) {
    const ot_parameter *const p = &s->graph->parameters[at->first_parameter + i];
    const char *const own = p->name + prefix;
    if (strncmp(own, name, length) != 0 || own[length] != '.') continue;
    if (strcmp(own + length + 1, suffix) != 0) continue;
    return (ot_plain_weight){.value = s->block->weights[i],
                             .gradient = s->block->gradients ? s->block->gradients[i] : NULL,
                             .rows = p->rows,
                             .cols = p->cols};
  }
  return (ot_plain_weight){0};
}

// ---- the simplest op ----

static void add_back(ot_plain_state *s, const ot_plain_op *op) {
  OT_KERNEL(ot_plain_give)(s, op->in[0], op->out->d);
  OT_KERNEL(ot_plain_give)(s, op->in[1], op->out->d);
}

ot_plain_value *OT_KERNEL(ot_plain_add)(ot_plain_state *s, ot_plain_value *a, ot_plain_value *b) {
  ot_plain_value *const y = OT_KERNEL(ot_plain_make)(s, a->rows, a->width);
#pragma omp parallel for num_threads(s->threads)
  for (int64_t i = 0; i < a->rows * a->width; i++) y->x[i] = ot_plain_keep(s, a->x[i] + b->x[i]);
  OT_KERNEL(ot_plain_record)(s, (ot_plain_op){add_back, y, {a, b}, NULL}, NULL, 0);
  return y;
}
