// SPDX-License-Identifier: Apache-2.0
// The options of a question: one table for the options of `plan` (--micro-batch-size), the columns
// of measured steps, and the fields and the address of the page (micro_batch_size). A key without
// help has that of the run's key of the same name. null, "" and auto: the default, or searched.
#include <stddef.h>

#include "answer/question.h"
#include "describe/pipeline_rules.h"
#include "describe/recipe.h"
#include "describe/run_keys.h"

// Values that a question has in another form.
typedef struct asked {
  ot_question question;
  int zero, pipeline, recompute, crosses, precision;
  const char *modules;
  double memory_margin;
} asked;

static const char *const zero_names[] = {"0", "1", "2", "3", NULL};

#define ASKED(member) offsetof(asked, question.member)
// A whole number; null: searched, or by default.
#define NUMBER(name, type, member, most) \
  name, type, ASKED(member), "null", 1, most, .null_text = "0"
// clang-format off
static const ot_key keys[] = {
    {NUMBER("gpus", OT_KEY_INT, devices, OT_QUESTION_MOST),
     .help = "devices; default: as many as the cluster has"},
    {NUMBER("global_batch_size", OT_KEY_INTEGER, global_batch_size, OT_QUESTION_MOST),
     .help = "sequences per step; default: the most within the critical batch"},
    {NUMBER("sequence_length", OT_KEY_INTEGER, sequence_length, OT_QUESTION_MOST),
     .help = "tokens per sequence; default: as in RUN.yaml, 4096 or the model's maximum"},
    {NUMBER("tokens", OT_KEY_INTEGER, tokens, OT_NO_MAXIMUM),
     .help = "tokens of the whole run (15T); default: 20 per parameter"},
    {NUMBER("critical_batch_tokens", OT_KEY_INTEGER, critical_batch_tokens, OT_NO_MAXIMUM),
     .help = "measured value (noise_scale_tokens); default: scaling law in the run's tokens"},
    {NUMBER("tp", OT_KEY_INT, given.tp, OT_QUESTION_MOST)},
    {NUMBER("pp", OT_KEY_INT, given.pp, OT_QUESTION_MOST)},
    {NUMBER("vpp", OT_KEY_INT, given.vpp, OT_QUESTION_MOST)},
    {NUMBER("cp", OT_KEY_INT, given.cp, OT_QUESTION_MOST)},
    {NUMBER("ep", OT_KEY_INT, given.ep, OT_QUESTION_MOST)},
    {"etp", OT_KEY_INT, ASKED(given.etp), "1", 1, .maximum = OT_QUESTION_MOST},
    {NUMBER("dp", OT_KEY_INT, given.dp, OT_QUESTION_MOST),
     .help = "data parallel degree; devices = tp x pp x cp x dp"},
    {"zero", OT_KEY_CHOICE, offsetof(asked, zero), "auto", .choices = zero_names},
    {NUMBER("micro_batch_size", OT_KEY_INTEGER, given.micro_batch_size, OT_QUESTION_MOST)},
    {"pipeline", OT_KEY_CHOICE, offsetof(asked, pipeline), "auto",
     .choices = ot_pipeline_asked_names,
     .help = "pipeline schedule; dualpipe on P stages: dualpipe-v on P/2, with twice the dp"},
    {"recompute", OT_KEY_CHOICE, offsetof(asked, recompute), "auto",
     .choices = ot_recompute_names, .help = "activations recomputed in the backward"},
    {"recompute_modules", OT_KEY_TEXT, offsetof(asked, modules), .fallback = "",
     .help = "with selective: core_attn, layernorm, mla_up_proj, moe_act, mlp, moe, "
             "shared_experts"},
    {"crosses", OT_KEY_CHOICE, offsetof(asked, crosses), "auto", .choices = ot_crossing_names + 1,
     .help = "what crosses the pools of a mixed cluster: stages or replicas"},
    {"precision", OT_KEY_CHOICE, offsetof(asked, precision), "auto", .choice = ot_recipe_name,
     .help = "bf16: 2 weight + 2 gradient + 12 optimizer bytes per parameter (the default)"},
    {"expert_imbalance", OT_KEY_REAL, ASKED(expert_imbalance), "1", 1, OT_NO_MAXIMUM,
     .help = "tokens of the busiest rank of ep over the mean; overflow needs further passes"},
    {"price", OT_KEY_REAL, ASKED(price), "null", 0, 1e6, .above_minimum = true, .null_text = "0",
     .unit = "dollars of a device hour",
     .help = "dollars of a device hour: adds the cost and energy of the run"},
    {"memory_margin", OT_KEY_REAL, offsetof(asked, memory_margin), "null", 0, 100,
     .null_text = "-1", .unit = "percent",
     .help = "memory that plans leave free, in percent of their estimate; default: so that the "
             "estimate's error leaves room in 4 of 5 cases"},
    {"top", OT_KEY_INT, ASKED(top), "5", 1, 1000, .help = "plans shown"},
    {"variants", OT_KEY_BOOL, ASKED(variants), .fallback = "false",
     .help = "also show slower plans with the same degrees and ZeRO stage"},
    {"simple", OT_KEY_BOOL, ASKED(simple), .fallback = "false",
     .help = "the simplest plan of those within 5 % that cannot be told from the fastest"},
};
// clang-format on
const ot_schema ot_question_schema = {"question", keys, OT_COUNT(keys), .size = sizeof(asked)};

const char *ot_question_help(const ot_key *key, ot_arena *arena) {
  static const char *const sections[] = {"parallel", "batch"};
  if (key->help) return key->help;
  for (int i = 0; i < OT_COUNT(sections); i++) {
    const char *const path = ot_arena_format(arena, "%s.%s", sections[i], key->name);
    const ot_key *const of_run = ot_schema_find_path(&ot_run_schema, path);
    if (of_run) return of_run->help;
  }
  OT_UNREACHABLE();
}

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
  read->question.precision = read->precision >= 0 ? ot_recipe_name(read->precision) : NULL;
  *out = read->question;
  return halve_dualpipe(out, arena);
}
