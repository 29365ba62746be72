// SPDX-License-Identifier: Apache-2.0
// One stage runs any number of chunks in any order; with more, most orders are made for one chunk a
// stage, zb-v for two. Only the interleaved order looks at the number of micro-batches.
#include "describe/pipeline_rules.h"

static const char *const names[] = {
    [OT_PIPELINE_GPIPE] = "gpipe",
    [OT_PIPELINE_1F1B] = "1f1b",
    [OT_PIPELINE_INTERLEAVED] = "interleaved",
    [OT_PIPELINE_ZB_H1] = "zb-h1",
    [OT_PIPELINE_ZB_H2] = "zb-h2",
    [OT_PIPELINE_ZB_V] = "zb-v",
};

const char *ot_pipeline_name(ot_pipeline kind) {
  OT_ASSERT((int)kind >= 0 && (int)kind < OT_COUNT(names));
  return names[kind];
}

bool ot_pipeline_splits(ot_pipeline kind) {
  return kind == OT_PIPELINE_ZB_H1 || kind == OT_PIPELINE_ZB_H2 || kind == OT_PIPELINE_ZB_V;
}

int ot_pipeline_chunks(ot_pipeline kind, int pp, int vpp) {
  const bool folded = kind == OT_PIPELINE_ZB_V && pp > 1 && vpp == 1;
  return folded ? 2 : vpp;
}

// The relaxed rule of torch.distributed.pipelining: as many rounds as whole groups of pp fit, all
// equally long.
int ot_pipeline_round(int pp, int micro_batches) {
  const int rounds = micro_batches > pp ? micro_batches / pp : 1;
  return micro_batches % rounds == 0 ? micro_batches / rounds : 0;
}

static ot_status check_chunks(ot_pipeline kind, int pp, int chunks) {
  if (kind == OT_PIPELINE_INTERLEAVED) {
    OT_CHECK(chunks > 1, OT_USAGE,
             "parallel: pipeline=interleaved with vpp=%d; it needs at least 2 chunks a stage (try "
             "vpp=2, or pipeline=1f1b)",
             chunks);
    return OT_OK;
  }
  if (kind == OT_PIPELINE_ZB_V) {
    OT_CHECK(chunks == 2, OT_USAGE,
             "parallel: pipeline=zb-v with vpp=%d; it runs 2 chunks a stage (try vpp=2)", chunks);
    return OT_OK;
  }
  OT_CHECK(chunks == 1, OT_USAGE,
           "parallel: pipeline=%s with vpp=%d on pp=%d stages; it runs one chunk a stage (try "
           "vpp=1, or pipeline=interleaved)",
           names[kind], chunks, pp);
  return OT_OK;
}

// A pipeline schedule is a list of its actions: a million passes take a gigabyte while it is built.
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
  if (kind != OT_PIPELINE_INTERLEAVED || ot_pipeline_round(pp, micro_batches) > 0) return OT_OK;
  int below = micro_batches - 1;
  while (ot_pipeline_round(pp, below) == 0) below--;
  int above = micro_batches + 1;
  while (ot_pipeline_round(pp, above) == 0) above++;
  ot_fail(OT_USAGE,
          "parallel: pipeline=interleaved on pp=%d stages does not run %d micro-batches: they make "
          "no equal rounds of at least %d",
          pp, micro_batches, pp);
  return ot_fail_hint(OT_USAGE,
                      "the nearest that fit are %d and %d micro-batches a step (global_batch_size "
                      "/ micro_batch_size / dp)",
                      below, above);
}
