// SPDX-License-Identifier: Apache-2.0
// Ranks that write wait for no one in between, and the watchdog does not run meanwhile.
#include "train/step_recording.h"

#include <unistd.h>

#include "base/failure.h"
#include "files/disk.h"
#include "host/heap.h"
#include "train/trainer_state.h"

// ---- the folder ----

static ot_status check_folder(const char *path) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_disk_names names = {0};
  const bool absent = access(path, F_OK) != 0;
  ot_status status = OT_OK;
  if (!absent && !ot_disk_is_directory(path))
    status = ot_fail(OT_USAGE, "a record is a folder, and this is none (%s)", path);
  if (!absent && status == OT_OK) status = ot_disk_list(&arena, path, &names);
  if (status == OT_OK && names.count > 0) {
    ot_fail(OT_USAGE, "the folder of the record is not empty: it has %lld files, %s (%s)",
            (long long)names.count, names.name[0], path);
    status = ot_fail_hint(OT_USAGE, "record each step into a new folder");
  }
  ot_heap_release(&heap);
  return status;
}

ot_status ot_step_recording_check(const ot_trainer *trainer, const char *path) {
  const bool leads = ot_world_is_leader(trainer->world);
  OT_CHECK(trainer->targets.context == NULL, OT_USAGE,
           "a run that learns from a teacher cannot be recorded: a record has one target a token "
           "(--record)");
  return ot_world_agree(trainer->world, leads ? check_folder(path) : OT_OK);
}

// ---- the record ----

static void discard(ot_trainer *trainer) {
  ot_step_record_remove(trainer->record);
  ot_step_record_destroy(&trainer->record);
}

static ot_status create(ot_trainer *trainer, const char *path) {
  const ot_step_samples samples = ot_step_next_samples(trainer);
  const ot_step_record_request request = {.directory = path,
                                          .run = trainer->run,
                                          .tokenizer = ot_data_loader_tokenizer(trainer->loader),
                                          .runtime = trainer->runtime,
                                          .world = trainer->world,
                                          .position = trainer->position,
                                          .micro_batches = samples.micro_batches};
  OT_TRY(ot_step_record_create(&request, &trainer->record));
  return ot_step_record_write_before(trainer->record);
}

// The failure of one rank becomes that of all, which remove their files.
static ot_status agree(ot_trainer *trainer, ot_status status) {
  ot_failure failure = {.status = OT_OK};
  ot_failure_take(&failure, ot_world_agree(trainer->world, status));
  if (failure.status == OT_OK) return OT_OK;
  discard(trainer);
  return ot_failure_repeat(&failure);
}

ot_status ot_step_recording_begin(ot_trainer *trainer, const char *path) {
  const bool leads = ot_world_is_leader(trainer->world);
  ot_world_set_timeout(trainer->world, 0);
  OT_TRY(ot_step_recording_check(trainer, path));
  OT_TRY(ot_world_agree(trainer->world, leads ? ot_disk_make_directory(path) : OT_OK));
  return agree(trainer, create(trainer, path));
}

static ot_status complete(const ot_trainer *trainer, const ot_step_report *report) {
  const ot_step_record_numbers numbers = {.loss = report->loss, .norm = report->gradient_norm};
  OT_TRY(ot_step_record_write_after(trainer->record));
  return ot_step_record_finish(trainer->record, &numbers);
}

ot_status ot_step_recording_end(ot_trainer *trainer, ot_status status,
                                const ot_step_report *report) {
  ot_failure failure = {.status = OT_OK};
  ot_failure_take(&failure, status);
  if (status != OT_OK) {
    discard(trainer);
    return ot_failure_repeat(&failure);
  }
  ot_world_set_timeout(trainer->world, 0);
  OT_TRY(agree(trainer, complete(trainer, report)));
  ot_world_set_timeout(trainer->world, trainer->run->parallel.watchdog_seconds);
  ot_step_record_destroy(&trainer->record);
  return OT_OK;
}
