// SPDX-License-Identifier: Apache-2.0
// What a run asks of the runtime of a rank, and what this back end can do of it.
#include "base/text.h"
#include "files/disk.h"
#include "train/trainer.h"

int64_t ot_trainer_sequences(const ot_run *run, const ot_mesh *mesh) {
  const int replicas = mesh ? mesh->degree[OT_AXIS_DP_REPLICATE] : 1;
  const int shards = mesh ? mesh->degree[OT_AXIS_DP_SHARD] : 1;
  return run->batch.micro_batch_size * replicas * shards;
}

// Lists the distinct numbers of micro-batches that steps of the run have.
static void count_micro_batches(const ot_run *run, ot_arena *arena, ot_runtime_request *request) {
  int *const counts = ot_arena_array(arena, run->batch.num_ramp + 1, sizeof *counts);
  int num = 0;
  for (int64_t i = -1; i < run->batch.num_ramp; i++) {
    const int64_t sequences =
        i < 0 ? run->batch.global_batch_size : run->batch.ramp[i].global_batch_size;
    const int count = (int)(sequences / ot_trainer_sequences(run, request->mesh));
    bool known = false;
    for (int k = 0; k < num; k++) known = known || counts[k] == count;
    if (!known) counts[num++] = count;
  }
  request->micro_batches = counts;
  request->num_micro_batches = num;
}

static ot_status read_order(const ot_run *run, ot_arena *arena, ot_runtime_request *request) {
  enum { ORDER_BYTES_MAX = 1 << 26 };
  if (!run->parallel.order_csv || run->parallel.order_csv[0] == '\0') return OT_OK;
  char *text = NULL;
  int64_t bytes = 0;
  OT_TRY(ot_disk_read(arena, run->parallel.order_csv, ORDER_BYTES_MAX, &text, &bytes));
  OT_CHECK(ot_text_length(text) == bytes, OT_USAGE, "parallel.order_csv: a zero byte at %lld (%s)",
           (long long)ot_text_length(text), run->parallel.order_csv);
  request->order_csv = text;
  return OT_OK;
}

// Storage dtypes of this back end: others are rejected, never replaced by a similar one.
static ot_status check_precision(const ot_run_precision *precision) {
  const ot_dtype wide = precision->compute == OT_F64 ? OT_F64 : OT_F32;
  const struct {
    const char *key;
    ot_dtype type;
    bool narrow;  // bf16 is supported, too
  } kept[] = {{"params", precision->params, true},
              {"gradients", precision->gradients, true},
              {"reduce", precision->reduce, true},
              {"master", precision->master, false},
              {"moments", precision->moments, false}};
  OT_CHECK(precision->compute != OT_F16 && precision->compute != OT_F8, OT_ENVIRONMENT,
           "precision: compute=%s is not supported by this back end (try bf16 or fp32)",
           ot_dtype_name(precision->compute));
  for (int i = 0; i < OT_COUNT(kept); i++) {
    const bool there = kept[i].type == wide || (kept[i].narrow && kept[i].type == OT_BF16);
    OT_CHECK(there, OT_ENVIRONMENT, "precision: %s=%s is not supported by this back end (try %s%s)",
             kept[i].key, ot_dtype_name(kept[i].type), ot_dtype_name(wide),
             kept[i].narrow ? " or bf16" : "");
  }
  return OT_OK;
}

ot_status ot_trainer_check(const ot_run *run) {
  for (int64_t i = 0; i < run->audit.num_checks; i++) {
    OT_CHECK(run->audit.checks[i] != OT_AUDIT_OVERLAP, OT_USAGE,
             "audit.checks: overlap runs its own steps and cannot be part of a run (try `orthant "
             "audit overlap`, or exposed_seconds in metrics.jsonl)");
  }
  OT_CHECK(run->audit.every == 0 || run->audit.num_checks > 0, OT_USAGE,
           "audit.every=%lld, but audit.checks is empty (try [ranks])",
           (long long)run->audit.every);
  return check_precision(&run->precision);
}

ot_status ot_trainer_request(const ot_run *run, ot_arena *arena, ot_runtime_request *request) {
  OT_TRY(ot_run_check_ranks(run, request->mesh ? request->mesh->ranks : 1));
  const bool validates = run->data.num_validation > 0;
  *request = (ot_runtime_request){
      .model = &run->model,
      .run = run,
      .modes = 1u << OT_MODE_TRAIN | (validates ? 1u << OT_MODE_EVALUATE : 0),
      .micro_batch_size = run->batch.micro_batch_size,
      .sequence_length = run->data.sequence_length,
      .compute = run->precision.compute == OT_F64 ? OT_F64 : OT_F32,
      .storage = ot_run_storage(&run->precision),
      .threads = run->threads,
      .backend = request->backend,
      .seed = (uint64_t)run->seed,
      .mesh = request->mesh,
      .rank = request->rank,
      .comm = request->comm,
  };
  count_micro_batches(run, arena, request);
  return read_order(run, arena, request);
}
