// SPDX-License-Identifier: Apache-2.0
// The parts of the plain model, for files plain_*.c only. A block is computed by functions that
// make values from values. With gradients, each also records itself on a tape, which is then run
// backwards: an op adds the gradients of what it read from that of what it made. The files are
// compiled for float as they stand and for double in plain_f64.c; OT_KERNEL (kernels/real.h)
// completes names. Sums over the elements of a row are double in every type; sums over rows and
// matrix products are ot_real.
#pragma once

#include <string.h>
#include <tgmath.h>

#include "base/arena.h"
#include "judge/plain.h"
#include "kernels/matrix.h"

enum {
  OT_PLAIN_HEAD_ROWS = 256,   // rows whose logits exist at once
  OT_PLAIN_QUERY_ROWS = 128,  // queries of a head whose scores exist at once
  OT_PLAIN_MOST_OPS = 128,
  OT_PLAIN_MOST_PARTS = 2 * OT_MAX_LAYERS + 2,  // of a stream
};

typedef struct ot_plain_value {
  ot_real *x, *d;  // [rows, width]; its gradient, null if none is wanted
  int64_t rows, width;
} ot_plain_value;

// A parameter, or some rows of it.
typedef struct ot_plain_weight {
  const ot_real *value;  // [rows, cols]; null: the block has no such parameter
  ot_real *gradient;     // null: not wanted
  int64_t rows, cols;
} ot_plain_weight;

typedef struct ot_plain_state ot_plain_state;

typedef struct ot_plain_op {
  void (*backward)(ot_plain_state *s, const struct ot_plain_op *op);
  ot_plain_value *out, *in[3];
  const void *settings;  // a struct of the op's file
} ot_plain_op;

// Memory that is taken from the scratch is released together, down to a mark.
typedef struct ot_plain_mark {
  int piece, num_ops;
  int64_t used;  // bytes of the piece
} ot_plain_mark;

struct ot_plain_state {
  const ot_graph *graph;
  const ot_model *model;
  const ot_plain_batch *batch;
  bool narrow, cast;  // OT_PLAIN_BF16, OT_PLAIN_AUTOCAST
  bool reversed;
  unsigned losses;
  int threads;
  int64_t R, C;
  ot_real *table[2];  // [R, pairs, 2] cosines and sines of model->rope and rope_local
  int num_documents;
  int64_t *document;  // [num_documents + 1] where each begins; R
  int64_t longest;    // rows of a document

  // The call.
  const ot_plain_block *block;
  int layer;      // of the block; -1: embedding, head
  bool gradient;  // wanted
  ot_plain_router router;
  ot_plain_op tape[OT_PLAIN_MOST_OPS];
  ot_plain_scratch *scratch;
  ot_plain_mark at;
};

// Functions of one type, for plain.c.
typedef struct ot_plain_functions {
  void *(*create)(const ot_plain_request *request, ot_arena *arena);  // keeps both
  void (*forward)(void *state, const ot_plain_block *block, const void *x, void *y);
  void (*backward)(void *state, const ot_plain_block *block, const void *x, const void *dy,
                   void *dx);
  double (*head)(void *state, const ot_plain_block *block, const void *x, void *dx);
  void (*logits)(void *state, const ot_plain_block *block, const void *x, ot_plain_row *receive,
                 void *context);
} ot_plain_functions;
extern const ot_plain_functions ot_plain_functions_f32, ot_plain_functions_f64;

static inline ot_real ot_plain_nearest(ot_real x) {
  return (ot_real)ot_bf16_to_float(ot_bf16_from_float((float)x));
}

// Rounds to bf16. In the other order of sums, a number in the middle half of the interval between
// two bf16 numbers goes to either, by its bits.
static inline ot_real ot_plain_bf16(const ot_plain_state *s, ot_real x) {
  const float narrow = (float)x;
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof bits);
  if (!s->reversed || (bits & 0x7f800000u) == 0x7f800000u) return ot_plain_nearest(x);
  const uint32_t noise = bits * 2654435761u >> 17;  // 15 bits
  return (ot_real)ot_bf16_to_float((uint16_t)((bits + 0x4000u + noise) >> 16));
}

// A result of a module, as it is stored.
static inline ot_real ot_plain_keep(const ot_plain_state *s, ot_real x) {
  return s->narrow ? ot_plain_bf16(s, x) : x;
}

// ---- plain_tape.c ----

void *OT_KERNEL(ot_plain_take)(ot_plain_state *s, int64_t bytes);
ot_real *OT_KERNEL(ot_plain_reals)(ot_plain_state *s, int64_t count);
void OT_KERNEL(ot_plain_release)(ot_plain_state *s, ot_plain_mark mark);
// A value with gradient zero, and without if there are none.
ot_plain_value *OT_KERNEL(ot_plain_make)(ot_plain_state *s, int64_t rows, int64_t width);
// Records an op; `settings` [bytes] is copied.
void OT_KERNEL(ot_plain_record)(ot_plain_state *s, ot_plain_op op, const void *settings,
                                int64_t bytes);
// Runs what was recorded since `mark` backwards.
void OT_KERNEL(ot_plain_run_back)(ot_plain_state *s, ot_plain_mark mark);
// v->d += d [rows, width] of v
void OT_KERNEL(ot_plain_give)(const ot_plain_state *s, ot_plain_value *v, const ot_real *d);
// Parameter NAME.SUFFIX of the block.
ot_plain_weight OT_KERNEL(ot_plain_find)(const ot_plain_state *s, const char *name,
                                         const char *suffix);
ot_plain_value *OT_KERNEL(ot_plain_add)(ot_plain_state *s, ot_plain_value *a, ot_plain_value *b);

// ---- plain_linear.c ----

typedef struct ot_plain_size {
  int64_t rows, columns, depth;
} ot_plain_size;

typedef struct ot_plain_target {
  ot_real *c;
  int64_t stride;  // elements between rows
  ot_real alpha, beta;
  bool serial;  // on the calling thread, inside a parallel region
} ot_plain_target;

// c [rows, columns] = alpha a b + beta c, with a [rows, depth] and b [depth, columns], in the order
// of sums of the state.
void OT_KERNEL(ot_plain_multiply)(const ot_plain_state *s, ot_plain_size size, ot_factor a,
                                  ot_factor b, ot_plain_target to);
// Rounds `data` [n] in place as operands and results of products are.
void OT_KERNEL(ot_plain_round)(const ot_plain_state *s, ot_real *data, int64_t n);
// x [n] as an operand: itself or a rounded copy.
const ot_real *OT_KERNEL(ot_plain_operand)(ot_plain_state *s, const ot_real *x, int64_t n);
// to [width] += the sums over rows of terms [rows, width].
void OT_KERNEL(ot_plain_add_rows)(const ot_plain_state *s, const ot_real *terms, int64_t rows,
                                  ot_plain_weight to);

// Rows [first, first + rows) of parameters NAME.weight and NAME.bias; rows 0: all.
typedef struct ot_plain_slice {
  const char *name;
  int64_t first, rows;
  bool wide;  // neither operands nor results are rounded
} ot_plain_slice;

// y = x weight^T + bias
ot_plain_value *OT_KERNEL(ot_plain_linear)(ot_plain_state *s, ot_plain_value *x,
                                           ot_plain_slice slice);

// ---- plain_norm.c ----

typedef struct ot_plain_norm {
  ot_plain_weight weight, bias;
  double epsilon, offset;  // offset: added to the weight
  bool centred;            // LayerNorm, else RMSNorm
} ot_plain_norm;

// The norm NAME of the block as the model says.
ot_plain_norm OT_KERNEL(ot_plain_norm_of)(const ot_plain_state *s, const char *name);
// The norm of each run of as many elements as the weight has; x itself without a weight.
ot_plain_value *OT_KERNEL(ot_plain_norm)(ot_plain_state *s, ot_plain_value *x,
                                         const ot_plain_norm *n);

// ---- plain_rope.c ----

void OT_KERNEL(ot_plain_rope_create)(ot_plain_state *s, ot_arena *arena);
// The elements that rotate: the 2 * pairs from `first` on of each head of `width` elements.
typedef struct ot_plain_rotation {
  const ot_real *table;  // [R, pairs, 2]; null: nothing rotates
  int64_t width, first;
  bool interleaved;  // pairs are (2i, 2i + 1), else (i, i + pairs)
} ot_plain_rotation;
ot_plain_value *OT_KERNEL(ot_plain_rotate)(ot_plain_state *s, ot_plain_value *x,
                                           const ot_plain_rotation *r);

// ---- plain_heads.c ----

void OT_KERNEL(ot_plain_heads_create)(ot_plain_state *s, ot_arena *arena);
// Attention. Head h of q begins at h * dim, a head of k likewise, one of v at h * value_step +
// value_first, in the result at h * value_dim.
typedef struct ot_plain_heads {
  ot_plain_value *q, *k, *v;
  int64_t heads, kv_heads, dim;
  int64_t value_dim, value_step, value_first;
} ot_plain_heads;
ot_plain_value *OT_KERNEL(ot_plain_attend)(ot_plain_state *s, const ot_plain_heads *a);

// ---- branches of the layer: u [R, C] -> [R, C] ----

ot_plain_value *OT_KERNEL(ot_plain_attention)(ot_plain_state *s, ot_plain_value *u);
ot_plain_value *OT_KERNEL(ot_plain_latent)(ot_plain_state *s, ot_plain_value *u);
ot_plain_value *OT_KERNEL(ot_plain_experts)(ot_plain_state *s, ot_plain_value *u);

// An MLP by its slices; gate.name null: not gated.
typedef struct ot_plain_mlp {
  ot_plain_slice gate, up, down;
} ot_plain_mlp;
ot_plain_value *OT_KERNEL(ot_plain_feed)(ot_plain_state *s, ot_plain_value *u,
                                         const ot_plain_mlp *m);

// ---- plain_router.c ----

// Routes the tokens u: their experts in s->router, their gates [R, k] as the value.
ot_plain_value *OT_KERNEL(ot_plain_route)(ot_plain_state *s, ot_plain_value *u);

// ---- plain_residual.c ----

// The values that a sub-layer reads.
typedef struct ot_plain_stream {
  ot_plain_value *part[OT_PLAIN_MOST_PARTS];  // [count], each [R, C]
  int count;
  bool sum;  // the last one is a sum that the next output is added to
} ot_plain_stream;

// The stream that enters the block, from x and dx [N, R, C]; dx may be null.
ot_plain_stream OT_KERNEL(ot_plain_enter)(ot_plain_state *s, const void *x, void *dx);
// The input of a sub-layer: the mix by the query NAME, without one the only part.
ot_plain_value *OT_KERNEL(ot_plain_mix)(ot_plain_state *s, const ot_plain_stream *stream,
                                        const char *name);

// ---- plain_ends.c ----

void OT_KERNEL(ot_plain_embed)(const ot_plain_state *s, ot_real *y);
void OT_KERNEL(ot_plain_embed_back)(const ot_plain_state *s, const ot_real *dy);
double OT_KERNEL(ot_plain_loss)(ot_plain_state *s, const void *x, void *dx);
void OT_KERNEL(ot_plain_show)(ot_plain_state *s, const void *x, ot_plain_row *receive,
                              void *context);
