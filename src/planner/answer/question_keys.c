// SPDX-License-Identifier: Apache-2.0
// The options of a question, one table for the program (--micro-batch-size) and the page
// (micro_batch_size in its address). 0, "" and auto: the default, or searched.
#include <stddef.h>

#include "answer/question.h"
#include "describe/pipeline_rules.h"

// Values that a question has in another form.
typedef struct asked {
  ot_question question;
  int zero, pipeline, recompute, crosses;
  const char *modules, *precision;
  double memory_margin;
} asked;

static const char *const zero_names[] = {"0", "1", "2", "3", NULL};

#define ASKED(member) offsetof(asked, question.member)
// clang-format off
static const ot_key keys[] = {
    {"gpus", OT_KEY_INT, ASKED(devices), "0", .maximum = OT_QUESTION_MOST},
    {"global_batch_size", OT_KEY_INTEGER, ASKED(global_batch_size), "0",
     .maximum = OT_QUESTION_MOST},
    {"sequence_length", OT_KEY_INTEGER, ASKED(sequence_length), "0", .maximum = OT_QUESTION_MOST},
    {"tokens", OT_KEY_INTEGER, ASKED(tokens), "0", .maximum = OT_NO_MAXIMUM},
    {"critical_batch_tokens", OT_KEY_INTEGER, ASKED(critical_batch_tokens), "0",
     .maximum = OT_NO_MAXIMUM},
    {"tp", OT_KEY_INT, ASKED(given.tp), "0", .maximum = OT_QUESTION_MOST},
    {"pp", OT_KEY_INT, ASKED(given.pp), "0", .maximum = OT_QUESTION_MOST},
    {"vpp", OT_KEY_INT, ASKED(given.vpp), "0", .maximum = OT_QUESTION_MOST},
    {"cp", OT_KEY_INT, ASKED(given.cp), "0", .maximum = OT_QUESTION_MOST},
    {"ep", OT_KEY_INT, ASKED(given.ep), "0", .maximum = OT_QUESTION_MOST},
    {"etp", OT_KEY_INT, ASKED(given.etp), "1", .minimum = 1, .maximum = OT_QUESTION_MOST},
    {"dp", OT_KEY_INT, ASKED(given.dp), "0", .maximum = OT_QUESTION_MOST},
    {"zero", OT_KEY_CHOICE, offsetof(asked, zero), "auto", .choices = zero_names},
    {"micro_batch_size", OT_KEY_INTEGER, ASKED(given.micro_batch_size), "0",
     .maximum = OT_QUESTION_MOST},
    {"pipeline", OT_KEY_CHOICE, offsetof(asked, pipeline), "auto", 
     .choices = ot_pipeline_asked_names},
    {"recompute", OT_KEY_CHOICE, offsetof(asked, recompute), "auto",
     .choices = ot_recompute_names},
    {"recompute_modules", OT_KEY_TEXT, offsetof(asked, modules), .fallback = ""},
    {"crosses", OT_KEY_CHOICE, offsetof(asked, crosses), "auto", .choices = ot_crossing_names + 1},
    {"precision", OT_KEY_TEXT, offsetof(asked, precision), .fallback = ""},
    {"expert_imbalance", OT_KEY_REAL, ASKED(expert_imbalance), "1",
     .minimum = 1, .maximum = OT_NO_MAXIMUM},
    {"price", OT_KEY_REAL, ASKED(price), "null", 0, 1e6, .above_minimum = true, .null_text = "0",
     .unit = "dollars of a device hour"},
    {"memory_margin", OT_KEY_REAL, offsetof(asked, memory_margin), "null", 0, 100,
     .null_text = "-1", .unit = "percent"},
    {"top", OT_KEY_INT, ASKED(top), "5", .minimum = 1, .maximum = 1000},
    {"variants", OT_KEY_BOOL, ASKED(variants), .fallback = "false"},
    {"simple", OT_KEY_BOOL, ASKED(simple), .fallback = "false"},
};
// clang-format on
const ot_schema ot_question_schema = {"question", keys, OT_COUNT(keys), .size = sizeof(asked)};

const char *ot_question_option(const char *key, ot_arena *arena) {
  char *const option = ot_arena_format(arena, "--%s", key);
  for (char *at = option; *at != '\0'; at++) *at = *at == '_' ? '-' : *at;
  return option;
}

// DualPipe on p stages holds on each stage the chunks of two, once for each direction; half of the
// stages do the same without directions (docs/parallel.md).
static ot_status halve_dualpipe(ot_question *question, ot_arena *arena) {
  ot_candidate *const c = &question->given;
  if (c->pipeline != OT_PIPELINES) return OT_OK;
  OT_CHECK(c->pp >= 2 && c->pp % 2 == 0, OT_USAGE,
           "pipeline: dualpipe needs pp, an even number of stages, not %d", c->pp);
  c->pipeline = OT_PIPELINE_DUALPIPE_V;
  c->pp /= 2;
  c->dp *= 2;
  const char **const note = ot_arena_array(arena, 1, sizeof *note);
  *note = ot_arena_format(arena,
                          "dualpipe on %d stages is priced as dualpipe-v on %d with twice the dp, "
                          "which does the same with one direction: stage i has chunks i and %d-i",
                          2 * c->pp, c->pp, 2 * c->pp - 1);
  question->notes = note;
  question->num_notes = 1;
  return OT_OK;
}

ot_status ot_question_read(const ot_node *tree, ot_arena *arena, ot_question *out) {
  asked *const read = ot_arena_take(arena, sizeof *read);
  ot_candidate *const given = &read->question.given;
  OT_TRY(ot_schema_read(&ot_question_schema, tree, arena, read));
  given->zero = read->zero;
  given->pipeline = (ot_pipeline)read->pipeline;
  given->recompute = (ot_recompute)read->recompute;
  given->crosses = (ot_crossing)(1 + read->crosses);
  OT_TRY(ot_module_set_read("recompute_modules", read->modules, &given->modules));
  const double margin = read->memory_margin;
  read->question.memory_margin = margin < 0 ? 0 : margin > 0 ? margin / 100 : -1;
  read->question.precision = read->precision[0] != '\0' ? read->precision : NULL;
  *out = read->question;
  return halve_dualpipe(out, arena);
}
