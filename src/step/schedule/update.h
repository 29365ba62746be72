// SPDX-License-Identifier: Apache-2.0
// Segments of step-level work on one block: squared gradient norms, clip factor, optimizer. One
// task updates each part of a parameter, so norms are per tensor as named by HF, and optimizers of
// whole matrices see separate ones (q, k, v, gate and up).
#pragma once

#include "describe/run.h"
#include "graph/graph.h"
#include "schedule/schedule.h"

// The elements of a block's bucket that a rank updates, and the location of its sums in `squares`
// and `updates`: each part has `slots` entries, this rank's is `slot`.
typedef struct ot_update_view {
  const ot_graph *graph;
  int block;
  int64_t first, count;  // elements of the bucket; operand offsets are relative to `first`
  int slots, slot;
  bool counted_only;  // omits parts that another rank counts
  bool tied_only;     // only the parameter that a head is tied to
} ot_update_view;

// Number of parts of the parameters of `block`, and of all blocks before it.
int ot_update_parts(const ot_graph *graph, int block);
int ot_update_first_part(const ot_graph *graph, int block);

// True for the parameter that a head is tied to.
bool ot_update_is_tied_to(const ot_graph *graph, const ot_parameter *parameter);

// Fills the constant tables. num_tasks is 0 if the graph has none.
void ot_update_setup(const ot_graph *graph, ot_arena *arena, ot_segment *segment);

// Adds the gradients of the tied uses in block `user` (OT_BASE_TIED_GRADIENT) to those of their
// owner (OT_BASE_GRADIENT_PIECE), over the elements of `view`, which belongs to the owner's block.
void ot_update_tie(const ot_update_view *view, int user, ot_arena *arena, ot_segment *segment);

// Elements of the tied parameter used in block `user`, clipped to `view`: first relative to
// view->first; count 0 if the view has none.
void ot_update_tied_range(const ot_update_view *view, int user, int64_t *first, int64_t *count);

// `scale` of OT_OP_SUM_SQUARES for a part: norms are of gradients by weights without the constants
// that a parametrization includes in them, as published rules for clipping assume.
double ot_update_norm_scale(const ot_parameter_part *part);

// Squared norms of the gradient (OT_BASE_GRADIENT_PIECE), by part.
void ot_update_norm(const ot_update_view *view, ot_arena *arena, ot_segment *segment);

// Hashes of the gradient before any reduction (OT_BASE_GRADIENT), by part, added to those of
// earlier micro-batches.
void ot_update_checksum(const ot_update_view *view, ot_arena *arena, ot_segment *segment);

// Elements of the bucket of `block`, from its first on, that have second moments: all, or up to the
// end of the last parameter that keeps two moments. `elements` are those of the bucket.
int64_t ot_update_second_moments(const ot_graph *graph, int block, const ot_run *run,
                                 int64_t elements);

// Optimizer: weights (OT_BASE_WEIGHT_PIECE) and state from the gradient.
void ot_update_apply(const ot_update_view *view, const ot_run *run, ot_arena *arena,
                     ot_segment *segment);
