// SPDX-License-Identifier: Apache-2.0
// The table of RUN.yaml, part 1: sections data and batch, and the entries of their lists.
#include "describe/run_keys.h"

static const char *const formats[] = {"auto", "megatron", "llmc", "nanogpt", NULL};
static const char *const boundaries[] = {"auto", "end", "start", NULL};
static const char *const no_tokenizer[] = {"bytes", NULL};

// ---- Entries of lists ----

// clang-format off
static const ot_key source_keys[] = {
    {"path", OT_KEY_PATH, offsetof(ot_data_source, path),
     .help = "prefix of token files: PREFIX.bin, PREFIX.idx"},
    {"weight", OT_KEY_REAL, offsetof(ot_data_source, weight), "1", 0, OT_NO_MAXIMUM,
     .above_minimum = true, .help = "share of the tokens, relative to the other sources"},
};
static const ot_schema source = {
    "data source", source_keys, OT_COUNT(source_keys),
    .size = sizeof(ot_data_source), .shorthand = "path"};

static const ot_key mixture_keys[] = {
    {"from_step", OT_KEY_INTEGER, offsetof(ot_data_mixture, from_step), NULL, 1, OT_NO_MAXIMUM,
     .unit = "steps", .help = "first step that draws from it"},
    {"train", OT_KEY_OBJECT, offsetof(ot_data_mixture, sources), .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(ot_data_mixture, num_sources), .object = &source,
     .help = "sources as in data.train"},
};
static const ot_schema mixture = {
    "mixture", mixture_keys, OT_COUNT(mixture_keys), .size = sizeof(ot_data_mixture)};

static const ot_key validation_keys[] = {
    {"name", OT_KEY_TEXT, offsetof(ot_validation_set, name), "", .help = "name of the set"},
    {"path", OT_KEY_PATH, offsetof(ot_validation_set, path), .help = "prefix of token files"},
};
static const ot_schema validation = {
    "validation set", validation_keys, OT_COUNT(validation_keys),
    .size = sizeof(ot_validation_set), .shorthand = "path"};

static const ot_key ramp_keys[] = {
    {"from_step", OT_KEY_INTEGER, offsetof(ot_batch_ramp, from_step), "null", 0, OT_NO_MAXIMUM,
     .null_text = "-1", .unit = "steps", .help = "step from which it holds, counted from 0"},
    {"from_tokens", OT_KEY_INTEGER, offsetof(ot_batch_ramp, from_tokens), "null", 0, OT_NO_MAXIMUM,
     .null_text = "-1", .unit = "tokens", .help = "or tokens done from which it holds"},
    {"global_batch_size", OT_KEY_INTEGER, offsetof(ot_batch_ramp, global_batch_size), NULL,
     1, 1 << 24, .unit = "sequences", .help = "sequences of a step"},
};
static const ot_schema ramp = {
    "batch ramp", ramp_keys, OT_COUNT(ramp_keys), .size = sizeof(ot_batch_ramp)};

// ---- Sections ----

static const ot_key data_keys[] = {
    {"train", OT_KEY_OBJECT, offsetof(ot_run_data, train), "", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(ot_run_data, num_train), .object = &source,
     .help = "prefix of token files, or a list of prefixes or of entries"},
    {"mixtures", OT_KEY_OBJECT, offsetof(ot_run_data, mixtures), "", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(ot_run_data, num_mixtures), .object = &mixture,
     .help = "other sources from a step on"},
    {"validation", OT_KEY_OBJECT, offsetof(ot_run_data, validation), "", .shape = OT_SHAPE_NAMED,
     .count_offset = offsetof(ot_run_data, num_validation), .object = &validation, .null_text = "",
     .help = "prefix of token files, or {NAME: PREFIX}"},
    {"validation_every", OT_KEY_INTEGER, offsetof(ot_run_data, validation_every), "0",
     0, OT_NO_MAXIMUM, .unit = "steps",
     .help = "steps between validations; 0: after the last step"},
    {"validation_tokens", OT_KEY_INTEGER, offsetof(ot_run_data, validation_tokens), "0",
     0, OT_NO_MAXIMUM, .unit = "tokens", .help = "tokens of each set that are used; 0: all"},
    {"tokenizer", OT_KEY_PATH, offsetof(ot_run_data, tokenizer), "null", .choices = no_tokenizer,
     .null_text = "", .help = "tokenizer.json, or bytes; copied into checkpoints"},
    {"sequence_length", OT_KEY_INTEGER, offsetof(ot_run_data, sequence_length), "null", 1, 1 << 24,
     .null_text = "0", .unit = "tokens",
     .help = "tokens of a sample; null: 4096 or what the model takes"},
    {"format", OT_KEY_CHOICE, offsetof(ot_run_data, format), "auto", .choices = formats,
     .help = "layout of the token files; nanogpt must be said"},
    {"document_boundary", OT_KEY_CHOICE, offsetof(ot_run_data, document_boundary), "auto",
     .choices = boundaries,
     .help = "where the end-of-text id stands in a document of shards without .idx; auto: llmc "
             "start, else end"},
    {"document_mask", OT_KEY_BOOL, offsetof(ot_run_data, document_mask), "true",
     .help = "attention and positions start anew at each document"},
    {"tokenizer_check", OT_KEY_BOOL, offsetof(ot_run_data, tokenizer_check), "true",
     .help = "refuse token files that another tokenizer made; false: on your word"},
};
const ot_schema ot_run_data_schema = {
    "data section", data_keys, OT_COUNT(data_keys), .size = sizeof(ot_run_data)};

static const ot_key batch_keys[] = {
    {"global_batch_size", OT_KEY_INTEGER, offsetof(ot_run_batch, global_batch_size), "64",
     1, 1 << 24, .unit = "sequences", .help = "sequences of a step, over all ranks"},
    {"micro_batch_size", OT_KEY_INTEGER, offsetof(ot_run_batch, micro_batch_size), "1", 1, 1 << 20,
     .unit = "sequences", .help = "sequences of one forward and backward pass"},
    {"ramp", OT_KEY_OBJECT, offsetof(ot_run_batch, ramp), "", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(ot_run_batch, num_ramp), .object = &ramp,
     .help = "other batch sizes from a moment on"},
};
const ot_schema ot_run_batch_schema = {
    "batch section", batch_keys, OT_COUNT(batch_keys), .size = sizeof(ot_run_batch)};
// clang-format on
