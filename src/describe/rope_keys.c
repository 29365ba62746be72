// SPDX-License-Identifier: Apache-2.0
// The table of rotary parameters (rope_scaling, rope_parameters): one set, or one for each type of
// layer. Types that are not listed change the mathematics in ways that are not implemented.
#include "describe/model_keys.h"

static const char *const rope_types[] = {"default", "linear", "llama3", NULL};
static const char *const only_one[] = {"1", "null", NULL};

enum { ROPE_KEYS = 8 };

static const ot_schema rope_of_type;

// The first ROPE_KEYS rows are one set; all rows are a set or one set for each type of layer.
static const ot_key rope_keys[] = {
    {.name = "rope_type",
     .type = OT_KEY_CHOICE,
     .offset = offsetof(ot_rope_keys, type),
     .choices = rope_types,
     .fallback = "default",
     .help = "how positions become angles"},
    {.name = "type",
     .type = OT_KEY_CHOICE,
     .offset = offsetof(ot_rope_keys, old_type),
     .choices = rope_types,
     .fallback = "default",
     .help = "old name of rope_type"},
    {.name = "rope_theta",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_rope_keys, theta),
     .maximum = OT_NO_MAXIMUM,
     .above_minimum = true,
     .fallback = "10000",
     .help = "base of the rotary frequencies"},
    {.name = "factor",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_rope_keys, factor),
     .minimum = 1,
     .maximum = OT_NO_MAXIMUM,
     .fallback = "1",
     .null_text = "1",
     .help = "stretch of positions, of linear and llama3"},
    {.name = "low_freq_factor",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_rope_keys, low_frequency_factor),
     .maximum = OT_NO_MAXIMUM,
     .above_minimum = true,
     .fallback = "1",
     .null_text = "1",
     .help = "llama3: below it frequencies are stretched in full"},
    {.name = "high_freq_factor",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_rope_keys, high_frequency_factor),
     .maximum = OT_NO_MAXIMUM,
     .above_minimum = true,
     .fallback = "4",
     .null_text = "4",
     .help = "llama3: above it frequencies stay"},
    {.name = "original_max_position_embeddings",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_rope_keys, original_positions),
     .minimum = 1,
     .maximum = INT32_MAX,
     .fallback = "null",
     .null_text = "0",
     .unit = "tokens",
     .help = "llama3: length before stretching"},
    {.name = "partial_rotary_factor",
     .type = OT_KEY_FIXED,
     .choices = only_one,
     .help = "whole heads rotate"},
    {.name = "full_attention",
     .type = OT_KEY_OBJECT,
     .offset = offsetof(ot_rope_group, full),
     .object = &rope_of_type,
     .null_text = "",
     .help = "of layers that see everything"},
    {.name = "sliding_attention",
     .type = OT_KEY_OBJECT,
     .offset = offsetof(ot_rope_group, sliding),
     .object = &rope_of_type,
     .null_text = "",
     .help = "of layers with a window"},
};

static const ot_schema rope_of_type = {
    .name = "rotary set", .keys = rope_keys, .num_keys = ROPE_KEYS, .size = sizeof(ot_rope_keys)};
const ot_schema ot_rope_schema = {.name = "rotary parameters",
                                  .keys = rope_keys,
                                  .num_keys = OT_COUNT(rope_keys),
                                  .size = sizeof(ot_rope_group)};
