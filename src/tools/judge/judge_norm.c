// SPDX-License-Identifier: Apache-2.0
// The verdict on the gradient norm: that of the recorded gradients, each element once. A norm that
// is too short or too long by exactly a part that can be named lacks that part, or counts it again.
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/extremes.h"
#include "base/text.h"
#include "judge/judge_parts.h"

// Relative, of squared norms. A norm is a float32 sum of many squares, of narrow gradients perhaps
// with other roundings; or, as of torch's clip_grad_norm_, a norm in bf16 of norms in bf16.
static const double tolerance = 2e-5, tolerance_narrow = 4e-3, tolerance_bf16 = 0x1p-6;

typedef struct norm_case {
  ot_judging *judging;
  double *squares;  // [num_tensors] of the recorded gradients
  double all;       // their sum
  double recorded;  // squared
  double tolerance;
} norm_case;

static double square_of(const ot_evidence *e, const ot_evidence_tensor *t) {
  return ot_evidence_product(e, t, OT_EVIDENCE_GRADIENT, OT_EVIDENCE_GRADIENT) +
         2 * ot_evidence_product(e, t, OT_EVIDENCE_GRADIENT, OT_EVIDENCE_ERROR) +
         ot_evidence_product(e, t, OT_EVIDENCE_ERROR, OT_EVIDENCE_ERROR);
}

static bool is_near(const norm_case *n, double square) {
  return fabs(square - n->recorded) <= n->tolerance * fmax(square, n->recorded);
}

static void find(const norm_case *n, const char *what, const bool *members, const char *axis,
                 const char *evidence) {
  ot_judging *const j = n->judging;
  ot_judge_finding *const f = ot_judge_find(j->report, what);
  f->tensors = members ? ot_words_of_tensors(&j->evidence, members, j->arena) : NULL;
  f->axis = axis;
  f->factor = ot_arena_format(j->arena, "%.6g", sqrt(n->recorded / n->all));
  f->evidence = evidence;
  f->advice =
      "see which parameters the norm counts on which ranks: shards once each, copies once "
      "in all";
}

// The members of a part are missing, or counted `times` in all.
static bool try_part(const norm_case *n, const bool *members, double times, const char *axis) {
  ot_judging *const j = n->judging;
  double part = 0;
  for (int t = 0; t < j->evidence.num_tensors; t++) part += members[t] ? n->squares[t] : 0;
  if (part <= 4 * n->tolerance * n->all || !is_near(n, n->all + (times - 1) * part)) return false;
  find(n, times == 0 ? "norm_lacks" : "norm_counts_again", members, axis,
       times == 0
           ? ot_arena_format(j->arena, "the norm is that of all other gradients")
           : ot_arena_format(j->arena, "the norm counts the squares of these %.6g times", times));
  return true;
}

static bool try_kinds(const norm_case *n, bool *members) {
  const ot_evidence *const e = &n->judging->evidence;
  for (int first = 0; first < e->num_tensors; first++) {
    for (int t = 0; t < e->num_tensors; t++)
      members[t] = ot_text_equal(e->tensors[t].kind, e->tensors[first].kind);
    if (try_part(n, members, 0, NULL)) return true;
  }
  return false;
}

static bool try_experts(const norm_case *n, bool *members) {
  const ot_evidence *const e = &n->judging->evidence;
  for (int t = 0; t < e->num_tensors; t++)
    members[t] = ot_text_find(e->tensors[t].kind, "experts") != NULL;
  return try_part(n, members, 0, NULL);
}

// The tensors of a stage: all that the backward pass meets before or after one of them.
static bool try_stages(const norm_case *n, bool *members) {
  const ot_evidence *const e = &n->judging->evidence;
  for (int cut = 1; cut < e->num_tensors; cut++) {
    for (int side = 0; side < 2; side++) {
      for (int t = 0; t < e->num_tensors; t++) members[t] = (t < cut) == (side == 0);
      if (try_part(n, members, 0, "pp")) return true;
    }
  }
  return false;
}

// Copies over an axis count once for each of its ranks; or shards only once for the first.
static bool try_axes(const norm_case *n, bool *members) {
  const ot_judging *const j = n->judging;
  for (int a = 0; a < j->step.num_axes; a++) {
    const double size = j->step.axes[a].size;
    for (int side = 0; side < 2; side++) {
      for (int t = 0; t < j->evidence.num_tensors; t++)
        members[t] = (j->copies[t].copied >> a & 1) == (side == 0);
      if (try_part(n, members, side == 0 ? size : 1 / size, j->step.axes[a].name)) return true;
    }
  }
  return false;
}

// 2, 3, ..., 64, or the inverse of one of them, in words; null: none.
static const char *small_factor(const norm_case *n, double factor) {
  const bool above = factor > 1;
  const double whole = nearbyint(above ? factor : 1 / factor);
  if (whole < 2 || whole > 64 || !(fabs((above ? factor : 1 / factor) / whole - 1) < n->tolerance))
    return NULL;
  return ot_arena_format(n->judging->arena, above ? "%.0f" : "1/%.0f", whole);
}

static bool try_factor(const norm_case *n) {
  ot_judging *const j = n->judging;
  const double factor = sqrt(n->recorded / n->all);
  const char *const words =
      ot_words_of_factor(j->sizes, j->num_sizes, factor, n->tolerance, j->arena);
  const char *const root =
      ot_words_of_factor(j->sizes, j->num_sizes, factor * factor, n->tolerance, j->arena);
  const char *const small = small_factor(n, factor);
  if (!words && !root && !small) return false;
  find(n, "norm_factor", NULL, NULL,
       ot_arena_format(j->arena, "the norm is %s times that of the recorded gradients",
                       words   ? words
                       : small ? small
                               : ot_arena_format(j->arena, "sqrt(%s)", root)));
  return true;
}

static void name_difference(const norm_case *n) {
  ot_judging *const j = n->judging;
  bool *const members = ot_arena_array(j->arena, j->evidence.num_tensors + 1, sizeof *members);
  if (try_factor(n) || try_axes(n, members) || try_experts(n, members) || try_kinds(n, members) ||
      try_stages(n, members))
    return;
  find(n, "norm", NULL, NULL,
       ot_arena_format(j->arena,
                       "recorded %.8g, of the recorded gradients %.8g; no part explains "
                       "the difference",
                       sqrt(n->recorded), sqrt(n->all)));
}

// Ranks that clip by different norms drift apart.
static bool find_ranks(ot_judging *j, double norm) {
  for (int rank = 1; rank < j->step.world; rank++) {
    double other;
    if (!ot_recorded_scalar_of(&j->step, "norm", rank, &other) || other == norm) continue;
    const char *const evidence = ot_arena_format(
        j->arena, "the norm is %.8g on rank 0 and %.8g on rank %d", norm, other, rank);
    uint32_t axes = 0;
    for (int a = 0; a < j->step.num_axes; a++)
      axes |= (uint32_t)(j->step.ranks[rank].coordinate[a] != 0) << a;
    if (ot_judging_add_consequence(j, ot_judging_axes(j, axes), evidence)) return true;
    ot_judge_finding *const f = ot_judge_find(j->report, "norm_differs");
    f->evidence = evidence;
    f->advice = "reduce the square of the norm over all axes before clipping";
    return true;
  }
  return false;
}

static double tolerance_of(const ot_judging *j, double norm) {
  const double rounded = (double)ot_bf16_to_float(ot_bf16_from_float((float)norm));
  bool narrow = false;
  for (int64_t i = 0; i < j->step.num_tensors; i++) {
    const ot_recorded_tensor *const t = &j->step.tensors[i];
    narrow = narrow || (t->kind == OT_RECORDED_GRAD && ot_dtype_bytes(t->dtype) < 4);
  }
  if (!narrow) return tolerance;
  return norm == rounded ? tolerance_bf16 : tolerance_narrow;
}

void ot_judge_norm(ot_judging *j) {
  double norm;
  norm_case n = {.judging = j};
  if (!ot_recorded_scalar_of(&j->step, "norm", 0, &norm) || j->missing > 0) return;
  n.tolerance = tolerance_of(j, norm);
  n.squares = ot_arena_array(j->arena, j->evidence.num_tensors + 1, sizeof *n.squares);
  for (int t = 0; t < j->evidence.num_tensors; t++)
    n.all += n.squares[t] = square_of(&j->evidence, &j->evidence.tensors[t]);
  n.recorded = norm * norm;
  const bool differs = find_ranks(j, norm), agrees = !differs && is_near(&n, n.all);
  ot_judge_add_part(j->report, "norm", agrees, "%.7g recorded, %.7g of the recorded gradients",
                    norm, sqrt(n.all));
  if (!agrees && !differs) name_difference(&n);
}
