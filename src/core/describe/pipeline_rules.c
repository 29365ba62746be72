// SPDX-License-Identifier: Apache-2.0
// The table and its checks. A single stage supports any number of chunks and any order.
#include "describe/pipeline_rules.h"

#include <assert.h>

#define NAMES                                                               \
  [OT_PIPELINE_GPIPE] = "gpipe", [OT_PIPELINE_1F1B] = "1f1b",               \
  [OT_PIPELINE_INTERLEAVED] = "interleaved", [OT_PIPELINE_ZB_H1] = "zb-h1", \
  [OT_PIPELINE_ZB_H2] = "zb-h2", [OT_PIPELINE_ZB_V] = "zb-v",               \
  [OT_PIPELINE_DUALPIPE_V] = "dualpipe-v"
const char *const ot_pipeline_names[OT_PIPELINES + 1] = {NAMES};
const char *const ot_pipeline_asked_names[OT_PIPELINES + 2] = {NAMES, [OT_PIPELINES] = "dualpipe"};

// clang-format off
static const ot_pipeline_rules rules[] = {
    [OT_PIPELINE_GPIPE] = {.fills = true, .min_chunks = 1, .max_chunks = 1},
    [OT_PIPELINE_1F1B] = {.min_chunks = 1, .max_chunks = 1},
    [OT_PIPELINE_INTERLEAVED] = {.in_rounds = true, .min_chunks = 2},
    [OT_PIPELINE_ZB_H1] = {.splits = true, .min_chunks = 1, .max_chunks = 1, .idle_as = 3},
    [OT_PIPELINE_ZB_H2] = {.splits = true, .min_chunks = 1, .max_chunks = 1, .idle_as = -1},
    [OT_PIPELINE_ZB_V] = {.splits = true, .folded = true, .min_chunks = 2, .max_chunks = 2,
                          .idle_as = 6},
    [OT_PIPELINE_DUALPIPE_V] = {.splits = true, .folded = true, .min_chunks = 2, .max_chunks = 2,
                                .idle_as = 6},
};
// clang-format on
static_assert(OT_COUNT(rules) == OT_PIPELINES, "one row for each pipeline schedule");

const ot_pipeline_rules *ot_pipeline_rules_of(ot_pipeline kind) {
  OT_ASSERT((int)kind >= 0 && kind < OT_PIPELINES);
  return &rules[kind];
}

const char *ot_pipeline_name(ot_pipeline kind) {
  OT_ASSERT((int)kind >= 0 && kind < OT_PIPELINES);
  return ot_pipeline_names[kind];
}

bool ot_pipeline_folds(ot_pipeline kind, int pp) {
  return pp > 1 && ot_pipeline_rules_of(kind)->folded;
}

int ot_pipeline_stage(ot_pipeline kind, int pp, int chunk) {
  const bool up = ot_pipeline_folds(kind, pp) && chunk / pp % 2 == 1;
  return up ? pp - 1 - chunk % pp : chunk % pp;
}

double ot_pipeline_bubble(ot_pipeline kind, int pp, int vpp, int64_t micro_batches) {
  const int idle_as = ot_pipeline_rules_of(kind)->idle_as;
  if (idle_as < 0) return 0;
  const double chunks = idle_as > 0 ? idle_as : vpp;
  return (pp - 1) / (chunks * (double)micro_batches + pp - 1);
}

int ot_pipeline_chunks(ot_pipeline kind, int pp, int vpp) {
  return ot_pipeline_folds(kind, pp) && vpp == 1 ? 2 : vpp;
}

// The relaxed rule of torch.distributed.pipelining: as many equal rounds as there are whole groups
// of pp.
int ot_pipeline_round(int pp, int micro_batches) {
  const int rounds = micro_batches > pp ? micro_batches / pp : 1;
  return micro_batches % rounds == 0 ? micro_batches / rounds : 0;
}

static ot_status check_chunks(ot_pipeline kind, int pp, int chunks) {
  const int least = rules[kind].min_chunks, most = rules[kind].max_chunks;
  if (chunks >= least && (most == 0 || chunks <= most)) return OT_OK;
  const char *const name = ot_pipeline_names[kind];
  if (most == 0) {
    return ot_fail(OT_USAGE,
                   "parallel: pipeline=%s with vpp=%d; it needs at least %d chunks per stage (try "
                   "vpp=%d, or pipeline=1f1b)",
                   name, chunks, least, least);
  }
  if (most > 1) {
    return ot_fail(OT_USAGE,
                   "parallel: pipeline=%s with vpp=%d; it needs %d chunks per stage (try vpp=%d)",
                   name, chunks, most, most);
  }
  return ot_fail(
      OT_USAGE,
      "parallel: pipeline=%s with vpp=%d on pp=%d stages; it needs one chunk per stage (try "
      "vpp=1, or pipeline=interleaved)",
      name, chunks, pp);
}

// A pipeline schedule is a list of its actions: a million passes need a gigabyte during the build.
static ot_status check_actions(int pp, int chunks, int micro_batches) {
  enum { MOST_PASSES = 1 << 20 };
  const int64_t passes = (int64_t)pp * chunks * micro_batches;
  if (passes <= MOST_PASSES) return OT_OK;
  ot_fail(OT_USAGE,
          "parallel: pp=%d x vpp=%d x %d micro-batches is a pipeline schedule of %lld passes; "
          "allowed: up to %d",
          pp, chunks, micro_batches, (long long)passes, MOST_PASSES);
  return ot_fail_hint(OT_USAGE, "a larger micro_batch_size or dp makes fewer micro-batches");
}

ot_status ot_pipeline_check(ot_pipeline kind, int pp, int chunks_per_stage, int micro_batches) {
  OT_ASSERT(pp >= 1 && chunks_per_stage >= 1 && micro_batches >= 1);
  if (pp == 1) return OT_OK;
  OT_TRY(check_chunks(kind, pp, chunks_per_stage));
  OT_TRY(check_actions(pp, chunks_per_stage, micro_batches));
  if (!rules[kind].in_rounds || ot_pipeline_round(pp, micro_batches) > 0) return OT_OK;
  int below = micro_batches - 1;
  while (ot_pipeline_round(pp, below) == 0) below--;
  int above = micro_batches + 1;
  while (ot_pipeline_round(pp, above) == 0) above++;
  ot_fail(OT_USAGE,
          "parallel: pipeline=%s on pp=%d stages does not support %d micro-batches: they do not "
          "form equal rounds of at least %d",
          ot_pipeline_names[kind], pp, micro_batches, pp);
  return ot_fail_hint(OT_USAGE,
                      "the nearest valid numbers are %d and %d micro-batches per step "
                      "(global_batch_size / micro_batch_size / dp)",
                      below, above);
}
