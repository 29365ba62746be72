// SPDX-License-Identifier: Apache-2.0
// Compares a run that goes on with the state that it goes on from: its settings, its data, its
// learning rate.
#include <math.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "describe/learning_rate.h"
#include "describe/run_keys.h"
#include "files/tree_file.h"
#include "train/loop_start.h"

// ---- settings ----

ot_status ot_loop_compare_settings(const ot_loop_request *request, const char *path,
                                   const char *config, ot_arena *arena) {
  const ot_tree_origin origin = {.name = path};
  ot_node *old = NULL;
  OT_TRY(ot_tree_parse_json(&origin, config, ot_text_length(config), arena, &old));
  ot_text_builder differences = {.arena = arena};
  const int count = ot_run_compare(old, request->settings, &differences);
  if (count == 0) return OT_OK;
  ot_fail(OT_USAGE, "%d setting%s changed since %s:\n%s", count, ot_text_plural(count, "s"), path,
          ot_text_builder_text(&differences));
  return ot_fail_hint(OT_USAGE,
                      "give them with --set to change them on purpose, or train into "
                      "another output");
}

// ---- data ----

static bool is_given(const ot_node *settings, const char *key) {
  const ot_node *const node = settings ? ot_node_find(settings, key) : NULL;
  return node && node->source && ot_text_starts_with(node->source, "--set");
}

ot_status ot_loop_compare_data(const ot_loop_request *request, const ot_loop_start *start,
                               const ot_data_record_state *state, ot_arena *arena) {
  ot_data_record_state wanted = *state;
  const char *note = NULL;
  wanted.train_given = is_given(request->settings, "data.train");
  wanted.validation_given = is_given(request->settings, "data.validation");
  wanted.tokenizer_given = is_given(request->settings, "data.tokenizer");
  OT_TRY(ot_data_record_check(ot_trainer_data_loader(start->trainer), &wanted, arena, &note));
  if (note) ot_loop_note(request, "%s", note);
  return OT_OK;
}

// ---- learning rate ----

// Advice on a rate that jumps; "": none.
static const char *advise(const ot_run *old, const ot_run *now, ot_arena *arena) {
  const ot_run_learning_rate *const rate = &old->learning_rate;
  const int64_t total = ot_run_total_steps(old);
  const bool same = rate->decay == now->learning_rate.decay;
  if (!same || rate->decay == OT_DECAY_CONSTANT) return "";
  if (rate->decay == OT_DECAY_WSD) {
    const int64_t length = rate->decay_steps > 0 ? rate->decay_steps : total / 10;
    return ot_arena_format(arena,
                           "; a run with decay wsd goes on from a checkpoint before its decay, "
                           "which began after step %lld (--resume)",
                           (long long)(total - length));
  }
  const int64_t length = rate->decay_steps > 0 ? rate->decay_steps : total - rate->warmup_steps;
  if (length <= 0) return "";
  return ot_arena_format(
      arena, "; --set learning_rate.decay_steps=%lld keeps its decay, and the rate %g after it",
      (long long)length, rate->min);
}

void ot_loop_note_rate(const ot_loop_request *request, const char *config, int64_t step,
                       ot_arena *arena) {
  const ot_tree_origin origin = {.name = "settings"};
  ot_node *tree = NULL, *settings = NULL;
  ot_run *const old = ot_arena_take(arena, sizeof *old);
  if (ot_tree_parse_json(&origin, config, ot_text_length(config), arena, &tree) != OT_OK) return;
  if (ot_run_read(tree, arena, old, &settings) != OT_OK || step == 0) return;
  if (step >= ot_run_total_steps(request->run)) return;
  const double expected = ot_learning_rate_at(old, step);
  const double rate = ot_learning_rate_at(request->run, step);
  if (fabs(rate - expected) <= 0.01 * fmax(rate, expected)) return;
  ot_loop_note(request,
               "note: the learning rate jumps from %.3g in step %lld to %.3g in step %lld; the "
               "schedule of the checkpoint continues with %.3g%s",
               ot_learning_rate_at(old, step - 1), (long long)step, rate, (long long)(step + 1),
               expected, advise(old, request->run, arena));
}

// ---- ranks ----

// The settings of the leader, as JSON, on all ranks.
static ot_status share_settings(const ot_loop_request *request, const ot_node *own, ot_arena *arena,
                                const char **text) {
  ot_world *const world = request->world;
  int64_t *const bytes = ot_arena_array(arena, ot_world_size(world), sizeof *bytes);
  ot_json_writer json = ot_json_begin(arena, 0);
  ot_text_builder whole = {.arena = arena};
  ot_node_write_json(own, NULL, &json);
  OT_TRY(ot_world_allgather(world, json.length, bytes));
  for (int64_t at = 0; at < bytes[0]; at += OT_WORLD_TEXT - 1) {
    char piece[OT_WORLD_TEXT] = "";
    if (ot_world_is_leader(world)) ot_text_format(piece, sizeof piece, "%s", json.text + at);
    OT_TRY(ot_world_broadcast(world, piece));
    ot_text_put(&whole, piece);
  }
  *text = ot_text_builder_text(&whole);
  return OT_OK;
}

// Names the settings of this rank that are not those of the leader.
static ot_status name_settings(const ot_loop_request *request, ot_arena *arena) {
  const ot_tree_origin origin = {.name = "the settings of rank 0"};
  const ot_node *const own = ot_run_write(request->run, arena);
  ot_text_builder differences = {.arena = arena};
  const char *text = NULL;
  ot_node *first = NULL;
  OT_TRY(share_settings(request, own, arena, &text));
  OT_TRY(ot_tree_parse_json(&origin, text, ot_text_length(text), arena, &first));
  const int count = ot_run_compare_ranks(first, own, &differences);
  if (count == 0) return OT_OK;
  return ot_fail(OT_RANKS, "the settings of the run differ from those of rank 0:\n%s",
                 ot_text_builder_text(&differences));
}

ot_status ot_loop_compare_ranks(const ot_loop_request *request, ot_arena *arena) {
  ot_world *const world = request->world;
  const uint64_t settings = ot_run_hash(request->run, arena);
  int64_t *const all = ot_arena_array(arena, ot_world_size(world), sizeof *all);
  bool same = true;
  OT_TRY(ot_world_allgather(world, (int64_t)settings, all));
  for (int i = 0; i < ot_world_size(world); i++) same = same && all[i] == all[0];
  if (!same) OT_TRY(ot_world_agree(world, name_settings(request, arena)));
  uint64_t hash = settings;
  if (ot_world_mesh(world)) {
    const uint64_t shape = ot_mesh_hash(ot_world_mesh(world));
    hash = ot_hash_bytes(hash, &shape, sizeof shape);
  }
  return ot_world_check_equal(world, hash, "the settings of the run");
}
