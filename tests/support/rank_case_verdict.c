// SPDX-License-Identifier: Apache-2.0
// Tolerances and counts.
#include "support/rank_case_verdict.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "support/blas_bits.h"
#include "support/rank_case_margin.h"

enum { OTHER_SEQUENCES = 1 << 20 };

typedef struct limits {
  double loss, gradient, last, weight, update;  // 0: not compared
} limits;

static limits limits_of(ot_dtype dtype) {
  return dtype == OT_F64
             ? (limits){.loss = 1e-12, .gradient = 1e-12, .last = 1e-12, .weight = 1e-10}
             : (limits){.loss = 1e-5, .gradient = 1e-5, .update = 1e-3};
}

// True if bits of the float32 products of `request` may depend on their shape (blas_bits.h).
static bool depends_on_shape(const rank_request *request) {
  return request->dtype == OT_F32 && request->storage != OT_BF16 && !blas_bits_are_fixed();
}

static rank_request in_float64(const rank_request *request) {
  rank_request exact = *request;
  exact.dtype = OT_F64;
  return exact;
}

// A mesh in float32 may be as far from float64 as the limit, or twice as far as one rank is.
static limits limits_for(const rank_request *request, const rank_request *exact) {
  limits l = limits_of(request->dtype);
  const rank_difference noise = rank_compare(rank_reference(request), rank_reference(exact));
  l.gradient = fmax(l.gradient, 2 * noise.gradient.difference);
  return l;
}

// True for numbers within a limit that is not 0.
static bool within(double found, double limit) { return limit == 0 || found <= limit; }

static bool equals(const rank_difference *d, const limits *l) {
  return within(d->loss, l->loss) && within(d->norm, l->loss) && within(d->experts, l->loss) &&
         within(d->gradient.difference, l->gradient) && within(d->last.difference, l->last) &&
         within(d->weight.difference, l->weight) && within(d->update.difference, l->update);
}

static void keep_larger(rank_worst *worst, const rank_worst *found) {
  if (!(found->difference <= worst->difference)) *worst = *found;
}

static void keep_largest(rank_difference *largest, const rank_difference *d) {
  if (!(d->loss <= largest->loss)) largest->loss = d->loss;
  if (!(d->norm <= largest->norm)) largest->norm = d->norm;
  if (!(d->experts <= largest->experts)) largest->experts = d->experts;
  keep_larger(&largest->gradient, &d->gradient);
  keep_larger(&largest->last, &d->last);
  keep_larger(&largest->weight, &d->weight);
  keep_larger(&largest->update, &d->update);
}

static void add_text(rank_verdict *verdict, const rank_request *request, const char *reason) {
  char what[RANK_TEXT];
  const int64_t n = ot_text_length(verdict->text);
  ot_text_format(verdict->text + n, (int64_t)sizeof verdict->text - n, "%s\n    %s\n",
                 rank_describe(request, what), reason);
}

static void print_difference(const rank_difference *d, char *text, int64_t room) {
  ot_text_format(
      text, room,
      "loss %.2g, norm %.2g, experts %.2g, gradient %.2g (%s), last %.2g (%s), weight %.2g (%s), "
      "update %.2g (%s)",
      d->loss, d->norm, d->experts, d->gradient.difference, d->gradient.tensor, d->last.difference,
      d->last.tensor, d->weight.difference, d->weight.tensor, d->update.difference,
      d->update.tensor);
}

static void add_failure(const rank_request *request, const rank_difference *d,
                        rank_verdict *verdict) {
  char text[1024];
  print_difference(d, text, sizeof text);
  add_text(verdict, request, text);
  verdict->failures++;
}

// Compares `result` with one rank; the noise of float32 is only measured where that matters.
static bool equals_one_rank(const rank_request *request, const rank_result *result,
                            rank_difference *d) {
  limits l = limits_of(request->dtype);
  *d = rank_compare(result, rank_reference(request));
  if (equals(d, &l)) return true;
  if (!depends_on_shape(request)) return false;
  const rank_request exact = in_float64(request);
  l = limits_for(request, &exact);
  if (equals(d, &l)) return true;
  rank_difference from_exact = *d;
  from_exact.gradient = rank_compare(result, rank_reference(&exact)).gradient;
  return equals(&from_exact, &l);
}

bool rank_judge(const rank_request *request, const rank_result *result, rank_verdict *verdict) {
  rank_difference d;
  const bool equal = equals_one_rank(request, result, &d);
  keep_largest(&verdict->largest[request->dtype == OT_F64], &d);
  verdict->runs++;
  if (!equal) add_failure(request, &d, verdict);
  return equal;
}

// Where the bits of a product depend on its shape, rounding may choose another expert for a token
// in spite of the margin (rank_case_margin.h). Two draws of sequences do not both meet that.
static bool equals_with_other_sequences(const rank_request *request) {
  rank_request other = *request;
  rank_result result;
  rank_difference d;
  if (request->dtype == OT_F64 || !rank_has_experts(request->model)) return false;
  if (blas_bits_are_fixed()) return false;
  other.first_sample += OTHER_SEQUENCES;
  rank_choose_sample(&other);
  const bool equal = rank_run(&other, &result) == OT_OK && equals_one_rank(&other, &result, &d);
  rank_release(&result);
  return equal;
}

void rank_try(const rank_request *request, rank_verdict *verdict) {
  if (!rank_sampled() && verdict->runs > 0) return;
  rank_result result;
  rank_difference d;
  verdict->runs++;
  if (rank_run(request, &result) != OT_OK) {
    verdict->failures++;
    add_text(verdict, request, ot_fail_message());
  } else if (equals_one_rank(request, &result, &d)) {
    keep_largest(&verdict->largest[request->dtype == OT_F64], &d);
  } else if (!equals_with_other_sequences(request)) {
    add_failure(request, &d, verdict);
  }
  rank_release(&result);
}

void rank_conclude(const rank_verdict *verdict, const char *what) {
  static const char *const types[] = {"float32", "float64"};
  for (int i = 0; i < 2; i++) {
    char text[1024];
    if (!verdict->largest[i].gradient.tensor) continue;
    print_difference(&verdict->largest[i], text, sizeof text);
    print_message("%s, %s: at most %s\n", what, types[i], text);
  }
  print_message("%s: %d runs\n", what, verdict->runs);
  if (verdict->failures > 0) {
    fail_msg("%d of %d runs are not equal to one rank:\n%s", verdict->failures, verdict->runs,
             verdict->text);
  }
  assert_true(verdict->runs > 0);
}
