// SPDX-License-Identifier: Apache-2.0
// run: backends=cpu sanitizers=address
// Mutated YAML and JSON, the same in every run: a reader accepts a text or rejects it with one
// message that names the file. Accepted texts go through the tables, which do the same. Nothing
// crashes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/text.h"
#include "describe/run_keys.h"
#include "files/tree_file.h"
#include "host/heap.h"

enum { ROUNDS = 4000, TEXT_BYTES = 32768, SEED = 20 };

static uint64_t counter;

static int64_t below(int64_t bound) {
  return (int64_t)ot_rng_below(SEED, 0, counter++, (uint64_t)bound);
}

// Tokens of either format.
static const char *const pieces[] = {
    "{",          "}",         "[",           "]",          ":",
    ": ",         ",",         "\"",          "'",          "#",
    "- ",         "? ",        "&a ",         "*a",         "!!int ",
    "<<: ",       "|\n",       ">\n",         "---\n",      "...\n",
    "%TAG ",      "\n",        "\t",          "  ",         "\\",
    "\\u0000",    "\\ud800",   "\xff",        "\xc3",       "\xef\xbb\xbf",
    "null",       "true",      "1e999",       "-1",         "99999999999999999999",
    "0x10",       "\x01",      "\x7f",        "~",          "@",
    "model_type", "llama",     "layer_types", "[[[[[[[[[[", "{a: {a: {a: ",
    "\r\n",       "\"\\x41\"", "=",
};

static int64_t insert(char *text, int64_t length, int64_t at, const char *piece) {
  const int64_t width = ot_text_length(piece);
  if (length + width >= TEXT_BYTES) return length;
  memmove(text + at + width, text + at, (size_t)(length - at));
  memcpy(text + at, piece, (size_t)width);
  return length + width;
}

// Changes `text` [length] once; returns the new length.
static int64_t mutate(char *text, int64_t length) {
  const int64_t at = below(length + 1);
  const int64_t run = length - at < 40 ? length - at : below(40);
  switch (below(5)) {
    case 0:
      return insert(text, length, at, pieces[below(OT_COUNT(pieces))]);
    case 1:
      memmove(text + at, text + at + run, (size_t)(length - at - run));
      return length - run;
    case 2:
      if (at < length) text[at] = (char)below(256);
      return length;
    case 3: {
      char copy[64];
      memcpy(copy, text + at, (size_t)run);
      copy[run] = '\0';
      return insert(text, length, below(length + 1), copy);
    }
    default:
      return below(20) == 0 ? at : length;
  }
}

typedef ot_status (*parser)(const ot_tree_origin *origin, const char *text, int64_t bytes,
                            ot_arena *arena, ot_node **out);

static void check_refusal(ot_status status, const char *text) {
  if (status == OT_OK) return;
  const bool code = status == OT_USAGE || status == OT_ENVIRONMENT;
  if (!code || ot_fail_message()[0] == '\0') {
    fail_msg("status %d, message \"%s\" for: %s", (int)status, ot_fail_message(), text);
  }
}

// Parses an accepted text with the tables and, if they accept it, writes and reads it again.
static void read_by_tables(ot_node *tree, ot_arena *arena, const char *text) {
  ot_model model;
  if (tree->kind != OT_NODE_MAP) return;
  const ot_status status = ot_model_read(tree, arena, &model);
  check_refusal(status, text);
  if (status == OT_OK) {
    ot_model again;
    assert_int_equal(ot_model_read(ot_model_write(&model, arena), arena, &again), OT_OK);
    assert_true(ot_model_hash(&model) == ot_model_hash(&again));
  }
  ot_run run;
  ot_node *settings;
  check_refusal(ot_run_read(tree, arena, &run, &settings), text);
}

static void fuzz(parser parse, const char *seed, int *accepted) {
  static const ot_tree_origin origin = {.name = "fuzz", .directory = "/nowhere"};
  ot_heap heap = {0};
  *accepted = 0;
  for (int i = 0; i < ROUNDS; i++) {
    char text[TEXT_BYTES + 1];
    int64_t length = ot_text_length(seed);
    memcpy(text, seed, (size_t)length);
    for (int64_t n = 1 + below(4); n > 0; n--) length = mutate(text, length);
    text[length] = '\0';
    // An exact copy without a terminating zero, so that a sanitizer detects reads past the end.
    char *const exact = malloc((size_t)length + 1);
    assert_non_null(exact);
    char *const start = exact + 1;
    memcpy(start, text, (size_t)length);
    ot_arena arena = ot_heap_arena_create(&heap);
    ot_node *tree = NULL;
    const ot_status status = parse(&origin, start, length, &arena, &tree);
    free(exact);
    check_refusal(status, text);
    if (status != OT_OK && !strstr(ot_fail_message(), "fuzz")) {
      fail_msg("no place in: %s", ot_fail_message());
    }
    if (status == OT_OK) read_by_tables(tree, &arena, text);
    *accepted += status == OT_OK;
    ot_heap_release(&heap);
  }
}

static const char json_seed[] =
    "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\",\n"
    "  \"vocab_size\": 128256, \"hidden_size\": 64, \"num_hidden_layers\": 3,\n"
    "  \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-05,\n"
    "  \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0,\n"
    "    \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192},\n"
    "  \"rope_theta\": 500000.0, \"bos_token_id\": null, \"eos_token_id\": [1, 2],\n"
    "  \"tie_word_embeddings\": false, \"id2label\": {\"0\": \"caf\\u00e9 \\ud83d\\ude00\"}\n}\n";

static const char yaml_seed[] =
    "# a run\nmodel:\n  model_type: qwen3\n  hidden_size: 64\n  num_hidden_layers: 2\n"
    "  num_attention_heads: 4\n  num_key_value_heads: 2\n  vocab_size: 1k\n"
    "  layer_types: [full_attention, full_attention]\n"
    "data:\n  train:\n    - a/b\n    - {path: \"c d\", weight: 2.5}\n  validation: {code: v1, "
    "text: v2}\n"
    "  tokenizer: bytes\n  sequence_length: 128\n"
    "batch: {global_batch_size: 8, micro_batch_size: 2, ramp: [{from_step: 10, global_batch_size: "
    "16}]}\n"
    "optimizer:\n  name: muon\n  betas: [0.9, 0.95]\n  groups:\n  - pattern: '*.bias'\n    "
    "weight_decay: 0\n"
    "tokens: 15T\nlearning_rate: {decay: wsd, decay_steps: 100, min: null}\n"
    "precision: {compute: bf16, params: auto}\noutput: >-\n  runs/x\n";

static void mutated_json_is_read_or_refused(void **state) {
  (void)state;
  int accepted;
  fuzz(ot_tree_parse_json, json_seed, &accepted);
  print_message("%d of %d accepted\n", accepted, ROUNDS);
  assert_in_range(accepted, ROUNDS / 50, ROUNDS * 9 / 10);
}

static void mutated_yaml_is_read_or_refused(void **state) {
  (void)state;
  int accepted;
  fuzz(ot_tree_parse_yaml, yaml_seed, &accepted);
  print_message("%d of %d accepted\n", accepted, ROUNDS);
  assert_in_range(accepted, ROUNDS / 50, ROUNDS * 9 / 10);
}

static void mutated_json_is_read_or_refused_as_yaml(void **state) {
  (void)state;
  int accepted;
  fuzz(ot_tree_parse_yaml, json_seed, &accepted);
  assert_in_range(accepted, ROUNDS / 50, ROUNDS * 9 / 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(mutated_json_is_read_or_refused),
      cmocka_unit_test(mutated_yaml_is_read_or_refused),
      cmocka_unit_test(mutated_json_is_read_or_refused_as_yaml),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
