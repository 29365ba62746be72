// SPDX-License-Identifier: Apache-2.0
// The table of RUN.yaml: every key with its type, range, default, unit and help.
#include "describe/run_keys.h"

#include "base/text.h"
#include "describe/pipeline_rules.h"

// A constant that code uses, too, as text.
#define TEXT(x) #x
#define TEXT_OF(x) TEXT(x)

static const char *const automatic[] = {"auto", NULL};
static const char *const formats[] = {"auto", "megatron", "llmc", "nanogpt", "nanogpt32", NULL};
static const char *const boundaries[] = {"auto", "end", "start", NULL};
static const char *const no_tokenizer[] = {"bytes", NULL};
static const char *const contexts[] = {"ring", "ulysses", NULL};
static const char *const accumulates[] = {"whole", "sharded", NULL};
static const char *const decays[] = {"constant", "linear", "cosine", "wsd", NULL};
static const char *const sums[] = {"wide", "wire", NULL};
static const char *const audits[] = {"causality", "precision", "ranks",   "drift",
                                     "overlap",   "state",     "compute", NULL};
static const char *const computes[] = {"fp32", "fp64", "bf16", "fp16", "fp8", NULL};
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
static const char *const spike_actions[] = {"note", "stop", "skip", "rewind", NULL};
static const char *const stored[] = {"fp32", "fp64", "bf16", "fp16", NULL};
static const char *const no_file[] = {"random", NULL};

// clang-format off
// ---- List elements ----

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
     .unit = "steps", .help = "first step that samples from it"},
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
     .null_text = "-1", .unit = "steps", .help = "first step, counted from 0"},
    {"from_tokens", OT_KEY_INTEGER, offsetof(ot_batch_ramp, from_tokens), "null", 0, OT_NO_MAXIMUM,
     .null_text = "-1", .unit = "tokens", .help = "or number of tokens trained on before it"},
    {"global_batch_size", OT_KEY_INTEGER, offsetof(ot_batch_ramp, global_batch_size), NULL,
     1, 1 << 24, .unit = "sequences", .help = "sequences per step"},
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
     .help = "sources from a later step on"},
    {"validation", OT_KEY_OBJECT, offsetof(ot_run_data, validation), "", .shape = OT_SHAPE_NAMED,
     .count_offset = offsetof(ot_run_data, num_validation), .object = &validation, .null_text = "",
     .help = "prefix of token files, or {NAME: PREFIX}"},
    {"validation_every", OT_KEY_INTEGER, offsetof(ot_run_data, validation_every), "0",
     0, OT_NO_MAXIMUM, .unit = "steps",
     .help = "steps between validations; 0: after the last step"},
    {"validation_tokens", OT_KEY_INTEGER, offsetof(ot_run_data, validation_tokens), "0",
     0, OT_NO_MAXIMUM, .unit = "tokens", .help = "tokens used of each set; 0: all"},
    {"tokenizer", OT_KEY_PATH, offsetof(ot_run_data, tokenizer), "null", .choices = no_tokenizer,
     .null_text = "", .help = "tokenizer.json, or bytes; copied into checkpoints"},
    {"sequence_length", OT_KEY_INTEGER, offsetof(ot_run_data, sequence_length), "null", 1, 1 << 24,
     .null_text = "0", .unit = "tokens",
     .help = "tokens per sample; null: 4096 or the model's maximum"},
    {"format", OT_KEY_CHOICE, offsetof(ot_run_data, format), "auto", .choices = formats,
     .help = "layout of the token files; headerless ones, nanogpt (16 bits) and nanogpt32, are not "
             "detected"},
    {"document_boundary", OT_KEY_CHOICE, offsetof(ot_run_data, document_boundary), "auto",
     .choices = boundaries,
     .help = "position of the end-of-text id in documents of shards without .idx; auto: llmc "
             "start, else end"},
    {"document_mask", OT_KEY_BOOL, offsetof(ot_run_data, document_mask), "true",
     .help = "attention and positions restart at each document"},
    {"tokenizer_check", OT_KEY_BOOL, offsetof(ot_run_data, tokenizer_check), "true",
     .help = "refuse token files of another tokenizer; false: no check"},
};
static const ot_schema data = {
    "data section", data_keys, OT_COUNT(data_keys), .size = sizeof(ot_run_data)};

static const ot_key batch_keys[] = {
    {"global_batch_size", OT_KEY_INTEGER, offsetof(ot_run_batch, global_batch_size), "64",
     1, 1 << 24, .unit = "sequences", .help = "sequences per step, over all ranks"},
    {"micro_batch_size", OT_KEY_INTEGER, offsetof(ot_run_batch, micro_batch_size), "1", 1, 1 << 20,
     .unit = "sequences", .help = "sequences per forward and backward pass"},
    {"ramp", OT_KEY_OBJECT, offsetof(ot_run_batch, ramp), "", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(ot_run_batch, num_ramp), .object = &ramp,
     .help = "batch sizes from a later step or token count on"},
};
static const ot_schema batch = {
    "batch section", batch_keys, OT_COUNT(batch_keys), .size = sizeof(ot_run_batch)};

static const ot_key group_keys[] = {
    {"pattern", OT_KEY_TEXT, offsetof(ot_optimizer_group, pattern),
     .help = "HF tensor names; * any characters, ? one"},
    {"lr_factor", OT_KEY_REAL, offsetof(ot_optimizer_group, lr_factor), "1", 0, OT_NO_MAXIMUM,
     .help = "multiplies the learning rate"},
    {"lr", OT_KEY_REAL, offsetof(ot_optimizer_group, lr), "null", 0, OT_NO_MAXIMUM,
     .null_text = "-1", .help = "peak learning rate instead of optimizer.lr"},
    {"weight_decay", OT_KEY_REAL, offsetof(ot_optimizer_group, weight_decay), "null",
     0, OT_NO_MAXIMUM, .null_text = "-1", .help = "instead of optimizer.weight_decay"},
};
static const ot_schema group = {
    "parameter group", group_keys, OT_COUNT(group_keys), .size = sizeof(ot_optimizer_group)};

static const ot_key parallel_keys[] = {
    {"tp", OT_KEY_INT, offsetof(ot_run_parallel, tp), "1", 1, 1 << 20,
     .help = "tensor parallel degree"},
    {"pp", OT_KEY_INT, offsetof(ot_run_parallel, pp), "1", 1, 1 << 20, .help = "pipeline stages"},
    {"vpp", OT_KEY_INT, offsetof(ot_run_parallel, vpp), "1", 1, 1 << 20,
     .help = "chunks per stage (interleaved, zb-v, dualpipe-v)"},
    {"cp", OT_KEY_INT, offsetof(ot_run_parallel, cp), "1", 1, 1 << 20,
     .help = "context parallel degree"},
    {"context", OT_KEY_CHOICE, offsetof(ot_run_parallel, context), "ring", .choices = contexts,
     .help = "attention over cp: keys move around a ring, or all-to-all of heads (ulysses)"},
    {"ep", OT_KEY_INT, offsetof(ot_run_parallel, ep), "1", 1, 1 << 20,
     .help = "expert parallel degree, over ranks of tp, cp and dp"},
    {"etp", OT_KEY_INT, offsetof(ot_run_parallel, etp), "1", 1, 1 << 20,
     .help = "tensor parallel degree of experts"},
    {"dp", OT_KEY_INT, offsetof(ot_run_parallel, dp), "0", 0, 1 << 20,
     .help = "data parallel degree; 0: the remaining ranks"},
    {"dp_replicate", OT_KEY_INT, offsetof(ot_run_parallel, dp_replicate), "1", 1, 1 << 20,
     .help = "part of dp that replicates"},
    {"zero", OT_KEY_INT, offsetof(ot_run_parallel, zero), "1", 0, 3,
     .help = "state sharded over dp_shard: 1 optimizer, 2 gradients, 3 weights"},
    {"accumulate", OT_KEY_CHOICE, offsetof(ot_run_parallel, accumulate), "auto",
     .choices = accumulates,
     .help = "over micro-batches first (whole) or ranks first; auto: whole at zero 0 and 1"},
    {"pipeline", OT_KEY_CHOICE, offsetof(ot_run_parallel, pipeline), "1f1b",
     .choices = ot_pipeline_names, .help = "pipeline schedule"},
    {"recompute", OT_KEY_CHOICE, offsetof(ot_run_parallel, recompute), "none",
     .shape = OT_SHAPE_LIST, .count_offset = offsetof(ot_run_parallel, num_recompute),
     .choices = ot_recompute_names,
     .help = "recomputed activations; one word, or one per layer"},
    {"recompute_modules", OT_KEY_CHOICE, offsetof(ot_run_parallel, recompute_modules), "",
     .shape = OT_SHAPE_LIST, .count_offset = offsetof(ot_run_parallel, num_recompute_modules),
     .choices = ot_recompute_module_names,
     .help = "all that recompute: selective recomputes; empty: norms and activations"},
    {"layout", OT_KEY_TEXT, offsetof(ot_run_parallel, layout), "null", .null_text = "",
     .help = "explicit stages, as in Et*11|t*12|t*11L; null: balanced by cost"},
    {"order_csv", OT_KEY_PATH, offsetof(ot_run_parallel, order_csv), "null", .null_text = "",
     .help = "file with the pipeline schedule; null: from pipeline"},
    {"prefetch", OT_KEY_INT, offsetof(ot_run_parallel, prefetch), TEXT_OF(OT_PREFETCH), 0, 1024,
     .unit = "blocks", .help = "blocks gathered ahead of use"},
    {"reshard", OT_KEY_BOOL, offsetof(ot_run_parallel, reshard), "true", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(ot_run_parallel, num_reshard),
     .help = "zero 3: weights are released after use; one word, or embedding, layers and head"},
    {"expert_buffer", OT_KEY_REAL, offsetof(ot_run_parallel, expert_buffer),
     TEXT_OF(OT_EXPERT_BUFFER), 1, OT_NO_MAXIMUM, .unit = "even shares",
     .help = "ep: tokens that a rank's experts receive per pass; the rest overflow"},
    {"watchdog_seconds", OT_KEY_REAL, offsetof(ot_run_parallel, watchdog_seconds), "600",
     0, OT_NO_MAXIMUM, .unit = "seconds",
     .help = "timeout after which the run ends, naming the rank or kernel waited for; 0: never"},
};
static const ot_schema parallel = {
    "parallel section", parallel_keys, OT_COUNT(parallel_keys), .size = sizeof(ot_run_parallel)};

static const ot_key optimizer_keys[] = {
    {"name", OT_KEY_CHOICE, offsetof(ot_run_optimizer, name), "adamw",
     .choices = ot_optimizer_names, .help = "muon: matrices by Muon, the rest by AdamW"},
    {"lr", OT_KEY_REAL, offsetof(ot_run_optimizer, lr), "3e-4", 0, OT_NO_MAXIMUM,
     .help = "peak learning rate"},
    {"betas", OT_KEY_REAL, offsetof(ot_run_optimizer, betas), "0.9 0.95", 0, 1,
     .shape = OT_SHAPE_ARRAY, .count = 2, .below_maximum = true,
     .help = "decay of the two moments, AdamW"},
    {"eps", OT_KEY_REAL, offsetof(ot_run_optimizer, eps), "1e-8", 0, 1, .above_minimum = true,
     .help = "added to the root of the second moment, AdamW"},
    {"weight_decay", OT_KEY_REAL, offsetof(ot_run_optimizer, weight_decay), "0.1", 0, OT_NO_MAXIMUM,
     .help = "times the learning rate; not on norms and biases"},
    {"clip", OT_KEY_REAL, offsetof(ot_run_optimizer, clip), "1.0", 0, OT_NO_MAXIMUM,
     .help = "largest global gradient norm; 0: off"},
    {"momentum", OT_KEY_REAL, offsetof(ot_run_optimizer, momentum), "0.95", 0, 1,
     .below_maximum = true, .help = "of Muon"},
    {"adamw_lr", OT_KEY_REAL, offsetof(ot_run_optimizer, adamw_lr), "0", 0, OT_NO_MAXIMUM,
     .help = "with muon: peak for AdamW's parameters; 0: lr"},
    {"groups", OT_KEY_OBJECT, offsetof(ot_run_optimizer, groups), "", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(ot_run_optimizer, num_groups), .object = &group,
     .help = "overrides by parameter name; the first match applies"},
};
static const ot_schema optimizer = {
    "optimizer section", optimizer_keys, OT_COUNT(optimizer_keys),
    .size = sizeof(ot_run_optimizer)};

static const ot_key parametrization_keys[] = {
    {"name", OT_KEY_CHOICE, offsetof(ot_parametrization, name), "standard",
     .choices = ot_parametrization_names,
     .help = "mup: lr, eps, weight_decay and initializer_range are those of the base model"},
    {"base_hidden_size", OT_KEY_INTEGER, offsetof(ot_parametrization, base_hidden_size), "null",
     1, 1 << 30, .null_text = "0", .help = "width of the base model; required with mup"},
    {"base_layers", OT_KEY_INTEGER, offsetof(ot_parametrization, base_layers), "null",
     1, OT_MAX_LAYERS, .null_text = "0", .help = "its number of layers; null: that of the model"},
    {"base_head_dim", OT_KEY_INTEGER, offsetof(ot_parametrization, base_head_dim), "null",
     1, 1 << 20, .null_text = "0", .help = "its head_dim; null: that of the model"},
    {"base_kv_heads", OT_KEY_INTEGER, offsetof(ot_parametrization, base_kv_heads), "null",
     1, 1 << 20, .null_text = "0",
     .help = "its key and value heads, for Muon; null: in proportion to hidden_size"},
    {"base_q_lora_rank", OT_KEY_INTEGER, offsetof(ot_parametrization, base_q_lora_rank), "null",
     1, 1 << 30, .null_text = "0", .help = "its q_lora_rank; null: that of the model"},
    {"base_kv_lora_rank", OT_KEY_INTEGER, offsetof(ot_parametrization, base_kv_lora_rank), "null",
     1, 1 << 30, .null_text = "0", .help = "its kv_lora_rank; null: that of the model"},
    {"depth_alpha", OT_KEY_REAL, offsetof(ot_parametrization, depth_alpha), "1", 0.5, 1,
     .help = "residual branches are multiplied by (layers / base_layers)^-depth_alpha"},
};
static const ot_schema parametrization = {
    "parametrization section", parametrization_keys, OT_COUNT(parametrization_keys),
    .size = sizeof(ot_parametrization), .shorthand = "name"};

static const ot_key learning_rate_keys[] = {
    {"warmup_steps", OT_KEY_INTEGER, offsetof(ot_run_learning_rate, warmup_steps), "null",
     0, OT_NO_MAXIMUM, .null_text = "-1", .unit = "steps",
     .help = "linear warmup to the peak; null: 100, at most a tenth of the run"},
    {"decay", OT_KEY_CHOICE, offsetof(ot_run_learning_rate, decay), "cosine", .choices = decays,
     .help = "decay from the peak to min; wsd: constant, then decay at the end"},
    {"decay_steps", OT_KEY_INTEGER, offsetof(ot_run_learning_rate, decay_steps), "0",
     0, OT_NO_MAXIMUM, .unit = "steps",
     .help = "length of the decay; 0: to the end (wsd: a tenth of the run)"},
    {"min", OT_KEY_REAL, offsetof(ot_run_learning_rate, min), "null", 0, OT_NO_MAXIMUM,
     .null_text = "-1", .help = "learning rate after the decay; null: a tenth of the peak"},
};
static const ot_schema learning_rate = {
    "learning_rate section", learning_rate_keys, OT_COUNT(learning_rate_keys),
    .size = sizeof(ot_run_learning_rate)};

static const ot_key precision_keys[] = {
    {"compute", OT_KEY_DTYPE, offsetof(ot_run_precision, compute), "fp32", .choices = computes,
     .help = "dtype of the computation; fp16 and fp8 are planned for, not trained"},
    {"params", OT_KEY_DTYPE, offsetof(ot_run_precision, params), "auto", .choices = stored,
     .help = "dtype of stored weights; auto: as compute, bf16 with fp8"},
    {"gradients", OT_KEY_DTYPE, offsetof(ot_run_precision, gradients), "auto", .choices = stored,
     .help = "accumulators (bf16: rounded each micro-batch); auto: fp64 with fp64, else fp32"},
    {"master", OT_KEY_DTYPE, offsetof(ot_run_precision, master), "auto", .choices = stored,
     .help = "dtype of master weights; auto: fp64 with fp64, else fp32"},
    {"moments", OT_KEY_DTYPE, offsetof(ot_run_precision, moments), "auto", .choices = stored,
     .help = "optimizer moments (bf16: rounded each step); auto: fp64 with fp64, else fp32"},
    {"reduce", OT_KEY_DTYPE, offsetof(ot_run_precision, reduce), "auto", .choices = stored,
     .help = "dtype of gradients in communication; auto: fp64 with fp64, else fp32"},
    {"accumulate", OT_KEY_CHOICE, offsetof(ot_run_precision, sum), "wide", .choices = sums,
     .help = "reductions over ranks in fp64 or fp32 (wide), or in the dtype that is sent"},
};
static const ot_schema precision = {
    "precision section", precision_keys, OT_COUNT(precision_keys),
    .size = sizeof(ot_run_precision)};

static const ot_key checkpoint_keys[] = {
    {"every", OT_KEY_INTEGER, offsetof(ot_run_checkpoint, every), "1000", 0, OT_NO_MAXIMUM,
     .choices = automatic, .unit = "steps",
     .help = "steps between checkpoints; 0: after the last; auto: by their measured cost"},
    {"mtbf_hours", OT_KEY_REAL, offsetof(ot_run_checkpoint, mtbf_hours), "null", 0, 1e9,
     .above_minimum = true, .null_text = "0", .unit = "hours",
     .help = "mean time between failures of the job; null: 50677 over the ranks, as of Llama 3"},
    {"keep", OT_KEY_INTEGER, offsetof(ot_run_checkpoint, keep), "3", 0, OT_NO_MAXIMUM,
     .help = "number of checkpoints to keep, of those complete; 0: all"},
    {"async", OT_KEY_BOOL, offsetof(ot_run_checkpoint, async), "false",
     .help = "write while training goes on, from a copy of the state in host memory"},
    {"memory", OT_KEY_INTEGER, offsetof(ot_run_checkpoint, memory), "0", 0, OT_NO_MAXIMUM,
     .unit = "steps",
     .help = "steps between copies of the state in memory that outlives the process; 0: none"},
    {"memory_path", OT_KEY_TEXT, offsetof(ot_run_checkpoint, memory_path), "/dev/shm",
     .help = "folder for these copies, on a file system in memory of each host"},
};
static const ot_schema checkpoint = {
    "checkpoint section", checkpoint_keys, OT_COUNT(checkpoint_keys),
    .size = sizeof(ot_run_checkpoint)};

static const ot_key audit_keys[] = {
    {"every", OT_KEY_INTEGER, offsetof(ot_run_audit, every), "0", 0, OT_NO_MAXIMUM, .unit = "steps",
     .help = "steps between audits; 0: none"},
    {"checks", OT_KEY_CHOICE, offsetof(ot_run_audit, checks), "", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(ot_run_audit, num_checks), .choices = audits,
     .help = "audits to run"},
};
static const ot_schema audit = {
    "audit section", audit_keys, OT_COUNT(audit_keys), .size = sizeof(ot_run_audit)};

static const ot_key task_keys[] = {
    {"name", OT_KEY_TEXT, offsetof(ot_evaluate_task, name), "", .help = "name of the task"},
    {"path", OT_KEY_PATH, offsetof(ot_evaluate_task, path), .help = "file of JSON lines"},
};
static const ot_schema task = {
    "task", task_keys, OT_COUNT(task_keys), .size = sizeof(ot_evaluate_task), .shorthand = "path"};

static const ot_key evaluate_keys[] = {
    {"every", OT_KEY_INTEGER, offsetof(ot_run_evaluate, every), "0", 0, OT_NO_MAXIMUM,
     .unit = "steps", .help = "steps between evaluations; 0: at the start and after the last step"},
    {"stages", OT_KEY_INTEGER, offsetof(ot_run_evaluate, stages), "0", 0, 1 << 20,
     .help = "ranks that share a copy of the model for it; 0: as few as have the memory"},
    {"tasks", OT_KEY_OBJECT, offsetof(ot_run_evaluate, tasks), "", .shape = OT_SHAPE_NAMED,
     .count_offset = offsetof(ot_run_evaluate, num_tasks), .object = &task, .null_text = "",
     .help = "file of JSON lines with choices, texts or prompts, or {NAME: FILE}"},
};
static const ot_schema evaluate = {
    "evaluate section", evaluate_keys, OT_COUNT(evaluate_keys), .size = sizeof(ot_run_evaluate)};

static const ot_key logging_keys[] = {
    {"every", OT_KEY_INTEGER, offsetof(ot_run_log, every), "1", 1, OT_NO_MAXIMUM, .unit = "steps",
     .help = "steps between status lines"},
    {"health_every", OT_KEY_INTEGER, offsetof(ot_run_log, health_every), "100", 0, OT_NO_MAXIMUM,
     .unit = "steps", .help = "steps between per-layer health metrics; 0: none"},
    {"tensorboard", OT_KEY_BOOL, offsetof(ot_run_log, tensorboard), "true",
     .help = "write TensorBoard event files"},
};
static const ot_schema logging = {
    "log section", logging_keys, OT_COUNT(logging_keys), .size = sizeof(ot_run_log)};

// ---- The run ----

static const ot_key run_keys[] = {
    {"model", OT_KEY_OBJECT, offsetof(ot_run_keys, model), .object = &ot_model_schema,
     .help = "preset, HF config.json, directory with one, or HF keys"},
    {"init", OT_KEY_PATH, offsetof(ot_run_keys, run.init), "random", .choices = no_file,
     .help = "initial weights: random, or a HF directory or checkpoint", .local = true},
    {"data", OT_KEY_OBJECT, offsetof(ot_run_keys, run.data), .object = &data,
     .help = "training and validation data", .local = true},
    {"batch", OT_KEY_OBJECT, offsetof(ot_run_keys, run.batch), .object = &batch,
     .help = "batch sizes"},
    {"parallel", OT_KEY_OBJECT, offsetof(ot_run_keys, run.parallel), .object = &parallel,
     .help = "parallelism over ranks"},
    {"optimizer", OT_KEY_OBJECT, offsetof(ot_run_keys, run.optimizer), .object = &optimizer,
     .help = "optimizer"},
    {"parametrization", OT_KEY_OBJECT, offsetof(ot_run_keys, run.parametrization),
     .object = &parametrization,
     .help = "how initial weights and learning rates depend on the size of the model"},
    {"steps", OT_KEY_INTEGER, offsetof(ot_run_keys, run.steps), "0", 0, OT_NO_MAXIMUM,
     .unit = "steps", .help = "length of the run; or give tokens"},
    {"tokens", OT_KEY_INTEGER, offsetof(ot_run_keys, run.tokens), "0", 0, OT_NO_MAXIMUM,
     .unit = "tokens", .help = "length of the run instead of steps"},
    {"learning_rate", OT_KEY_OBJECT, offsetof(ot_run_keys, run.learning_rate),
     .object = &learning_rate, .help = "learning rate schedule"},
    {"precision", OT_KEY_OBJECT, offsetof(ot_run_keys, run.precision), .object = &precision,
     .help = "dtypes"},
    {"distill", OT_KEY_OBJECT, offsetof(ot_run_keys, run.distill), .object = &ot_distill_schema,
     .help = "distillation from a teacher", .local = true},
    {"checkpoint", OT_KEY_OBJECT, offsetof(ot_run_keys, run.checkpoint), .object = &checkpoint,
     .help = "checkpoints", .local = true},
    {"audit", OT_KEY_OBJECT, offsetof(ot_run_keys, run.audit), .object = &audit,
     .help = "audits during training"},
    {"evaluate", OT_KEY_OBJECT, offsetof(ot_run_keys, run.evaluate), .object = &evaluate,
     .help = "tasks that tell how good the model is", .local = true},
    {"rl", OT_KEY_OBJECT, offsetof(ot_run_keys, run.rl), .object = &ot_rl_schema,
     .help = "learning from rewards"},
    {"on_spike", OT_KEY_CHOICE, offsetof(ot_run_keys, run.on_spike), "note",
     .choices = spike_actions,
     .help = "outlier of loss or gradient norm: go on, stop, or go back and skip or repeat"},
    {"log", OT_KEY_OBJECT, offsetof(ot_run_keys, run.log), .object = &logging,
     .help = "logs and metrics"},
    {"cluster", OT_KEY_TEXT, offsetof(ot_run_keys, run.cluster), "this-machine",
     .help = "preset or file of the machine, for predictions", .local = true},
    {"seed", OT_KEY_INTEGER, offsetof(ot_run_keys, run.seed), "1", 0, OT_NO_MAXIMUM,
     .help = "seed of weights, data order and dropout"},
    {"device", OT_KEY_CHOICE, offsetof(ot_run_keys, run.device), "auto", .choices = devices,
     .help = "what computes; auto: a GPU if there is one that the run can use"},
    {"threads", OT_KEY_INT, offsetof(ot_run_keys, run.threads), "0", 0, 4096,
     .help = "threads per rank; 0: its share of the cores"},
    {"output", OT_KEY_PATH, offsetof(ot_run_keys, run.output), "null", .null_text = "",
     .help = "run directory; null: runs/NAME for NAME.yaml", .local = true},
};
const ot_schema ot_run_schema = {
    "run", run_keys, OT_COUNT(run_keys), .size = sizeof(ot_run_keys)};
// clang-format on
