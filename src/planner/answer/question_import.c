// SPDX-License-Identifier: Apache-2.0
// A configuration of other software as part of a question: what --from and --compare take from it.
#include "answer/question.h"
#include "base/text.h"

// Its notes, and the keys that it ignores.
static void copy_notes(const ot_imported *i, ot_arena *arena, ot_question *question) {
  const int before = question->num_notes;
  const char **const notes = ot_arena_array(arena, before + i->num_notes + 1, sizeof *notes);
  int count = 0;
  for (; count < before; count++) notes[count] = question->notes[count];
  for (int n = 0; n < i->num_notes; n++) notes[count++] = i->notes[n];
  ot_text_builder text = {.arena = arena};
  for (int n = 0; n < i->num_ignored; n++) {
    ot_text_appendf(&text, "%s %s", n > 0 ? "," : "ignored:", i->ignored[n]);
  }
  if (i->num_ignored > 0) notes[count++] = ot_text_builder_text(&text);
  question->notes = notes;
  question->num_notes = count;
}

// The switches of a file hold for its own software, for its row and for the plans next to it.
void ot_question_take_import(const ot_imported *i, ot_arena *arena, ot_question *question) {
  copy_notes(i, arena, question);
  if (question->devices == 0) question->devices = i->devices;
  if (!question->precision) {
    question->precision = i->precision;
    question->gather_bytes = i->gather_bytes;
    question->moment_bytes = i->moment_bytes;
  }
  if (!ot_text_equal(question->engine->name, i->engine)) return;
  ot_engine *const engine = ot_arena_take(arena, sizeof *engine);
  *engine = *question->engine;
  ot_engine_apply(&i->options, engine);
  question->engine = engine;
}

static int or_one(int degree) { return degree > 0 ? degree : 1; }

void ot_plan_take_import(const ot_imported *i, const ot_plan_request *request,
                         ot_plan_compared *out) {
  const bool orthant = request->job.engine == &ot_engine_orthant;
  out->candidate =
      (ot_candidate){.tp = or_one(i->tp),
                     .pp = or_one(i->pp),
                     .vpp = or_one(i->vpp),
                     .cp = or_one(i->cp),
                     .ep = or_one(i->ep),
                     .etp = request->run.model.moe.num_experts > 0 ? or_one(i->etp) : 1,
                     .dp = i->dp,
                     .dp_shard = i->zero == 0 ? 1 : i->dp / or_one(i->dp_replicate),
                     .zero = i->zero,
                     .micro_batch_size = i->micro_batch_size,
                     .pipeline = i->pipeline,
                     .recompute = i->recompute,
                     .modules = i->modules,
                     .no_sequence_parallel = i->no_sequence_parallel && !orthant};
  out->layers = i->chunk_layers;
  out->num_chunks = i->num_chunks;
}

ot_status ot_plan_request_fit_import(ot_imported *i, ot_arena *arena, ot_plan_request *request) {
  ot_question *const q = &request->question;
  // A cluster says how many devices there are, not how many the file is meant for.
  if (ot_imported_fit(i, q->devices) != OT_OK) {
    return ot_fail_hint(OT_USAGE, "--gpus: as many devices as the file is meant for");
  }
  if (q->global_batch_size == 0) q->global_batch_size = i->global_batch_size;
  if (q->sequence_length == 0) q->sequence_length = i->sequence_length;
  if (request->job.engine == &ot_engine_orthant && i->no_sequence_parallel)
    ot_plan_request_note(request, "tp with sequence parallelism, as Orthant has it");
  request->own = ot_arena_take(arena, sizeof *request->own);
  *request->own = (ot_plan_compared){0};
  ot_plan_take_import(i, request, request->own);
  return OT_OK;
}
