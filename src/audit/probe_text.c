// SPDX-License-Identifier: Apache-2.0
// Tokens through the run's own feed; weights through its own checkpoints and conversions.
#include "audit/probe_text.h"

#include <stdlib.h>

#include "base/text.h"
#include "data/feed.h"
#include "files/disk.h"
#include "train/convert.h"

// ---- tokens ----

// Makes of the first `tokens` tokens of a sequence one document.
static ot_status take_document(const ot_rows *from, int64_t tokens, ot_rows *rows) {
  const int64_t T = tokens < from->T ? tokens : from->T;
  OT_TRY(ot_rows_create(1, T, rows));
  for (int64_t t = 0; t < T; t++) {
    rows->tokens[t] = from->tokens[t];
    rows->targets[t] = t + 1 < T ? from->tokens[t + 1] : -1;
    rows->positions[t] = (int32_t)t;
  }
  rows->num_targets = T - 1;
  return OT_OK;
}

ot_status ot_probe_text_read(const ot_run *run, int64_t tokens, ot_rows *rows) {
  *rows = (ot_rows){0};
  ot_feed *feed = NULL;
  ot_rows whole = {0};
  ot_status status = ot_feed_create(run, &feed);
  if (status == OT_OK) status = ot_rows_create(1, run->data.sequence_length, &whole);
  if (status == OT_OK) status = ot_feed_train(feed, 0, &whole);
  if (status == OT_OK) status = take_document(&whole, tokens, rows);
  ot_rows_release(&whole);
  ot_feed_destroy(&feed);
  return status;
}

// ---- files ----

static ot_status make_folder(ot_arena *arena, char **folder) {
  const char *const temporary = getenv("TMPDIR");
  *folder = ot_disk_join(arena, temporary ? temporary : "/tmp", "orthant-audit-XXXXXX");
  OT_CHECK(mkdtemp(*folder), OT_ENVIRONMENT, "cannot make a folder for temporary files (%s)",
           *folder);
  return OT_OK;
}

static ot_status convert(const char *folder, ot_dtype full, ot_arena *arena, const char **path) {
  ot_convert_report report;
  ot_heap heap = {0};
  ot_arena own = ot_heap_arena_create(&heap);
  *path = ot_disk_join(arena, folder, "hf");
  const ot_convert_request request = {.from = ot_disk_join(arena, folder, "checkpoint"),
                                      .to = *path,
                                      .dtype = &full,
                                      .only_ours = true};
  const ot_status status = ot_convert(&own, &request, &report);
  ot_heap_release(&heap);
  return status;
}

ot_status ot_probe_export(ot_trainer *trainer, ot_team *team, ot_arena *arena, const char **path) {
  char folder[OT_TEAM_TEXT] = "";
  const bool wide = ot_trainer_run(trainer)->precision.compute == OT_F64;
  const ot_dtype full = wide ? OT_F64 : OT_F32;
  *path = NULL;
  ot_status status = OT_OK;
  if (ot_team_leads(team)) {
    char *made = NULL;
    status = make_folder(arena, &made);
    if (status == OT_OK) ot_text_format(folder, sizeof folder, "%s", made);
  }
  OT_TRY(ot_team_agree(team, status));
  OT_TRY(ot_team_share(team, folder));
  status = ot_trainer_save(trainer, ot_disk_join(arena, folder, "checkpoint"));
  if (status == OT_OK && ot_team_leads(team)) status = convert(folder, full, arena, path);
  status = ot_team_agree(team, status);
  if (status != OT_OK && ot_team_leads(team)) ot_disk_remove(folder);
  return status;
}

void ot_probe_export_remove(const char *path) {
  if (!path) return;
  char folder[OT_PATH_BYTES];
  const int64_t length = ot_text_format(folder, sizeof folder, "%s", path);
  int64_t end = length;
  while (end > 0 && folder[end] != '/') end--;
  folder[end] = '\0';
  ot_disk_remove(folder);
}
