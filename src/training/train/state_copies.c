// SPDX-License-Identifier: Apache-2.0
// The leader knows the run directory: which history the run has, and its checkpoints.
#include "train/state_copies.h"

#include <limits.h>
#include <stdlib.h>

#include "base/quantity.h"
#include "base/text.h"
#include "state/state_content.h"

static void print_off(const ot_loop_request *request, const char *why) {
  ot_loop_note(request,
               "note: no copies in memory: %s; a restart reads the disk (checkpoint.memory)", why);
}

ot_status ot_state_copies_open(const ot_loop_request *request, ot_arena *arena,
                               ot_loop_start *start) {
  char output[PATH_MAX] = "";
  if (request->run->checkpoint.memory == 0) return OT_OK;
  if (start->directory && !realpath(request->run->output, output)) output[0] = '\0';
  const ot_memory_request wanted = {.runtime = ot_trainer_runtime(start->trainer),
                                    .world = request->world,
                                    .run = request->run,
                                    .loader = ot_trainer_data_loader(start->trainer),
                                    .config = ot_state_settings(arena, request->settings),
                                    .output = output};
  const ot_status status = ot_memory_copies_create(&wanted, &start->memory);
  if (status != OT_ENVIRONMENT) return status;
  print_off(request, ot_fail_message());
  return OT_OK;
}

// Copies newer than a checkpoint that was removed would undo that the user went back.
static ot_status describe_search(const ot_loop_request *request, const ot_loop_start *start,
                                 ot_arena *arena, ot_memory_search *search) {
  ot_checkpoint_steps listed;
  if (!start->directory || !start->newest) return OT_OK;
  OT_TRY(ot_checkpoint_list(arena, ot_run_directory_checkpoints(start->directory), &listed));
  const ot_run_history history = ot_run_directory_history(start->directory);
  const bool gone = history.saved_step > (listed.count > 0 ? listed.step[0] : -1);
  *search =
      (ot_memory_search){.history = gone ? 0 : history.number, .disk_step = start->found_step};
  if (gone && history.number)
    ot_loop_note(request,
                 "copies in memory are not used: the checkpoint of step %lld, which the run has "
                 "saved, is gone",
                 (long long)history.saved_step);
  return OT_OK;
}

static ot_status compare_copies(const ot_loop_request *request, ot_arena *arena,
                                const ot_loop_start *start, const ot_memory_found *found) {
  const ot_data_record_state state = {.path = "the copies in memory",
                                      .record = found->record[0] ? found->record : NULL,
                                      .next_sample = found->position.next_sample};
  OT_TRY(ot_loop_compare_settings(request, state.path, found->config, arena));
  ot_loop_note_rate(request, found->config, found->position.step, arena);
  return ot_loop_compare_data(request, start, &state, arena);
}

static ot_status adopt(const ot_loop_request *request, ot_arena *arena, ot_loop_start *start,
                       const ot_memory_found *found) {
  const char *note = NULL;
  ot_status status = OT_OK;
  if (start->directory) status = compare_copies(request, arena, start, found);
  OT_TRY(ot_world_agree(request->world, status));
  OT_TRY(ot_world_agree(request->world, ot_memory_copies_load(start->memory, arena, &note)));
  if (note) ot_loop_note(request, "%s", note);
  ot_trainer_set_position(start->trainer, &found->position);
  start->resumed_here &= found->disk_step == found->position.step;
  start->from_memory = true;
  return OT_OK;
}

ot_status ot_state_copies_load(const ot_loop_request *request, ot_arena *arena,
                               ot_loop_start *start) {
  ot_memory_search search = {.disk_step = -1};
  ot_memory_found found;
  if (!start->memory) return OT_OK;
  OT_TRY(ot_world_agree(request->world, describe_search(request, start, arena, &search)));
  OT_TRY(ot_memory_copies_find(start->memory, &search, &found));
  if (found.note[0]) ot_loop_note(request, "%s", found.note);
  if (found.note[0] && !start->fallback)
    start->fallback = ot_arena_text(arena, found.note, ot_text_length(found.note));
  return found.found ? adopt(request, arena, start, &found) : OT_OK;
}

ot_status ot_state_copies_begin(ot_state_copies *copies, const ot_session *s) {
  char note[OT_MEMORY_NOTE_BYTES];
  const ot_loop_start *const start = &s->start;
  if (!start->memory) return OT_OK;
  const uint64_t history = start->directory ? ot_run_directory_history(start->directory).number : 0;
  OT_TRY(ot_memory_copies_begin(start->memory, history, note, &copies->on));
  if (!copies->on) print_off(s->request, note);
  return OT_OK;
}

bool ot_state_copies_busy(const ot_state_copies *copies, const ot_session *s) {
  return copies->on && ot_memory_copies_busy(s->start.memory);
}

void ot_state_copies_make_due(ot_state_copies *copies, const ot_session *s, bool busy) {
  if (!copies->on) return;
  const ot_position position = ot_trainer_position(s->start.trainer);
  copies->due |= position.step % s->run->checkpoint.memory == 0;
  if (!copies->due || busy) return;
  copies->due = false;
  ot_memory_copies_take(s->start.memory, &position);
}

ot_status ot_state_copies_turn(const ot_state_copies *copies, const ot_session *s) {
  uint64_t history = 0;
  if (!copies->on) return OT_OK;
  ot_status status = OT_OK;
  if (ot_session_leads(s)) status = ot_run_directory_draw_history(s->start.directory);
  OT_TRY(ot_world_agree(s->request->world, status));
  if (ot_session_leads(s)) history = ot_run_directory_history(s->start.directory).number;
  return ot_memory_copies_turn(s->start.memory, history);
}

void ot_state_copies_end(const ot_session *s) {
  if (!s->start.memory) return;
  const ot_status status = ot_memory_copies_remove(s->start.memory);
  if (status != OT_OK) ot_loop_note(s->request, "warning: %s", ot_fail_message());
  const ot_memory_account a = ot_memory_copies_account(s->start.memory);
  if (a.count == 0) return;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_loop_note(s->request,
               "%lld cop%s in memory, of %s on rank 0: each stopped the steps for %.3g ms and was "
               "complete after %.3g ms",
               (long long)a.count, a.count == 1 ? "y" : "ies", ot_figure_bytes(&arena, a.bytes),
               1e3 * a.blocked_s / (double)a.count, 1e3 * a.seconds / (double)a.count);
  ot_heap_release(&heap);
}
