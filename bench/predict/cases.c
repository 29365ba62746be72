// SPDX-License-Identifier: Apache-2.0
// The grid: model sizes, every axis alone and some combinations, recompute, micro-batches.
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "predict/predict.h"

typedef struct named_model {
  const char *name;
  const char *sets;
} named_model;

static const named_model models[] = {
    // 1.3 M parameters
    {"small",
     "model.model_type=llama model.vocab_size=2048 model.hidden_size=128 "
     "model.intermediate_size=384 model.num_hidden_layers=4 model.num_attention_heads=4 "
     "model.num_key_value_heads=2 model.max_position_embeddings=1024"},
    // 4 M parameters, 1.7 M of them active per token
    {"experts",
     "model.model_type=mixtral model.vocab_size=2048 model.hidden_size=128 "
     "model.intermediate_size=256 model.num_hidden_layers=4 model.num_attention_heads=4 "
     "model.num_key_value_heads=2 model.max_position_embeddings=1024 model.num_local_experts=8 "
     "model.num_experts_per_tok=2 model.router_aux_loss_coef=0"},
    // 9 M parameters
    {"medium",
     "model.model_type=gpt2 model.vocab_size=8192 model.n_embd=320 model.n_layer=6 "
     "model.n_head=5 model.n_positions=1024 model.resid_pdrop=0 model.embd_pdrop=0 "
     "model.attn_pdrop=0"},
    // 44 M parameters
    {"large",
     "model.model_type=llama model.vocab_size=16384 model.hidden_size=512 "
     "model.intermediate_size=1536 model.num_hidden_layers=8 model.num_attention_heads=8 "
     "model.num_key_value_heads=4 model.max_position_embeddings=1024"},
};

#define FULL "parallel.recompute=full"
#define SELECTIVE "parallel.recompute=selective"

const ot_predict_case ot_predict_cases[] = {
    {"one", "small", 1, 8, 4, 256, "", true},
    {"one-full", "small", 1, 8, 2, 256, FULL, false},
    {"dp2", "small", 2, 8, 2, 256, "parallel.zero=0", true},
    {"dp4", "small", 4, 8, 1, 256, "parallel.zero=1", true},
    {"tp2", "small", 2, 8, 4, 256, "parallel.tp=2", true},
    {"pp2", "small", 2, 8, 1, 256, "parallel.pp=2", true},
    {"cp2", "small", 2, 8, 2, 256, "parallel.cp=2", true},
    {"tp2-pp2", "small", 4, 8, 1, 256, "parallel.tp=2 parallel.pp=2", true},
    {"one", "experts", 1, 8, 4, 256, "", true},
    {"dp2-ep2", "experts", 2, 8, 2, 256, "parallel.ep=2 parallel.zero=1", true},
    {"tp2-ep2", "experts", 2, 8, 2, 256, "parallel.ep=2 parallel.tp=2 " FULL, false},
    {"pp2-dp2-ep2", "experts", 4, 8, 1, 256, "parallel.ep=2 parallel.pp=2 parallel.zero=3", false},
    {"one", "medium", 1, 8, 4, 256, "", true},
    {"one-short", "medium", 1, 32, 8, 64, SELECTIVE, false},
    {"one-1-thread", "medium", 1, 4, 2, 256, "threads=1", false},
    {"dp2-zero1", "medium", 2, 8, 2, 256, "parallel.zero=1 " SELECTIVE, true},
    {"dp2-zero3", "medium", 2, 8, 2, 256, "parallel.zero=3 " FULL, true},
    {"dp4-zero3", "medium", 4, 8, 1, 256, "parallel.zero=3", false},
    {"tp2-short", "medium", 2, 32, 8, 64, "model.n_head=10 parallel.tp=2", false},
    {"pp2", "medium", 2, 8, 1, 256, "parallel.pp=2 " SELECTIVE, false},
    {"pp2-zb-h1", "medium", 2, 8, 1, 256, "parallel.pp=2 parallel.pipeline=zb-h1", true},
    {"cp2-long", "medium", 2, 4, 1, 1024, "parallel.cp=2 " FULL, false},
    {"pp4", "medium", 4, 8, 1, 256, "parallel.pp=4", false},
    {"dp2-pp2", "medium", 4, 8, 1, 256, "parallel.pp=2 parallel.zero=1", false},
    {"one", "large", 1, 4, 2, 256, "", false},
    {"one-full", "large", 1, 4, 1, 512, FULL, false},
    {"dp2-zero0", "large", 2, 4, 1, 256, "parallel.zero=0", false},
    {"dp2-zero3", "large", 2, 4, 1, 256, "parallel.zero=3 " SELECTIVE, false},
    {"tp2", "large", 2, 4, 2, 256, "parallel.tp=2", false},
    {"cp2", "large", 2, 4, 1, 512, "parallel.cp=2 " SELECTIVE, false},
    {"pp2", "large", 2, 8, 1, 256, "parallel.pp=2 " FULL, false},
    {"pp2-zb-h1", "large", 2, 8, 1, 256, "parallel.pp=2 parallel.pipeline=zb-h1", false},
    {"dp4-zero3", "large", 4, 4, 1, 256, "parallel.zero=3 " FULL, false},
    {"tp2-dp2", "large", 4, 4, 1, 256, "parallel.tp=2 parallel.zero=1", false},
};

const int ot_predict_num_cases = OT_COUNT(ot_predict_cases);

static const char *model_sets(const char *name) {
  for (int i = 0; i < OT_COUNT(models); i++) {
    if (strcmp(models[i].name, name) == 0) return models[i].sets;
  }
  OT_UNREACHABLE();
}

enum { MAX_SETS = 48 };

typedef struct set_list {
  const char *sets[MAX_SETS];
  int count;
} set_list;

// Appends words separated by spaces.
static void add_sets(set_list *list, const char *words, ot_arena *arena) {
  while (*words) {
    const size_t length = strcspn(words, " ");
    OT_ASSERT(list->count < MAX_SETS);
    if (length > 0) list->sets[list->count++] = ot_arena_text(arena, words, (int64_t)length);
    words += length + (words[length] == ' ');
  }
}

ot_status ot_predict_case_load(const ot_predict_case *c, ot_arena *arena, ot_config *out) {
  set_list list = {0};
  add_sets(&list, model_sets(c->model), arena);
  add_sets(&list,
           ot_arena_format(arena,
                           "data.train=none data.tokenizer=bytes data.sequence_length=%lld "
                           "batch.global_batch_size=%lld batch.micro_batch_size=%lld steps=1 "
                           "output=none",
                           (long long)c->sequence, (long long)c->global_batch,
                           (long long)c->micro_batch),
           arena);
  add_sets(&list, c->sets, arena);
  const ot_config_request request = {.sets = list.sets, .num_sets = list.count};
  return ot_config_load(&request, arena, out);
}
