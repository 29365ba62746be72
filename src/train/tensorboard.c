// SPDX-License-Identifier: Apache-2.0
// One file a process: events.out.tfevents.SECONDS.HOST.PID.N, appended to record by record.
#include "train/tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "files/disk.h"
#include "host/heap.h"
#include "train/event_record.h"

enum { HOST_BYTES = 128, FILES_MAX = 1000 };

struct ot_tensorboard {
  char path[OT_PATH_BYTES];
  int file;        // -1 when closed
  int64_t length;  // bytes of whole records
};

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// Appends the records in `out`; after a failure the file ends with the record before.
static ot_status append_records(ot_tensorboard *tensorboard, const ot_text_builder *out) {
  const ot_status status = ot_disk_write_at(tensorboard->file, tensorboard->path,
                                            tensorboard->length, out->text, out->length);
  if (status == OT_OK)
    tensorboard->length += out->length;
  else
    (void)!ftruncate(tensorboard->file, tensorboard->length);
  return status;
}

// Readers order the files of a directory by name, so a later one must have a later name.
static ot_status open_new_file(ot_tensorboard *tensorboard, const char *directory) {
  char host[HOST_BYTES] = "host";
  gethostname(host, sizeof host - 1);
  char *const path = tensorboard->path;
  for (int i = 0; i < FILES_MAX; i++) {
    ot_text_format(path, OT_PATH_BYTES, "%s/events.out.tfevents.%lld.%s.%lld.%d", directory,
                   (long long)time(NULL), host, (long long)getpid(), i);
    tensorboard->file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (tensorboard->file >= 0) return OT_OK;
    if (errno != EEXIST) break;
  }
  return ot_disk_fail("create", path, errno);
}

static ot_status start_file(ot_tensorboard *tensorboard, const char *directory, int64_t step) {
  OT_TRY(open_new_file(tensorboard, directory));
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_text_builder out = {.arena = &arena};
  ot_event_record_version(&out, now_s());
  if (step > 0) ot_event_record_restart(&out, now_s(), step + 1);
  const ot_status status = append_records(tensorboard, &out);
  ot_heap_release(&heap);
  return status;
}

ot_status ot_tensorboard_create(const char *directory, int64_t step, ot_tensorboard **out) {
  ot_tensorboard *tensorboard = calloc(1, sizeof *tensorboard);
  OT_CHECK(tensorboard != NULL, OT_ENVIRONMENT, "out of memory (%s)", directory);
  tensorboard->file = -1;
  const ot_status status = start_file(tensorboard, directory, step);
  if (status != OT_OK) ot_tensorboard_destroy(&tensorboard);
  *out = tensorboard;
  return status;
}

void ot_tensorboard_destroy(ot_tensorboard **tensorboard) {
  if (*tensorboard == NULL) return;
  if ((*tensorboard)->file >= 0) close((*tensorboard)->file);
  free(*tensorboard);
  *tensorboard = NULL;
}

ot_status ot_tensorboard_write(ot_tensorboard *tensorboard, int64_t step, const ot_metric *scalars,
                               int num_scalars) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_text_builder out = {.arena = &arena};
  ot_event_record_scalars(&out, now_s(), step, scalars, num_scalars);
  const ot_status status = append_records(tensorboard, &out);
  ot_heap_release(&heap);
  return status;
}

static double known_count(int64_t count) { return count >= 0 ? (double)count : NAN; }

ot_status ot_tensorboard_write_step(ot_tensorboard *tensorboard, const ot_metrics_step *step) {
  const ot_metric all[] = {
      {"train/loss", step->loss_nats},
      {"train/grad_norm", step->gradient_norm},
      {"train/lr", step->learning_rate},
      {"train/tokens", known_count(step->tokens)},
      {"train/noise_scale_tokens", step->noise_scale_tokens},
      {"moe/aux_loss", step->experts.aux_loss},
      {"moe/z_loss", step->experts.z_loss},
      {"moe/load_max", step->experts.load_max},
      {"moe/load_entropy", step->experts.load_entropy},
      {"moe/drop_share", step->experts.drop_share},
      {"moe/rounds", step->experts.rounds},
      {"perf/step_seconds", step->step_s},
      {"perf/tokens_per_second", step->tokens_per_s},
      {"perf/mfu", step->mfu},
      {"perf/predicted_step_seconds", step->predicted_step_s},
      {"perf/bubble_fraction", step->bubble_fraction},
      {"memory/peak_bytes", known_count(step->memory_peak_bytes)},
      {"exposed_seconds/tp", step->exposed.tp_s},
      {"exposed_seconds/cp", step->exposed.cp_s},
      {"exposed_seconds/ep", step->exposed.ep_s},
      {"exposed_seconds/pp", step->exposed.pp_s},
      {"exposed_seconds/dp", step->exposed.dp_s},
  };
  ot_metric known[sizeof all / sizeof all[0]];
  int num_known = 0;
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    if (!isnan(all[i].value)) known[num_known++] = all[i];
  OT_TRY(ot_tensorboard_write(tensorboard, step->step, known, num_known));
  if (step->num_health == 0) return OT_OK;
  return ot_tensorboard_write(tensorboard, step->step, step->health, step->num_health);
}
