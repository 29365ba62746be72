// SPDX-License-Identifier: Apache-2.0
// The table of rotary parameters (rope_scaling, rope_parameters): one set, or one for each type of
// layer. Types that are not listed change the mathematics in ways that are not implemented.
#include "describe/model_keys.h"

static const char *const rope_types[] = {"default", "linear", "llama3", "yarn", NULL};
static const char *const only_one[] = {"1", "null", NULL};
static const char *const only_true[] = {"true", "null", NULL};
static const char *const only_null[] = {"null", NULL};

enum { ROPE_KEYS = 14 };

static const ot_schema rope_of_type;

// The first ROPE_KEYS rows are one set; all rows are a set or one set for each type of layer.
// clang-format off
static const ot_key rope_keys[] = {
    {"rope_type", OT_KEY_CHOICE, offsetof(ot_rope_keys, type), "default", .choices = rope_types,
     .help = "how positions become angles"},
    {"type", OT_KEY_CHOICE, offsetof(ot_rope_keys, old_type), "default", .choices = rope_types,
     .help = "old name of rope_type"},
    {"rope_theta", OT_KEY_REAL, offsetof(ot_rope_keys, theta), "10000", 0, OT_NO_MAXIMUM,
     .above_minimum = true, .help = "base of the rotary frequencies"},
    {"factor", OT_KEY_REAL, offsetof(ot_rope_keys, factor), "1", 1, OT_NO_MAXIMUM, .null_text = "1",
     .help = "stretch of positions, of all types but default"},
    {"low_freq_factor", OT_KEY_REAL, offsetof(ot_rope_keys, low_frequency_factor), "1",
     0, OT_NO_MAXIMUM, .above_minimum = true, .null_text = "1",
     .help = "llama3: below it frequencies are stretched in full"},
    {"high_freq_factor", OT_KEY_REAL, offsetof(ot_rope_keys, high_frequency_factor), "4",
     0, OT_NO_MAXIMUM, .above_minimum = true, .null_text = "4",
     .help = "llama3: above it frequencies stay"},
    {"original_max_position_embeddings", OT_KEY_INTEGER, offsetof(ot_rope_keys, original_positions),
     "null", 1, INT32_MAX, .null_text = "0", .unit = "tokens",
     .help = "llama3, yarn: length before stretching"},
    {"partial_rotary_factor", OT_KEY_FIXED, .choices = only_one, .help = "whole heads rotate"},
    {"beta_fast", OT_KEY_REAL, offsetof(ot_rope_keys, beta_fast), "32", 0, OT_NO_MAXIMUM,
     .above_minimum = true, .null_text = "32",
     .help = "yarn: frequencies with more turns than this stay"},
    {"beta_slow", OT_KEY_REAL, offsetof(ot_rope_keys, beta_slow), "1", 0, OT_NO_MAXIMUM,
     .above_minimum = true, .null_text = "1",
     .help = "yarn: frequencies with fewer turns than this are stretched in full"},
    {"mscale", OT_KEY_REAL, offsetof(ot_rope_keys, mscale), "0", 0, OT_NO_MAXIMUM, .null_text = "0",
     .help = "yarn: growth of rotated elements; 0 with mscale_all_dim 0: 1"},
    {"mscale_all_dim", OT_KEY_REAL, offsetof(ot_rope_keys, mscale_all), "0", 0, OT_NO_MAXIMUM,
     .null_text = "0",
     .help = "yarn: growth that is taken from rotated elements, deepseek_v3: and given to scores"},
    {"truncate", OT_KEY_FIXED, .choices = only_true,
     .help = "yarn: the blended range is of whole pairs"},
    {"attention_factor", OT_KEY_FIXED, .choices = only_null,
     .help = "yarn: the growth follows from factor and mscale"},
    {"full_attention", OT_KEY_OBJECT, offsetof(ot_rope_group, full), .object = &rope_of_type,
     .null_text = "", .help = "of layers that see everything"},
    {"sliding_attention", OT_KEY_OBJECT, offsetof(ot_rope_group, sliding), .object = &rope_of_type,
     .null_text = "", .help = "of layers with a window"},
};
// clang-format on

static const ot_schema rope_of_type = {
    .name = "rotary set", .keys = rope_keys, .num_keys = ROPE_KEYS, .size = sizeof(ot_rope_keys)};
const ot_schema ot_rope_schema = {.name = "rotary parameters",
                                  .keys = rope_keys,
                                  .num_keys = OT_COUNT(rope_keys),
                                  .size = sizeof(ot_rope_group)};
