// SPDX-License-Identifier: Apache-2.0
// run: backends=cpu
// Keys of other software that change time or memory: each is read into a switch of its engine, a
// layout or a precision, or refused by name. Expected values follow the source of the software that
// each test names.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "files/import_file.h"
#include "support/arena_fixture.h"
#include "support/import_fixture.h"

// ---- Megatron-LM ----

// Llama 3 70B on 16 x 8 devices; `more` follows.
static const char *llama_70b(const char *more) {
  return ot_arena_format(
      &arena,
      "--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64\n"
      "--group-query-attention --num-query-groups 8 --seq-length 8192 --micro-batch-size 1\n"
      "--swiglu --normalization RMSNorm --position-embedding-type rope --vocab-size 128256\n"
      "--untie-embeddings-and-output-weights --disable-bias-linear --global-batch-size 512\n"
      "--attention-dropout 0 --hidden-dropout 0 --bf16 --tensor-model-parallel-size 4\n"
      "--pipeline-model-parallel-size 4 --sequence-parallel --use-distributed-optimizer\n%s\n",
      more);
}

// Megatron-LM's defaults: nothing overlaps but weight gradients with collectives of tp.
static void overlap_is_what_the_flags_switch_on(void **state) {
  (void)state;
  const ot_engine_options bare = import_text(llama_70b("")).options;
  assert_int_equal(bare.overlap_reduce, OT_SWITCH_OFF);
  assert_int_equal(bare.overlap_update_gather, OT_SWITCH_OFF);
  assert_int_equal(bare.async_tp, OT_SWITCH_OFF);
  assert_int_equal(bare.backward_tp, OT_SWITCH_ON);
  const ot_imported all = import_text(
      llama_70b("--overlap-grad-reduce --overlap-param-gather --tp-comm-overlap --no-overlap-p2p-"
                "communication --no-gradient-accumulation-fusion --attention-backend flash"));
  assert_string_equal(all.engine, "megatron-core");
  assert_int_equal(all.options.overlap_reduce, OT_SWITCH_ON);
  assert_int_equal(all.options.overlap_update_gather, OT_SWITCH_ON);
  assert_int_equal(all.options.async_tp, OT_SWITCH_ON);
  assert_int_equal(all.options.overlap_pipeline, OT_SWITCH_OFF);
  assert_int_equal(all.options.fused_accumulation, OT_SWITCH_OFF);
  assert_int_equal(all.options.attention, 1 + OT_ATTENTION_FLASH_2);
  const ot_imported graphs =
      import_text(llama_70b("--enable-cuda-graph --fp8-format hybrid "
                            "--fp8-param-gather --ddp-bucket-size 1000"));
  assert_string_equal(graphs.engine, "megatron-bridge");
  assert_int_equal(graphs.options.captured, OT_SWITCH_ON);
  assert_int_equal(graphs.options.bucket_bytes, 4000);
  assert_true(graphs.gather_bytes == 1);
}

static void options_change_the_engine(void **state) {
  (void)state;
  ot_engine engine = ot_engine_orthant;
  const ot_engine_options none = {0};
  ot_engine_apply(&none, &engine);
  assert_memory_equal(&engine, &ot_engine_orthant, sizeof engine);
  const ot_engine_options options = {.compiled = OT_SWITCH_OFF,
                                     .fused_loss = OT_SWITCH_ON,
                                     .overlap_reduce = OT_SWITCH_OFF,
                                     .async_tp = OT_SWITCH_OFF,
                                     .backward_tp = OT_SWITCH_ON,
                                     .live_elements = 1,
                                     .selective_share = 0.5};
  engine.live_elements = 7;
  engine.kernels.loss_bytes = 44;
  ot_engine_apply(&options, &engine);
  assert_true(engine.kernels.pass_factor > 1 && engine.kernels.host_ops == 1);
  assert_true(engine.kernels.loss_bytes == 10);
  assert_false(engine.overlap_reduce);
  assert_int_equal(engine.overlap_tensor, OT_TENSOR_OVERLAP_BACKWARD);
  assert_int_equal(engine.live_elements, 0);
  assert_true(engine.selective_share == 0.5);
}

static void recomputed_modules_are_priced_or_named(void **state) {
  (void)state;
  const char *const selective = "--recompute-granularity selective --recompute-modules %s";
  const ot_imported some =
      import_text(llama_70b(ot_arena_format(&arena, selective, "core_attn layernorm")));
  assert_int_equal(some.recompute, OT_RECOMPUTE_SELECTIVE);
  assert_int_equal(some.modules,
                   OT_MODULE_SET(OT_MODULE_CORE_ATTN) | OT_MODULE_SET(OT_MODULE_LAYERNORM));
  expect_refusal(llama_70b(ot_arena_format(&arena, selective, "core_attn attention")),
                 "%s: recompute-modules: no part of a layer is called \"attention\" (allowed: "
                 "core_attn, layernorm, mla_up_proj, moe_act, mlp, moe, shared_experts)",
                 NULL);
  // The older flag for a whole layer of experts; nothing is limited without selective recompute.
  assert_int_equal(import_text(llama_70b("--moe-layer-recompute")).modules,
                   OT_MODULE_SET(OT_MODULE_MOE));
  assert_int_equal(import_text(llama_70b("--recompute-modules mlp")).modules, 0);
}

static void assert_chunks(const ot_imported *imported, const int *layers, int num) {
  assert_int_equal(imported->num_chunks, num);
  for (int i = 0; i < num; i++) assert_int_equal(imported->chunk_layers[i], layers[i]);
}

// docs/user-guide/features/pipeline_parallel_layout.md of Megatron-LM; transformer_block.py.
static void uneven_stages_are_read(void **state) {
  (void)state;
  ot_imported got =
      import_text(llama_70b("--pipeline-model-parallel-layout 'Et*19|t*20|(t*7,ttt)*"
                            "2|(tt)*10tL'"));
  assert_chunks(&got, (const int[]){19, 20, 20, 21}, 4);
  assert_int_equal(got.vpp, 1);
  got = import_text(llama_70b("--pipeline-model-parallel-layout 'E|(t*13|)*5,t*8|t*7L'"));
  assert_chunks(&got, (const int[]){0, 13, 13, 13, 13, 13, 8, 7}, 8);
  assert_int_equal(got.vpp, 2);
  assert_int_equal(got.pipeline, OT_PIPELINE_INTERLEAVED);
  got = import_text(
      llama_70b("--decoder-first-pipeline-num-layers 18 --decoder-last-pipeline-num-layers 22"));
  assert_chunks(&got, (const int[]){18, 20, 20, 22}, 4);
  got =
      import_text(llama_70b("--num-layers 78 --account-for-embedding-in-pipeline-split "
                            "--account-for-loss-in-pipeline-split "
                            "--num-layers-per-virtual-pipeline-stage 10"));
  assert_chunks(&got, (const int[]){9, 10, 10, 10, 10, 10, 10, 9}, 8);
  assert_int_equal(import_text(llama_70b("")).num_chunks, 0);
  expect_refusal(llama_70b("--pipeline-model-parallel-layout 'Et*19|t*20|t*20|t*20L'"),
                 "the layout of stages has 79 layers, the model 80 (%s)", NULL);
  expect_refusal(llama_70b("--pipeline-model-parallel-layout 'Et*40|t*20|t*20L'"),
                 "pipeline-model-parallel-layout: 3 chunks are not a multiple of the 4 stages (%s)",
                 NULL);
  expect_refusal(llama_70b("--pipeline-model-parallel-layout Ex*80L"),
                 "pipeline-model-parallel-layout: 'x' is none of E, t, m, L (%s)", NULL);
}

static void what_is_not_priced_is_named(void **state) {
  (void)state;
  static const struct {
    const char *flag, *message;
  } cases[] = {
      {"--context-parallel-size 2 --cp-comm-type a2a", "cp-comm-type: a2a is not priced"},
      {"--deterministic-mode", "deterministic-mode: "},
      {"--fp32-residual-connection", "fp32-residual-connection: "},
      {"--cpu-offloading-num-layers 2", "cpu-offloading-num-layers: "},
      {"--moe-shared-expert-overlap", "moe-shared-expert-overlap: "},
      {"--distribute-saved-activations", "distribute-saved-activations: "},
      {"--delay-wgrad-compute", "delay-wgrad-compute: "},
      {"--first-last-layers-bf16", "first-last-layers-bf16: "},
      {"--moe-foo 3", "unknown key \"moe-foo\""},
      {"--fp8-foo", "unknown key \"fp8-foo\""},
      {"--tp-comm-foo", "unknown key \"tp-comm-foo\""},
  };
  for (int i = 0; i < OT_COUNT(cases); i++) {
    ot_imported imported;
    assert_int_equal(read_text(llama_70b(cases[i].flag), &imported), OT_USAGE);
    if (!ot_text_starts_with(ot_fail_message(), cases[i].message)) {
      fail_msg("%s: %s", cases[i].flag, ot_fail_message());
    }
  }
  ot_imported imported;
  assert_int_equal(
      read_text("--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 8\n"
                "--micro-batch-size 1 --vocab-size 64 --position-embedding-type rope\n"
                "--num-experts 4\n",
                &imported),
      OT_USAGE);
  assert_non_null(ot_text_find(ot_fail_message(), "experts without swiglu"));
  assert_string_not_equal(
      note_with(&(ot_imported[]){import_text(llama_70b("--rampup-batch-size 32 32 1000"))}[0],
                "the batch grows"),
      "");
}

// DeepSeek-V3 as its flags in Megatron-LM; Hugging Face counts 671,026,404,352 parameters of the
// main model.
static const char deepseek[] =
    "--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128\n"
    "--qk-pos-emb-head-dim 64 --v-head-dim 128 --num-layers 61 --hidden-size 7168\n"
    "--ffn-hidden-size 18432 --num-attention-heads 128 --seq-length 4096 --micro-batch-size 1\n"
    "--num-experts 256 --moe-layer-freq \"([0]*3+[1]*58)\" --moe-router-topk 8\n"
    "--moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 --swiglu --bf16\n"
    "--moe-router-score-function sigmoid --moe-router-num-groups 8 --moe-router-group-topk 4\n"
    "--moe-router-topk-scaling-factor 2.5 --moe-router-enable-expert-bias --qk-layernorm\n"
    "--normalization RMSNorm --norm-epsilon 1e-6 --position-embedding-type rope\n"
    "--untie-embeddings-and-output-weights --disable-bias-linear --vocab-size 129280\n"
    "--attention-dropout 0 --hidden-dropout 0 --expert-model-parallel-size 64\n"
    "--pipeline-model-parallel-size 16 --moe-token-dispatcher-type flex --moe-enable-deepep\n";

static void reads_latent_attention_and_mixed_layers(void **state) {
  (void)state;
  ot_imported got =
      import_text(ot_arena_format(&arena,
                                  "%s--overlap-moe-expert-parallel-comm --pipeline-model-parallel-"
                                  "layout 'Et|(t*2|)*30,L'",
                                  deepseek));
  assert_int_equal(ot_model_parameters(&got.model), 671026404352);
  assert_false(got.model.moe.layer[2]);
  assert_true(got.model.moe.layer[3]);
  assert_int_equal(got.model.moe.groups_per_token, 4);
  assert_int_equal(got.options.fused_dispatch, OT_SWITCH_ON);
  assert_int_equal(got.options.overlap_expert, OT_SWITCH_ON);
  assert_int_equal(got.chunk_layers[15], 2);
  got = import_text(
      ot_arena_format(&arena, "%s--use-precision-aware-optimizer --exp-avg-dtype bf16", deepseek));
  assert_true(got.moment_bytes == 6);
  const char *const refused[][2] = {
      {"", "several chunks on each of the 16 stages"},
      {"--num-virtual-stages-per-pipeline-rank 2 --recompute-granularity selective "
       "--recompute-modules moe",
       "excludes recompute of whole layers or of moe"}};
  for (int i = 0; i < OT_COUNT(refused); i++) {
    ot_imported out;
    assert_int_equal(read_text(ot_arena_format(&arena, "%s--overlap-moe-expert-parallel-comm %s",
                                               deepseek, refused[i][0]),
                               &out),
                     OT_USAGE);
    assert_non_null(ot_text_find(ot_fail_message(), refused[i][1]));
  }
  got = import_text(ot_arena_format(&arena, "%s--mtp-num-layers 1", deepseek));
  assert_int_equal(got.model.num_layers, 62);
  assert_string_equal(note_with(&got, "mtp"),
                      "mtp-num-layers 1: priced as more layers, without their heads");
}

// ---- DeepSpeed ----

static void reads_deepspeed(void **state) {
  (void)state;
  ot_imported got = import_text(
      "{\"train_batch_size\": 512, \"train_micro_batch_size_per_gpu\": 1,\n"
      " \"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 1e8,\n"
      " \"stage3_max_live_parameters\": 2e8}, \"bf16\": {\"enabled\": true}}");
  assert_string_equal(got.format, "DeepSpeed JSON");
  assert_string_equal(got.engine, "deepspeed");
  assert_string_equal(got.precision, "bf16");
  assert_false(got.has_model);
  assert_int_equal(got.zero, 3);
  assert_int_equal(got.options.overlap_reduce, OT_SWITCH_ON);  // the default of stage 3
  assert_int_equal(got.options.bucket_bytes, 200000000);
  assert_int_equal(got.options.live_elements, 1 + 200000000);
  assert_int_equal(ot_imported_fit(&got, 64), OT_OK);
  assert_int_equal(got.dp, 64);
  got = import_text(
      "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 4,\n"
      " \"train_batch_size\": \"auto\", \"fp16\": {\"enabled\": true},\n"
      " \"zero_optimization\": {\"stage\": 1, \"mics_shard_size\": 8}}");
  assert_int_equal(got.options.overlap_reduce, OT_SWITCH_OFF);
  assert_int_equal(ot_imported_fit(&got, 32), OT_OK);
  assert_int_equal(got.global_batch_size, 2 * 4 * 32);
  assert_int_equal(got.dp_replicate, 4);
}

static void refuses_what_of_deepspeed_is_not_priced(void **state) {
  (void)state;
  static const struct {
    const char *zero, *message;
  } cases[] = {
      {"\"offload_optimizer\": {\"device\": \"cpu\"}", "zero_optimization.offload_optimizer"},
      {"\"zero_quantized_weights\": true", "zero_optimization.zero_quantized_weights"},
      {"\"reduce_scatter\": false", "zero_optimization.reduce_scatter"},
      {"\"stage\": 4", "zero_optimization.stage: 4 is out of range"},
      {"\"frob\": 1", "zero_optimization: unknown key"},
  };
  for (int i = 0; i < OT_COUNT(cases); i++) {
    ot_imported imported;
    const char *const text = ot_arena_format(
        &arena, "{\"train_batch_size\": 8, \"zero_optimization\": {%s}}", cases[i].zero);
    assert_int_equal(read_text(text, &imported), OT_USAGE);
    if (!ot_text_starts_with(ot_fail_message(), cases[i].message))
      fail_msg("%s", ot_fail_message());
  }
  expect_refusal("{\"train_batch_size\": 8}",
                 "train_micro_batch_size_per_gpu: a number is needed (%s)", NULL);
}

// ---- torchtitan ----

static const char titan[] =
    "[model]\nflavor = \"8B\"\n[training]\nlocal_batch_size = 4\n[parallelism]\n"
    "data_parallel_shard_degree = 8\ntensor_parallel_degree = 2\n"
    "enable_async_tensor_parallel = true\n";

static ot_imported titan_with(const char *more) {
  return import_text(ot_arena_format(&arena, "%s%s", titan, more));
}

static void compilation_decides_what_torchtitan_fuses_and_overlaps(void **state) {
  (void)state;
  ot_imported got = titan_with("");
  assert_int_equal(got.options.compiled, OT_SWITCH_OFF);
  assert_int_equal(got.options.async_tp, OT_SWITCH_OFF);  // needs compiled blocks
  got = titan_with("[compile]\nenable = true\n");
  assert_int_equal(got.options.compiled, OT_SWITCH_ON);
  assert_int_equal(got.options.async_tp, OT_SWITCH_ON);
  got = titan_with("[compile]\nenable = true\ncomponents = [\"loss\"]\n");
  assert_int_equal(got.options.compiled, OT_SWITCH_OFF);
  got = titan_with("[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = \"4\"\n");
  assert_true(got.options.selective_share == 0.25);
  got = titan_with("[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = \"op\"\n");
  assert_true(got.options.selective_share == 0);
  got = titan_with("[quantize.linear.float8]\nenable_fsdp_float8_all_gather = true\n");
  assert_null(got.precision);  // no converter
}

static void reads_float8_of_torchtitan(void **state) {
  (void)state;
  const ot_imported got = import_text(
      "[model]\nflavor = \"8B\"\nconverters = [\"quantize.linear.float8\"]\n[training]\n"
      "[quantize.linear.float8]\nenable_fsdp_float8_all_gather = true\n");
  assert_string_equal(got.precision, "fp8");
  assert_true(got.gather_bytes == 1);
  expect_refusal("[model]\nflavor = \"8B\"\nconverters = [\"mx\"]\n[training]\n",
                 "model.converters: mx is not priced; allowed: float8, quantize.linear.float8 (%s)",
                 NULL);
}

// pipeline_parallel.py of torchtitan: 34 layers with embedding and head over 4 chunks.
static void torchtitan_counts_embedding_and_head_as_layers(void **state) {
  (void)state;
  ot_imported got = titan_with("pipeline_parallel_degree = 4\n");
  assert_chunks(&got, (const int[]){8, 9, 8, 7}, 4);
  got = titan_with(
      "pipeline_parallel_degree = 4\npipeline_parallel_first_stage_less_layers = 0\n"
      "pipeline_parallel_last_stage_less_layers = 0\n");
  assert_chunks(&got, (const int[]){8, 8, 8, 8}, 4);
}

// A script that writes the file by a here-document: places are lines of the script.
static void reads_here_documents(void **state) {
  (void)state;
  const ot_imported got = import_text(
      "#!/bin/bash\ncat >x.toml <<'END'\n[model]\nflavor = \"8B\"\n[training]\nseq_len = 64\n"
      "END\ntorchrun --nnodes 2 -m torchtitan.train --job.config_file x.toml\n");
  assert_int_equal(got.sequence_length, 64);
  // Flags of the command hold over the file.
  const ot_imported flags = import_text(
      "cat >x.toml <<END\n[model]\nflavor = \"8B\"\n[training]\nseq_len = 64\nEND\n"
      "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file x.toml \\\n"
      "  --training.seq_len=128 --parallelism.tensor_parallel_degree 4 --compile.enable\n");
  assert_int_equal(flags.sequence_length, 128);
  assert_int_equal(flags.tp, 4);
  assert_int_equal(flags.options.compiled, OT_SWITCH_ON);
  expect_refusal(
      "cat >x.toml <<END\n[model]\nflavor = \"8B\"\n[training]\nEND\n"
      "torchrun -m torchtitan.train --training.seq 128\n",
      "training: unknown key \"seq\" (%s:6)", NULL);
  expect_refusal("cat >x.toml <<END\n[model]\nflavor = \"8B\"\n[training]\nseqlen = 4\nEND\n",
                 "training: unknown key \"seqlen\" (%s:5:10)", "did you mean \"seq_len\"?");
}

// ---- NeMo and Megatron-Bridge ----

static const char nemo[] =
    "trainer: {devices: 8, num_nodes: 2, precision: bf16-mixed}\n"
    "model:\n  micro_batch_size: 1\n  global_batch_size: 128\n  tensor_model_parallel_size: 2\n"
    "  encoder_seq_length: 4096\n  max_position_embeddings: ${.encoder_seq_length}\n"
    "  num_layers: 32\n  hidden_size: 4096\n  ffn_hidden_size: 14336\n"
    "  num_attention_heads: 32\n  num_query_groups: 8\n  hidden_dropout: 0.0\n"
    "  attention_dropout: 0.0\n  kv_channels: null\n  normalization: rmsnorm\n"
    "  activation: fast-swiglu\n  bias: False\n  position_embedding_type: rope\n"
    "  share_embeddings_and_output_weights: False\n  vocab_size: 128256\n"
    "  sequence_parallel: True\n  activations_checkpoint_granularity: selective\n"
    "  optim: {name: distributed_fused_adam, lr: 1e-4, overlap_param_sync: False}\n";

// megatron_gpt_config.yaml of NeMo 1.
static void reads_nemo(void **state) {
  (void)state;
  ot_imported got = import_text(nemo);
  assert_string_equal(got.format, "NeMo YAML");
  assert_string_equal(got.engine, "megatron-core");
  assert_int_equal(ot_model_parameters(&got.model), 8030261248);  // Llama 3 8B
  assert_int_equal(got.devices, 16);
  assert_string_equal(got.precision, "bf16-fp32-gradients");
  assert_int_equal(got.recompute, OT_RECOMPUTE_SELECTIVE);
  assert_int_equal(got.zero, 1);
  assert_int_equal(got.options.overlap_reduce, OT_SWITCH_ON);
  assert_int_equal(got.options.overlap_update_gather, OT_SWITCH_OFF);
  assert_false(got.no_sequence_parallel);
  ot_imported refused;
  assert_int_equal(read_text(ot_arena_format(&arena, "%s  frobnicate: 3\n", nemo), &refused),
                   OT_USAGE);
  assert_int_equal(
      read_text(ot_arena_format(&arena, "%s  fp32_residual_connection: True\n", nemo), &refused),
      OT_USAGE);
}

// A ConfigContainer of Megatron-Bridge: what mixed_precision and comm_overlap say holds.
static void reads_megatron_bridge(void **state) {
  (void)state;
  static const char *const bridge =
      "model:\n  _target_: megatron.bridge.models.gpt_provider.GPTModelProvider\n"
      "  activation_func: {_call_: false, _target_: torch.nn.functional.silu}\n"
      "  gated_linear_unit: true\n  add_bias_linear: false\n  num_layers: 48\n"
      "  hidden_size: 2048\n  ffn_hidden_size: 6144\n  num_attention_heads: 32\n"
      "  num_query_groups: 4\n  kv_channels: 128\n  qk_layernorm: true\n  seq_length: 4096\n"
      "  num_moe_experts: 128\n  moe_router_topk: 8\n  moe_ffn_hidden_size: 768\n"
      "  moe_token_dispatcher_type: flex\n  moe_flex_dispatcher_backend: hybridep\n"
      "  normalization: RMSNorm\n  position_embedding_type: rope\n  rotary_base: 1000000.0\n"
      "  layernorm_epsilon: 1.0e-06\n  hidden_dropout: 0.0\n  attention_dropout: 0.0\n"
      "  share_embeddings_and_output_weights: false\n  vocab_size: 151936\n"
      "  make_vocab_size_divisible_by: 1\n  pipeline_model_parallel_size: 2\n"
      "  virtual_pipeline_model_parallel_size: 3\n  expert_model_parallel_size: 16\n"
      "  overlap_p2p_comm: false\n  cuda_graph_impl: transformer_engine\n"
      "train: {micro_batch_size: 1, global_batch_size: 256, train_iters: 5}\n"
      "ddp: {use_distributed_optimizer: true, overlap_grad_reduce: false,\n"
      "  overlap_param_gather: false, grad_reduce_in_fp32: true}\n"
      "mixed_precision: {bf16: true, fp8: hybrid, fp8_recipe: mxfp8, fp8_param_gather: true,\n"
      "  grad_reduce_in_fp32: false}\n"
      "comm_overlap: {overlap_grad_reduce: true, overlap_param_gather: null}\n"
      "logger: {log_interval: 1}\n";
  const ot_imported got = import_text(bridge);
  assert_string_equal(got.engine, "megatron-bridge");
  assert_int_equal(ot_model_parameters(&got.model), 30532122624);  // Qwen3-30B-A3B
  assert_string_equal(got.precision, "fp8");
  assert_true(got.gather_bytes == 1);
  assert_int_equal(got.vpp, 3);
  assert_int_equal(got.ep, 16);
  assert_int_equal(got.options.overlap_reduce, OT_SWITCH_ON);
  assert_int_equal(got.options.overlap_update_gather, OT_SWITCH_OFF);
  assert_int_equal(got.options.overlap_pipeline, OT_SWITCH_OFF);
  assert_int_equal(got.options.fused_dispatch, OT_SWITCH_ON);
  assert_int_equal(got.options.captured, OT_SWITCH_ON);
  expect_refusal("model: {activation_func: {_target_: megatron.core.squared_relu}}\nddp: {}\n",
                 "model.activation_func: megatron.core.squared_relu is not priced; allowed: silu, "
                 "gelu (%s:1:37)",
                 NULL);
}

// ---- MaxText ----

// base.yml of MaxText: degrees are products over slices; batches count per device.
static void reads_maxtext(void **state) {
  (void)state;
  ot_imported got = import_text(
      "model_name: llama2-70b\nici_fsdp_parallelism: 16\nici_tensor_parallelism: 4\n"
      "dcn_data_parallelism: 2\nper_device_batch_size: 2\nmax_target_length: 4096\n"
      "remat_policy: minimal\nattention: dot_product\n");
  assert_string_equal(got.engine, "jax");
  assert_string_equal(got.precision, "amp-bf16");
  assert_string_equal(got.model_name, "llama2-70b");
  assert_int_equal(got.devices, 128);
  assert_int_equal(got.recompute, OT_RECOMPUTE_SELECTIVE);
  assert_int_equal(got.options.attention, 1 + OT_ATTENTION_UNFUSED);
  assert_int_equal(ot_imported_fit(&got, 0), OT_OK);
  assert_int_equal(got.dp, 32);
  assert_int_equal(got.dp_replicate, 2);
  assert_int_equal(got.zero, 3);
  assert_int_equal(got.micro_batch_size, 8);  // 2 on each of 4 devices
  assert_int_equal(got.global_batch_size, 2 * 128);
  got = import_text(
      "per_device_batch_size: 0.5\nici_context_parallelism: 4\nbase_emb_dim: 4096\n"
      "base_num_query_heads: 32\nbase_num_kv_heads: 8\nbase_mlp_dim: 14336\n"
      "base_num_decoder_layers: 32\nvocab_size: 128256\nquantization: fp8\n");
  assert_int_equal(ot_model_parameters(&got.model), 8030261248);  // Llama 3 8B
  assert_string_equal(got.precision, "fp8");
  assert_int_equal(got.micro_batch_size, 2);
  assert_int_equal(ot_imported_fit(&got, 16), OT_OK);
  assert_int_equal(got.dp, 4);
}

static void refuses_what_of_maxtext_is_not_priced(void **state) {
  (void)state;
  expect_refusal("per_device_batch_size: 1\nquantization: int8\n",
                 "quantization: int8 is not priced; allowed: fp8|fp8_full|nanoo_fp8|"
                 "te_fp8_delayedscaling|te_fp8_currentscaling|te_mxfp8 (%s)",
                 NULL);
  expect_refusal("per_device_batch_size: 0.5\n",
                 "per_device_batch_size: 0.5 on the 1 devices of a rank of dp are no whole "
                 "sequences (%s)",
                 NULL);
  expect_refusal("per_device_batch_size: 1\nici_pipeline_parallelism: 4\n",
                 "num_layers_per_pipeline_stage: 1 of 16 layers on 4 stages are a circular "
                 "pipeline, which is not priced (%s)",
                 NULL);
  ot_imported got;
  assert_int_equal(read_text("per_device_batch_size: 1\nremat_policy: custom\n", &got), OT_USAGE);
  assert_int_equal(read_text("per_device_batch_size: 1\nfrobnicate: 1\n", &got), OT_USAGE);
}

// ---- nanotron ----

static const char nanotron[] =
    "parallelism: {dp: 1, pp: 1, tp: 2}\n"
    "tokens: {sequence_length: 8, micro_batch_size: 1, batch_accumulation_per_replica: 1}\n"
    "model:\n  model_config:\n    vocab_size: 100\n    hidden_size: 64\n"
    "    num_attention_heads: 4\n";

// models/qwen.py of nanotron: queries, keys and values have biases with attention_bias, the output
// has none; Hugging Face's qwen2 is so. Overlap of tp is a switch.
static void reads_biases_and_overlap_of_nanotron(void **state) {
  (void)state;
  const ot_imported plain = import_text(nanotron);
  assert_int_equal(plain.options.backward_tp, OT_SWITCH_OPEN);
  char text[1024];
  snprintf(text, sizeof text, "%s    is_qwen2_config: true\n    attention_bias: true\n", nanotron);
  const ot_imported qwen = import_text(text);
  assert_true(qwen.model.qkv_bias);
  assert_false(qwen.model.output_bias);
  expect_refusal(
      "parallelism: {dp: 1, pp: 1, tp: 2, tp_recompute_allgather: false}\ntokens:\n"
      "model:\n  model_config:\n",
      "parallelism.tp_recompute_allgather: false is not supported: gathered tensors that are "
      "kept are not priced; allowed: true, null (%s:1:60)",
      NULL);
  const ot_imported async = import_text(
      "parallelism: {dp: 1, pp: 1, tp: 2, tp_linear_async_communication: true}\n"
      "tokens: {sequence_length: 8, micro_batch_size: 1, batch_accumulation_per_replica: 1}\n"
      "model:\n  model_config:\n    vocab_size: 100\n    hidden_size: 64\n"
      "    num_attention_heads: 4\n");
  assert_int_equal(async.options.backward_tp, OT_SWITCH_ON);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(overlap_is_what_the_flags_switch_on, begin, finish),
      cmocka_unit_test_setup_teardown(options_change_the_engine, begin, finish),
      cmocka_unit_test_setup_teardown(recomputed_modules_are_priced_or_named, begin, finish),
      cmocka_unit_test_setup_teardown(uneven_stages_are_read, begin, finish),
      cmocka_unit_test_setup_teardown(what_is_not_priced_is_named, begin, finish),
      cmocka_unit_test_setup_teardown(reads_latent_attention_and_mixed_layers, begin, finish),
      cmocka_unit_test_setup_teardown(reads_deepspeed, begin, finish),
      cmocka_unit_test_setup_teardown(refuses_what_of_deepspeed_is_not_priced, begin, finish),
      cmocka_unit_test_setup_teardown(compilation_decides_what_torchtitan_fuses_and_overlaps, begin,
                                      finish),
      cmocka_unit_test_setup_teardown(reads_float8_of_torchtitan, begin, finish),
      cmocka_unit_test_setup_teardown(torchtitan_counts_embedding_and_head_as_layers, begin,
                                      finish),
      cmocka_unit_test_setup_teardown(reads_here_documents, begin, finish),
      cmocka_unit_test_setup_teardown(reads_nemo, begin, finish),
      cmocka_unit_test_setup_teardown(reads_megatron_bridge, begin, finish),
      cmocka_unit_test_setup_teardown(reads_maxtext, begin, finish),
      cmocka_unit_test_setup_teardown(refuses_what_of_maxtext_is_not_priced, begin, finish),
      cmocka_unit_test_setup_teardown(reads_biases_and_overlap_of_nanotron, begin, finish),
  };
  return cmocka_run_group_tests(tests, make_file, remove_file);
}
