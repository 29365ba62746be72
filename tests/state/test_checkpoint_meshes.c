// SPDX-License-Identifier: Apache-2.0
// run: alone. A checkpoint of any mesh loads on any other: a state goes from mesh to mesh, and the
// tensor files of each checkpoint are those of the first, which one rank wrote. OT_TESTS=full: all
// meshes, up to eight ranks.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "support/rank_case.h"
#include "support/scratch.h"
#include "support/shards.h"
#include "train/trainer.h"

enum { SETS_MAX = 12, SHARD_BYTES = 20000 };

typedef struct mesh {
  int ranks;
  const char *parallel;
  bool full;  // only with OT_TESTS=full
} mesh;

static const mesh dense_meshes[] = {
    {4, "tp: 2, pp: 2", false},
    {4, "dp_replicate: 2, zero: 3", false},
    {2, "cp: 2, zero: 0", true},
    {4, "zero: 1", true},
    {4, "tp: 2, cp: 2", true},
    {4, "pp: 2, vpp: 2, zero: 2, pipeline: interleaved", false},
    {3, "zero: 3", false},
    {4, "tp: 4", true},
    {4, "tp: 2, zero: 3", false},
    {8, "tp: 2, pp: 2, zero: 3", true},
    {8, "dp_replicate: 2, tp: 2, cp: 2, zero: 0", true},
    {8, "pp: 4, zero: 1", true},
    {8, "dp_replicate: 4, zero: 2", true},
    {8, "cp: 4, tp: 2", true},
};

static const mesh expert_meshes[] = {
    {4, "ep: 2, zero: 3", false},
    {4, "tp: 2, ep: 2, etp: 2", false},
    {2, "ep: 2, zero: 1", true},
    {4, "pp: 2, ep: 2", false},
    {4, "tp: 2, ep: 4", true},
    {4, "dp_replicate: 2, ep: 2, zero: 0", true},
    {8, "tp: 2, ep: 4, zero: 3", true},
    {8, "tp: 2, cp: 2, ep: 4, etp: 2, zero: 1", true},
    {8, "pp: 2, tp: 2, ep: 2, etp: 2, zero: 3", true},
    {8, "dp_replicate: 2, tp: 2, ep: 4, zero: 2", true},
};

#define SIZES                                                                       \
  "vocab_size: 257, hidden_size: 24, intermediate_size: 40, num_hidden_layers: 4, " \
  "num_attention_heads: 4, num_key_value_heads: 4, head_dim: 6, max_position_embeddings: 64"
#define EXPERTS ", num_experts_per_tok: 2, moe_intermediate_size: 16"

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  ot_heap heap;
  ot_arena arena;
} fixture;

typedef struct passage {
  const ot_config *config;
  const char *from;  // null: takes a step
  const char *to;
} passage;

static ot_status pass_with(ot_world *world, const passage *p) {
  ot_trainer *trainer = NULL;
  ot_step_report step;
  OT_TRY(ot_trainer_create(&p->config->run, p->config->settings, world, &trainer));
  ot_status status = p->from ? ot_trainer_resume(trainer, p->from) : OT_OK;
  if (!p->from) status = ot_trainer_step(trainer, &step);
  if (status == OT_OK) {
    ot_state_request request = ot_trainer_state(trainer, p->to);
    request.shard_bytes = SHARD_BYTES;
    status = ot_training_state_save(ot_trainer_runtime(trainer), &request);
  }
  ot_trainer_destroy(&trainer);
  return status;
}

static ot_status pass_rank(ot_comm *comm, void *context) {
  const passage *const p = context;
  ot_world *world = NULL;
  OT_TRY(ot_world_create(&p->config->run.parallel, comm, &world));
  const ot_status status = pass_with(world, p);
  ot_world_destroy(&world);
  return status;
}

// Loads `from` on the mesh, or takes a step there, and saves as `to`. OT_USAGE: no such mesh.
static ot_status try_pass(fixture *f, const char *const *model, const mesh *m, passage *p) {
  const char *sets[SETS_MAX] = {
      ot_arena_format(&f->arena, "model={%s}", model[0]),
      ot_arena_format(&f->arena, "parallel={%s}", m->parallel),
      ot_arena_format(&f->arena, "data.train=%s", scratch_path(f->directory, "train")),
      ot_arena_format(&f->arena, "output=%s", scratch_path(f->directory, "run")),
      "data.sequence_length=16",
      "batch={global_batch_size: 24, micro_batch_size: 1}",
      "steps=5",
      "threads=1",
      model[1],
  };
  ot_config config;
  const ot_config_request request = {.sets = sets, .num_sets = 9};
  OT_TRY(ot_config_load(&request, &f->arena, &config));
  p->config = &config;
  return ot_comm_run_threads(m->ranks, pass_rank, p);
}

static void pass(fixture *f, const char *const *model, const mesh *m, passage *p) {
  if (try_pass(f, model, m, p) != OT_OK) fail_msg("%s: %s", m->parallel, ot_fail_message());
}

static void check_same(fixture *f, const char *first, const char *path, const char *parallel) {
  ot_disk_names names;
  ot_manifest manifest;
  const char *damage = NULL;
  int tensor_files = 0;
  assert_int_equal(
      ot_checkpoint_inspect(&f->arena, path, OT_CHECKPOINT_HASH_ALL, &manifest, &damage), OT_OK);
  if (damage) fail_msg("%s: %s", parallel, damage);
  assert_int_equal(ot_disk_list(&f->arena, first, &names), OT_OK);
  for (int64_t i = 0; i < names.count; i++) {
    if (!ot_text_ends_with(names.name[i], ".safetensors")) continue;
    tensor_files++;
    const char *const own = ot_disk_join(&f->arena, path, names.name[i]);
    assert_files_equal(own, ot_disk_join(&f->arena, first, names.name[i]));
  }
  assert_true(tensor_files > 4);
}

// A run on one rank, and its checkpoint `first`.
static void begin(fixture *f, const char *const *model, passage *p) {
  static const mesh alone = {1, "", false};
  static const int32_t lengths[] = {150, 100};
  scratch_create(f->directory);
  f->heap = (ot_heap){0};
  f->arena = ot_heap_arena_create(&f->heap);
  shard_write(f->directory, "train", lengths, 2, 0);
  p->to = ot_arena_format(&f->arena, "%s/first", f->directory);
  pass(f, model, &alone, p);
}

// `model`: the settings of the model and one of the run.
static void go_round(const char *const *model, const mesh *meshes, int count) {
  static const mesh alone = {1, "", false};
  fixture f;
  passage p = {.to = NULL};
  begin(&f, model, &p);
  const char *const first = p.to;
  p.from = first;
  for (int i = 0; i <= count; i++) {
    const mesh *const m = i < count ? &meshes[i] : &alone;
    if (m->full && !rank_full()) continue;
    p.to = ot_arena_format(&f.arena, "%s/pass-%d", f.directory, i);
    pass(&f, model, m, &p);
    check_same(&f, first, p.to, m->parallel);
    p.from = p.to;
  }
  scratch_destroy(f.directory);
  ot_heap_release(&f.heap);
}

static void dense(const char *const *model) {
  go_round(model, dense_meshes, sizeof dense_meshes / sizeof *dense_meshes);
}

static void experts(const char *const *model) {
  go_round(model, expert_meshes, sizeof expert_meshes / sizeof *expert_meshes);
}

static void untied_models_keep_their_bits(void **state) {
  (void)state;
  static const char *const model[] = {"model_type: llama, tie_word_embeddings: false, " SIZES,
                                      "optimizer.name=adamw"};
  dense(model);
}

// Muon keeps one moment of matrices, two of the rest.
static void states_of_muon_keep_their_bits(void **state) {
  (void)state;
  static const char *const model[] = {"model_type: llama, tie_word_embeddings: true, " SIZES,
                                      "optimizer.name=muon"};
  static const mesh meshes[] = {{4, "pp: 2, zero: 0", false}, {2, "cp: 2, zero: 0", false}};
  go_round(model, meshes, 2);
}

static void moments_in_bf16_keep_their_bits(void **state) {
  (void)state;
  static const char *const model[] = {"model_type: llama, tie_word_embeddings: true, " SIZES,
                                      "precision.moments=bf16"};
  static const mesh meshes[] = {{2, "zero: 3", false}, {4, "tp: 2, pp: 2", false}};
  go_round(model, meshes, 2);
}

static void transposed_and_tied_tensors_keep_their_bits(void **state) {
  (void)state;
  static const char *const model[] = {
      "model_type: gpt2, vocab_size: 257, n_embd: 24, n_layer: 4, n_head: 4, n_positions: 64",
      "precision.compute=bf16"};
  dense(model);
}

static void experts_keep_their_bits(void **state) {
  (void)state;
  static const char *const model[] = {"model_type: qwen3_moe, num_experts: 4, " SIZES EXPERTS,
                                      "model.moe_balance=bias"};
  experts(model);
}

static void interleaved_stacks_keep_their_bits(void **state) {
  (void)state;
  static const char *const model[] = {
      "model_type: gpt_oss, num_local_experts: 4, num_experts_per_tok: 2, " SIZES,
      "precision.compute=bf16"};
  experts(model);
}

static void latent_attention_keeps_its_bits(void **state) {
  (void)state;
  static const char *const model[] = {
      "model_type: deepseek_v3, vocab_size: 257, hidden_size: 24, intermediate_size: 40, "
      "moe_intermediate_size: 16, n_routed_experts: 4, num_experts_per_tok: 2, n_shared_experts: "
      "1, first_k_dense_replace: 1, n_group: 1, topk_group: 1, num_hidden_layers: 4, "
      "num_attention_heads: 4, q_lora_rank: 8, kv_lora_rank: 8, qk_nope_head_dim: 4, "
      "qk_rope_head_dim: 4, v_head_dim: 6, max_position_embeddings: 64",
      "seed=3"};
  if (rank_full()) experts(model);
}

// ---- every mesh ----

// The mesh with these digits; false: more than eight ranks, or ZeRO stages that are the same.
static bool write_mesh(const int *degree, int zero, ot_arena *arena, mesh *out) {
  const int dp = degree[3] * degree[4];
  const int ranks = degree[0] * degree[1] * degree[2] * dp;
  if (ranks > 8 || (zero > 0 && degree[4] == 1)) return false;
  *out = (mesh){
      .ranks = ranks,
      .parallel = ot_arena_format(arena, "tp: %d, pp: %d, cp: %d, dp_replicate: %d, zero: %d",
                                  degree[0], degree[1], degree[2], degree[3], zero)};
  return true;
}

// The files of every mesh are those of one rank, and it loads them: so it loads those of any other.
static void every_mesh_writes_and_loads_the_same_files(void **state) {
  static const char *const model[] = {"model_type: llama, tie_word_embeddings: false, " SIZES,
                                      "optimizer.name=adamw"};
  enum { AXES = 5, MOST = 8, ZEROS = 4 };
  int meshes = 0;
  fixture f;
  passage p = {.to = NULL};
  (void)state;
  if (!rank_full()) skip();
  begin(&f, model, &p);
  const char *const first = p.to;
  p.from = first;
  for (int code = 0; code < MOST * MOST * MOST * MOST * MOST * ZEROS; code++) {
    int degree[AXES], rest = code / ZEROS;
    mesh m;
    for (int i = 0; i < AXES; i++, rest /= MOST) degree[i] = rest % MOST + 1;
    if (!write_mesh(degree, code % ZEROS, &f.arena, &m)) continue;
    p.to = ot_arena_format(&f.arena, "%s/every-%d", f.directory, code);
    const ot_status status = try_pass(&f, model, &m, &p);
    if (status == OT_USAGE) continue;
    if (status != OT_OK) fail_msg("%s: %s", m.parallel, ot_fail_message());
    check_same(&f, first, p.to, m.parallel);
    scratch_destroy(p.to);
    meshes++;
  }
  printf("row\tmeshes up to 8 ranks, resharded\t%d\t%d\t0\n", meshes, meshes);
  assert_true(meshes > 50);
  scratch_destroy(f.directory);
  ot_heap_release(&f.heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(untied_models_keep_their_bits),
      cmocka_unit_test(states_of_muon_keep_their_bits),
      cmocka_unit_test(moments_in_bf16_keep_their_bits),
      cmocka_unit_test(transposed_and_tied_tensors_keep_their_bits),
      cmocka_unit_test(experts_keep_their_bits),
      cmocka_unit_test(interleaved_stacks_keep_their_bits),
      cmocka_unit_test(latent_attention_keeps_its_bits),
      cmocka_unit_test(every_mesh_writes_and_loads_the_same_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
