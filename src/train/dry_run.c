// SPDX-License-Identifier: Apache-2.0
// Everything that a run checks before its first step, and its bill of memory, without taking the
// memory or writing a file.
#include <unistd.h>

#include "base/text_builder.h"
#include "train/disk.h"
#include "train/feed.h"
#include "train/learning_rate.h"
#include "train/loop_start.h"

enum { MAX_COUNTS = 64 };

static const char *gigabytes(ot_arena *arena, int64_t bytes) {
  return ot_arena_format(arena, "%.2f GB", (double)bytes * 1e-9);
}

static int64_t memory_of_machine(void) {
  return (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
}

static void say_bill(const ot_loop_request *request, const ot_schedule *schedule, ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  for (int i = 0; i < OT_MEMORY_CLASSES; i++) {
    const int64_t bytes = schedule->bill.class_bytes[i];
    if (bytes == 0) continue;
    ot_text_appendf(&text, "  %-12s %14s\n", ot_memory_class_name((ot_memory_class)i),
                    gigabytes(arena, bytes));
  }
  ot_loop_note(request, "memory of one rank, to the byte:\n%s  %-12s %14s (%ld bytes)",
               ot_text_builder_text(&text), "peak", gigabytes(arena, schedule->bill.peak_bytes),
               schedule->bill.peak_bytes);
}

// A checkpoint holds weights, moments and, where they are apart, master weights.
static int64_t checkpoint_bytes(const ot_schedule *schedule) {
  return schedule->bill.class_bytes[OT_MEMORY_WEIGHTS] +
         schedule->bill.class_bytes[OT_MEMORY_OPTIMIZER];
}

static ot_status check_disk(const ot_loop_request *request, const ot_schedule *schedule,
                            ot_arena *arena) {
  const char *path = request->run->output;
  while (!ot_disk_is_directory(path)) {
    char *const parent = ot_arena_format(arena, "%s", path);
    char *slash = NULL;
    for (char *c = parent; *c; c++) slash = *c == '/' ? c : slash;
    if (!slash || slash == parent) {
      path = slash ? "/" : ".";
      break;
    }
    *slash = '\0';
    path = parent;
  }
  int64_t free_bytes = 0;
  OT_TRY(ot_disk_free_bytes(path, &free_bytes));
  const int64_t needed = checkpoint_bytes(schedule);
  OT_CHECK(free_bytes > needed, OT_ENVIRONMENT,
           "a checkpoint takes %s, the disk of %s has %s free (output)", gigabytes(arena, needed),
           path, gigabytes(arena, free_bytes));
  ot_loop_note(request, "a checkpoint takes %s; free where the run goes: %s",
               gigabytes(arena, needed), gigabytes(arena, free_bytes));
  return OT_OK;
}

static void say_length(const ot_loop_request *request, const ot_schedule *schedule) {
  const ot_run *const run = request->run;
  const int order = ot_schedule_find_order(schedule, OT_ORDER_STEP, 0);
  const int64_t steps = ot_run_total_steps(run);
  ot_loop_note(request,
               "%ld steps, %ld tokens; first step: %ld sequences of %ld in %d micro-batches, "
               "%.4g model TFLOP",
               steps, ot_run_tokens_after(run, steps), run->batch.global_batch_size,
               run->data.sequence_length, schedule->orders[order].micro_batches,
               ot_order_flops(schedule, order, true) * 1e-12);
}

static ot_status dry_run(const ot_loop_request *request, ot_arena *arena) {
  const ot_run *const run = request->run;
  int counts[MAX_COUNTS];
  ot_instance_request wanted;
  ot_graph graphs[OT_MODES];
  ot_schedule schedule;
  OT_TRY(ot_run_check_training(run));
  OT_TRY(ot_trainer_request(run, counts, MAX_COUNTS, &wanted));
  OT_TRY(ot_instance_plan(&wanted, arena, graphs, &schedule));
  OT_TRY(ot_schedule_check(&schedule, arena));
  ot_feed *feed = NULL;
  OT_TRY(ot_feed_create(run, &feed));
  ot_feed_destroy(&feed);
  ot_loop_note(request, "%s: %ld parameters", run->model.model_type,
               ot_model_parameters(&run->model));
  say_bill(request, &schedule, arena);
  say_length(request, &schedule);
  OT_CHECK(schedule.bill.peak_bytes < memory_of_machine(), OT_ENVIRONMENT,
           "the run needs %s, this machine has %s", gigabytes(arena, schedule.bill.peak_bytes),
           gigabytes(arena, memory_of_machine()));
  return check_disk(request, &schedule, arena);
}

ot_status ot_loop_dry_run(const ot_loop_request *request) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = dry_run(request, &arena);
  ot_heap_release(&heap);
  return status;
}
