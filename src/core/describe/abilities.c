// SPDX-License-Identifier: Apache-2.0
// Keys of the section `runs` of an engine file, and the names that its lists may hold.
#include "describe/abilities.h"

#include "base/text.h"
#include "describe/family.h"
#include "describe/pipeline_rules.h"
#include "describe/recompute_modules.h"

static const char *const axes[] = {"dp", "tp", "pp", "cp", "ep", NULL};
static const char *const stages[] = {"0", "1", "2", "3", NULL};
static const char *const precisions[] = {"fp32", "bf16", "fp16", "fp8", NULL};

// clang-format off
static const ot_key elsewhere_keys[] = {
    {"what", OT_KEY_TEXT, offsetof(ot_elsewhere, what), "", .help = "capability"},
    {"where", OT_KEY_TEXT, offsetof(ot_elsewhere, where), .help = "software that has it"},
};
static const ot_schema elsewhere = {"elsewhere", elsewhere_keys, OT_COUNT(elsewhere_keys),
                                    .size = sizeof(ot_elsewhere), .shorthand = "where"};

static const ot_key keys[] = {
    {"versions", OT_KEY_TEXT, offsetof(ot_abilities, versions), "",
     .help = "name and versions of the software"},
    {"axes", OT_KEY_TEXT, offsetof(ot_abilities, axes.name), "",
     .shape = OT_SHAPE_LIST, .count_offset = offsetof(ot_abilities, axes.num),
     .help = "parallel axes: dp, tp, pp, cp, ep"},
    {"pipelines", OT_KEY_TEXT, offsetof(ot_abilities, pipelines.name), "",
     .shape = OT_SHAPE_LIST, .count_offset = offsetof(ot_abilities, pipelines.num),
     .help = "pipeline schedules"},
    {"zero", OT_KEY_TEXT, offsetof(ot_abilities, zero.name), "",
     .shape = OT_SHAPE_LIST, .count_offset = offsetof(ot_abilities, zero.num),
     .help = "stages of ZeRO"},
    {"zero_with_pp", OT_KEY_TEXT, offsetof(ot_abilities, zero_with_pp.name), "",
     .shape = OT_SHAPE_LIST, .count_offset = offsetof(ot_abilities, zero_with_pp.num),
     .help = "stages of ZeRO with pp above 1; empty: all of them"},
    {"zero_with_tp", OT_KEY_TEXT, offsetof(ot_abilities, zero_with_tp.name), "",
     .shape = OT_SHAPE_LIST, .count_offset = offsetof(ot_abilities, zero_with_tp.num),
     .help = "stages of ZeRO with tp or cp above 1; empty: all of them"},
    {"zero_in_groups", OT_KEY_TEXT, offsetof(ot_abilities, zero_in_groups.name), "",
     .shape = OT_SHAPE_LIST, .count_offset = offsetof(ot_abilities, zero_in_groups.num),
     .help = "stages of ZeRO over a part of dp; empty: all of them"},
    {"recompute", OT_KEY_TEXT, offsetof(ot_abilities, recompute.name), "",
     .shape = OT_SHAPE_LIST, .count_offset = offsetof(ot_abilities, recompute.num),
     .help = "recomputed activations"},
    {"recompute_modules", OT_KEY_TEXT, offsetof(ot_abilities, modules.name), "",
     .shape = OT_SHAPE_LIST, .count_offset = offsetof(ot_abilities, modules.num),
     .help = "parts of layers that selective recompute can be limited to; empty: none"},
    {"precisions", OT_KEY_TEXT, offsetof(ot_abilities, precisions.name), "",
     .shape = OT_SHAPE_LIST, .count_offset = offsetof(ot_abilities, precisions.num),
     .help = "of GEMMs: fp32, bf16, fp16, fp8"},
    {"families", OT_KEY_TEXT, offsetof(ot_abilities, families.name), "",
     .shape = OT_SHAPE_LIST, .count_offset = offsetof(ot_abilities, families.num),
     .help = "model_type of Hugging Face"},
    {"hosts", OT_KEY_INT, offsetof(ot_abilities, hosts), "0", 0, 1 << 24,
     .help = "most hosts; 0: any number"},
    {"elsewhere", OT_KEY_OBJECT, offsetof(ot_abilities, elsewhere), "", .shape = OT_SHAPE_NAMED,
     .count_offset = offsetof(ot_abilities, num_elsewhere), .object = &elsewhere,
     .help = "what these versions lack, and the software that has it"},
};
// clang-format on

const ot_schema ot_abilities_schema = {"runs", keys, OT_COUNT(keys), .size = sizeof(ot_abilities)};

bool ot_names_allow(const ot_names *names, const char *name) {
  for (int64_t i = 0; i < names->num; i++) {
    if (ot_text_equal(names->name[i], name)) return true;
  }
  return names->num == 0;
}

static ot_status check_names(const char *engine, const char *key, const ot_names *names,
                             const char *const *known) {
  for (int64_t i = 0; i < names->num; i++) {
    int k = 0;
    while (known[k] && !ot_choice_matches(known[k], names->name[i])) k++;
    OT_CHECK(known[k], OT_USAGE, "engine %s: runs.%s: nothing is called \"%s\" (such as %s)",
             engine, key, names->name[i], known[0]);
  }
  return OT_OK;
}

ot_status ot_abilities_check(const ot_abilities *a, const char *engine) {
  OT_TRY(check_names(engine, "axes", &a->axes, axes));
  OT_TRY(check_names(engine, "pipelines", &a->pipelines, ot_pipeline_names));
  OT_TRY(check_names(engine, "zero", &a->zero, stages));
  OT_TRY(check_names(engine, "zero_with_pp", &a->zero_with_pp, stages));
  OT_TRY(check_names(engine, "zero_with_tp", &a->zero_with_tp, stages));
  OT_TRY(check_names(engine, "zero_in_groups", &a->zero_in_groups, stages));
  OT_TRY(check_names(engine, "recompute", &a->recompute, ot_recompute_names));
  OT_TRY(check_names(engine, "recompute_modules", &a->modules, ot_recompute_module_names));
  OT_TRY(check_names(engine, "precisions", &a->precisions, precisions));
  const char *families[OT_FAMILY_COUNT + 1];
  for (int i = 0; i <= OT_FAMILY_COUNT; i++) families[i] = ot_family_types(i);
  return check_names(engine, "families", &a->families, families);
}
