// SPDX-License-Identifier: Apache-2.0
// Some layers alone. What enters them and the gradient of what they return are recorded; how the
// loss was scaled before it was differentiated is not, so that gradients are judged up to a factor
// of all of them.
#include <math.h>

#include "base/sort.h"
#include "base/text.h"
#include "host/heap.h"
#include "judge/judge_parts.h"

// ---- what is needed ----

static ot_status check_recorded(const ot_judging *j, ot_recorded_kind kind, int layer,
                                ot_arena *scratch) {
  const ot_recorded_layers found =
      ot_recorded_layers_find(&j->step, &j->recorded, kind, j->step.model.hidden_size, scratch);
  const int64_t batch = ot_recorded_layers_lack(&found, layer, scratch);
  const ot_judge_layers *const only = j->request->layers;
  if (batch < 0) return OT_OK;
  ot_fail(OT_USAGE, "%s: layers %d..%d need %s of layer %d; batch %d of data rank %d has none",
          j->step.path, only->first, only->last, ot_recorded_kind_name(kind), layer,
          j->recorded.batch[batch].micro, j->recorded.batch[batch].dp_rank);
  return ot_fail_hint(OT_USAGE, "call rec.activations() before the forward pass");
}

static ot_status check_all_recorded(const ot_judging *j, ot_arena *scratch) {
  const ot_judge_layers *const only = j->request->layers;
  if (only->first > 0) OT_TRY(check_recorded(j, OT_RECORDED_ACT, only->first - 1, scratch));
  return check_recorded(j, OT_RECORDED_ACT_GRAD, only->last, scratch);
}

ot_status ot_judge_layers_check(const ot_judging *j) {
  const ot_judge_layers *const only = j->request->layers;
  const int layers = (int)j->step.model.num_layers;
  if (!only) return OT_OK;
  OT_CHECK(only->first >= 0 && only->first <= only->last && only->last < layers, OT_USAGE,
           "%s: layers %d..%d; allowed: A..B with 0 <= A <= B <= %d", j->step.path, only->first,
           only->last, layers - 1);
  ot_heap heap = {0};
  ot_arena scratch = ot_heap_arena_create(&heap);
  const ot_status status = check_all_recorded(j, &scratch);
  ot_heap_release(&heap);
  return status;
}

// ---- the common factor ----

// The factor of the gradients of a tensor.
static double factor_of(const ot_evidence *e, const ot_evidence_tensor *t) {
  const double square = ot_evidence_product(e, t, OT_EVIDENCE_GRADIENT, OT_EVIDENCE_GRADIENT);
  const double product = ot_evidence_product(e, t, OT_EVIDENCE_GRADIENT, OT_EVIDENCE_ERROR);
  return square > 0 ? 1 + product / square : NAN;
}

// The median over tensors, made precise by those near it, each weighted by its precision.
static double common_factor(const ot_evidence *e, ot_arena *scratch) {
  static const double near = 0.01;
  double *const factors = ot_arena_array(scratch, e->num_tensors + 1, sizeof *factors);
  double weights = 0, sum = 0;
  int count = 0;
  for (int t = 0; t < e->num_tensors; t++) {
    const double factor = factor_of(e, &e->tensors[t]);
    if (isfinite(factor)) factors[count++] = factor;
  }
  if (count == 0) return 1;
  const double middle = ot_median(factors, count, scratch);
  for (int t = 0; t < e->num_tensors; t++) {
    const double factor = factor_of(e, &e->tensors[t]), own = ot_evidence_own(e, &e->tensors[t]);
    if (!(fabs(factor - middle) <= near * fabs(middle)) || !(own > 0)) continue;
    const double weight =
        ot_evidence_product(e, &e->tensors[t], OT_EVIDENCE_GRADIENT, OT_EVIDENCE_GRADIENT) / own /
        own;
    weights += weight;
    sum += weight * factor;
  }
  return weights > 0 ? sum / weights : middle;
}

// Divides the recorded gradients by `factor`: the error e of the gradient g becomes
// e / factor + (1 / factor - 1) g.
static void divide_recorded(ot_evidence *e, double factor) {
  const int n = e->num_vectors, error = OT_EVIDENCE_ERROR, gradient = OT_EVIDENCE_GRADIENT;
  const double a = 1 / factor, b = 1 / factor - 1;
  for (int t = 0; t < e->num_tensors; t++) {
    double *const p = e->tensors[t].products;
    const double own = p[error * n + error], cross = p[error * n + gradient],
                 square = p[gradient * n + gradient];
    for (int v = 0; v < n; v++) {
      if (v == error) continue;
      p[error * n + v] = p[v * n + error] = a * p[v * n + error] + b * p[v * n + gradient];
    }
    p[error * n + error] = fmax(0, a * a * own + 2 * a * b * cross + b * b * square);
  }
}

void ot_judge_layers_scale(ot_judging *j) {
  const double factor = common_factor(&j->evidence, j->arena);
  j->layers_factor = factor;
  if (!(fabs(factor) > 0) || !isfinite(factor)) return;
  divide_recorded(&j->evidence, factor);
  divide_recorded(&j->sums, factor);
  divide_recorded(&j->means, factor);
}

void ot_judge_layers_part(const ot_judging *j) {
  const ot_judge_layers *const only = j->request->layers;
  ot_judge_add_part(j->report, "layers", true,
                    "%d to %d of 0 to %d, gradients %.6g times those of the recorded activations",
                    only->first, only->last, (int)j->step.model.num_layers - 1, j->layers_factor);
  ot_judge_add_part(j->report, "note", true,
                    "not judged: other layers, embedding, head, loss, that factor, norm, update");
}
