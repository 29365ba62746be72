// SPDX-License-Identifier: Apache-2.0
// Checkpoints: a directory of tensor files (HF names), config.json, tokenizer.json and
// manifest.json, either complete or absent. It is written as `.NAME.partial` in the same parent
// directory, every file synced, then renamed. An HF export is the same without optimizer and
// manifest, so both are read here.
//
//   .step-00000100.partial/  --rename-->  step-00000100/  --rename-->  .step-00000100.deleting/
//
// Independent of the executor: tensors are given as sources and read into memory of the caller.
#pragma once

#include "checkpoint/checkpoint_name.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors_writer.h"

// ---- writing ----

// One tensor to save.
typedef struct ot_tensor_source {
  const char *name;  // in the file
  ot_dtype dtype;    // in the file
  int rank;
  int64_t dim[OT_SAFETENSORS_DIMS];
  const void *data;  // [elements] of dtype, or null: use `fill`
  // Writes elements [first, first + count) of dtype to `out`. Called in ascending order of `first`.
  ot_status (*fill)(void *context, int64_t first, int64_t count, void *out);
  void *context;
} ot_tensor_source;

// A small file to save unchanged: config.json, tokenizer.json, gemm.table, ...
typedef struct ot_checkpoint_text {
  const char *name;
  const char *text;  // [bytes]
  int64_t bytes;
} ot_checkpoint_text;

typedef struct ot_checkpoint_content {
  int num_model;
  const ot_tensor_source *model;  // [num_model] -> model*.safetensors
  int num_optimizer;
  const ot_tensor_source *optimizer;  // [num_optimizer] -> optimizer*.safetensors, none when 0
  int num_texts;
  const ot_checkpoint_text *texts;  // [num_texts]
  const ot_manifest *manifest;      // `files` is filled in here; null: an HF export
  int64_t shard_bytes;              // maximum size of a tensor file; 0 = one file per set
} ot_checkpoint_content;

// Saves `content` as directory `path`, whose parent must exist. Replaces an existing one as a
// whole. After a failure nothing has changed and the space is freed. Blocks.
ot_status ot_checkpoint_write(const char *path, const ot_checkpoint_content *content);

// The same in steps, so that many processes can write parts of one checkpoint: all plan; one
// creates the files; all write tensors (safetensors_writer.h); one commits, or abandons after a
// failure anywhere. What a step needs done before it must be done on all processes.

typedef enum ot_checkpoint_set {
  OT_CHECKPOINT_MODEL,
  OT_CHECKPOINT_OPTIMIZER,
  OT_CHECKPOINT_SETS,
} ot_checkpoint_set;

// Where a checkpoint is written and its tensor files: a function of the path and of the names,
// types and shapes of the content.
typedef struct ot_checkpoint_plan {
  const char *path, *partial, *parent;  // at the end, until then, the directory of both
  ot_safetensors_layout layout[OT_CHECKPOINT_SETS];
  int num_files;  // of both sets
  int64_t bytes;  // of tensor files
} ot_checkpoint_plan;

ot_status ot_checkpoint_plan_build(ot_arena *arena, const char *path,
                                   const ot_checkpoint_content *content, ot_checkpoint_plan *plan);

// Creates the directory and the tensor files, after removing what an interrupted save left.
// OT_ENVIRONMENT if the file system lacks space for all of it.
ot_status ot_checkpoint_begin(const ot_checkpoint_plan *plan);

// Writes the texts and the manifest, syncs the directory and makes it the checkpoint. `records`
// [num_files] are those of the synced tensor files, set by set. *committed tells whether the
// checkpoint is in place: it may be after a failure.
ot_status ot_checkpoint_commit(const ot_checkpoint_plan *plan, const ot_checkpoint_content *content,
                               const ot_content_record *records, bool *committed);

// Removes what was written. Keeps this thread's failure message.
void ot_checkpoint_abandon(const ot_checkpoint_plan *plan);

// ---- reading ----

// The checks against the manifest: the sizes of all files, and the hashes of some.
typedef enum ot_checkpoint_hashes {
  OT_CHECKPOINT_HASH_NONE,
  OT_CHECKPOINT_HASH_HEADERS,  // texts, and headers of tensor files: reading compares the tensors
  OT_CHECKPOINT_HASH_TEXTS,    // files without tensors
  OT_CHECKPOINT_HASH_ALL,
} ot_checkpoint_hashes;

// Reads the manifest of the checkpoint at `path` and checks its files. *damage describes the first
// damaged file; null: none. Fails only if the system cannot read a file (permissions, I/O errors):
// that is not damage.
ot_status ot_checkpoint_inspect(ot_arena *arena, const char *path, ot_checkpoint_hashes hashes,
                                ot_manifest *manifest, const char **damage);

// True for a directory with a manifest.json or optimizer tensors. An HF directory has neither.
bool ot_checkpoint_is_native(ot_arena *arena, const char *path);

typedef struct ot_checkpoint ot_checkpoint;

// Opens a checkpoint, an HF directory or a single tensor file. With a manifest, checks sizes;
// tensors are then read by whole blocks of the manifest, each of which is compared with its hash.
ot_status ot_checkpoint_create(const char *path, ot_checkpoint **out);
// The same for a checkpoint with a manifest, whose files are those of `source`, kept until destroy;
// null: of this machine.
ot_status ot_checkpoint_create_from(const ot_file_source *source, const char *path,
                                    ot_checkpoint **out);
void ot_checkpoint_destroy(ot_checkpoint **checkpoint);

// The path passed to create. Valid until destroy.
const char *ot_checkpoint_directory(const ot_checkpoint *checkpoint);

// The damage that a read has found ("the content of FILE differs ..."); null: none. Valid until
// destroy.
const char *ot_checkpoint_damage(const ot_checkpoint *checkpoint);

// Null for an HF directory or file. Valid until destroy.
const ot_manifest *ot_checkpoint_manifest(const ot_checkpoint *checkpoint);

// The path of file `name` in it on this machine, or null if there is none. Valid until destroy.
const char *ot_checkpoint_file(ot_checkpoint *checkpoint, const char *name);

// Reads file text->name of it, if there is one. A link in a checkpoint is no file; one in an HF
// directory is followed.
ot_status ot_checkpoint_read_text(ot_checkpoint *checkpoint, ot_arena *arena,
                                  ot_checkpoint_text *text);

// The tensors of a set, or null if there is none (an HF directory has no optimizer).
const ot_safetensors *ot_checkpoint_tensors(const ot_checkpoint *checkpoint, ot_checkpoint_set set);

// Reads a range of a tensor, converted. OT_ENVIRONMENT, naming file, bytes and tensors, if a block
// differs from the manifest.
ot_status ot_checkpoint_fetch(ot_checkpoint *checkpoint, ot_checkpoint_set set,
                              ot_safetensors_range range, ot_dtype dtype, void *out);

// The same as in the file: `range` counts bytes of its tensor.
ot_status ot_checkpoint_fetch_bytes(ot_checkpoint *checkpoint, ot_checkpoint_set set,
                                    ot_safetensors_range range, void *out);

// As ot_checkpoint_fetch, and records the range as read.
ot_status ot_checkpoint_read_range(ot_checkpoint *checkpoint, ot_checkpoint_set set,
                                   ot_safetensors_range range, ot_dtype dtype, void *out);

// Records tensor `index` as handled although it is not loaded (a buffer that the model does not
// use).
void ot_checkpoint_skip_elements(ot_checkpoint *checkpoint, ot_checkpoint_set set, int index,
                                 int64_t count);
void ot_checkpoint_skip(ot_checkpoint *checkpoint, ot_checkpoint_set set, int index);

// Fails, naming the tensors, unless every element of `set` was read exactly once or skipped.
ot_status ot_checkpoint_check_complete(const ot_checkpoint *checkpoint, ot_checkpoint_set set);
