// SPDX-License-Identifier: Apache-2.0
// Sizes that were not given are found by where the resolved settings say that they come from.
#include "train/loop_checks.h"

#include "base/quantity.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "files/disk.h"
#include "train/learning_rate.h"
#include "train/loop_start.h"

// ---- settings ----

// Keys that set the size of a model, as its family spells them.
static const char *const sizes[] = {
    "vocab_size",        "hidden_size",         "n_embd", "intermediate_size",       "n_layer",
    "num_hidden_layers", "num_attention_heads", "n_head", "max_position_embeddings", "n_positions"};

static void note_sizes(const ot_loop_request *request, ot_arena *arena) {
  const ot_node *const settings = request->settings;
  const ot_node *const model = settings ? ot_node_child(settings, "model") : NULL;
  ot_text_builder text = {.arena = arena};
  for (int i = 0; model && i < OT_COUNT(sizes); i++) {
    const ot_node *const node = ot_node_child(model, sizes[i]);
    if (!node || !node->source || !ot_text_starts_with(node->source, "default of")) continue;
    ot_text_appendf(&text, "%s %s=%s", text.length > 0 ? "," : "", sizes[i], node->text);
  }
  if (text.length == 0) return;
  ot_loop_note(request, "note: not given, so as %s has it by default:%s (model)",
               request->run->model.model_type, ot_text_builder_text(&text));
}

static void note_warmup(const ot_loop_request *request) {
  const int64_t warmup = request->run->learning_rate.warmup_steps;
  const int64_t steps = ot_run_total_steps(request->run);
  if (warmup < steps || warmup == 0) return;
  ot_loop_note(request,
               "note: the warm-up of %lld steps is not over when the run ends, after %lld: the "
               "learning rate does not reach its peak (learning_rate.warmup_steps)",
               (long long)warmup, (long long)steps);
}

static void note_data(const ot_loop_request *request, const ot_feed *feed) {
  const ot_run *const run = request->run;
  const int64_t step = run->batch.global_batch_size * run->data.sequence_length;
  const int64_t tokens = ot_feed_tokens(feed);
  if (step <= tokens) return;
  ot_loop_note(request,
               "note: a step takes %lld tokens and the training data has %lld: it repeats them "
               "(batch.global_batch_size, data.sequence_length)",
               (long long)step, (long long)tokens);
}

void ot_loop_note_doubts(const ot_loop_request *request, const ot_feed *feed, ot_arena *arena) {
  note_sizes(request, arena);
  note_warmup(request);
  note_data(request, feed);
}

// ---- disk ----

// A checkpoint holds weights, moments and, where they are apart, master weights, of all ranks once.
static int64_t checkpoint_bytes(const ot_run *run) {
  const int64_t narrow = ot_dtype_bytes(run->precision.params);
  const int64_t wide = ot_dtype_bytes(run->precision.compute == OT_F64 ? OT_F64 : OT_F32);
  return ot_model_parameters(&run->model) * (narrow + 2 * wide + (narrow != wide ? wide : 0));
}

ot_status ot_loop_check_disk(const ot_loop_request *request, ot_arena *arena, ot_loop_room *room) {
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
  *room = (ot_loop_room){.checkpoint_bytes = checkpoint_bytes(request->run)};
  OT_TRY(ot_disk_free_bytes(path, &room->free_bytes));
  OT_CHECK(room->free_bytes > room->checkpoint_bytes, OT_ENVIRONMENT,
           "a checkpoint takes %s, the disk of %s has %s free (output)",
           ot_figure_bytes(arena, room->checkpoint_bytes), path,
           ot_figure_bytes(arena, room->free_bytes));
  return OT_OK;
}
