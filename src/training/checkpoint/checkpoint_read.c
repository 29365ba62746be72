// SPDX-License-Identifier: Apache-2.0
// Opens and verifies a checkpoint, and reads it with a record of every element.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/name_list.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors_header.h"
#include "files/disk.h"
#include "host/heap.h"

typedef struct tensor_set {
  ot_safetensors *tensors;            // null: no such set
  int64_t *elements_read;             // [count]; skipped tensors count as read
  const ot_content_record **records;  // [files] of the manifest; null without one
} tensor_set;

// The block that was read last, which neighbouring tensors share.
typedef struct block_cache {
  char *bytes;  // [capacity]
  int64_t capacity;
  int set, file;
  int64_t index, count;  // of the block, and its bytes; 0: none
} block_cache;

struct ot_checkpoint {
  ot_heap heap;
  ot_arena arena;
  const char *path;
  const ot_file_source *source;  // null: this machine
  bool has_manifest;
  ot_manifest manifest;
  tensor_set sets[OT_CHECKPOINT_SETS];
  block_cache block;
  const char *damage;
};

static const char *const stems[OT_CHECKPOINT_SETS] = {
    [OT_CHECKPOINT_MODEL] = "model", [OT_CHECKPOINT_OPTIMIZER] = "optimizer"};

// ---- opening ----

// Where files are looked at, and the memory for what is found.
typedef struct inspector {
  ot_arena *arena;
  const ot_file_source *source;  // null: this machine
} inspector;

// *bytes: size of the file at `path`; negative if it is missing or no file: then *damage is set. A
// link is none: it could name any file of this machine.
static ot_status measure(const inspector *in, const char *path, int64_t *bytes,
                         const char **damage) {
  OT_TRY(ot_file_measure(in->source, path, bytes));
  if (*bytes < 0)
    *damage = ot_arena_format(in->arena, "%s is %s", path,
                              *bytes == OT_FILE_ABSENT ? "missing" : "not a regular file");
  return OT_OK;
}

static bool piece_differs(const ot_content_blocks *a, const ot_content_blocks *b, int64_t i) {
  return a->hash[i] != b->hash[i];
}

// The tensors of the file at `path` in blocks that differ; null: unknown.
static const char *name_tensors(ot_arena *arena, const char *path, const ot_content_blocks *stated,
                                const ot_content_blocks *found) {
  ot_safetensors *set = NULL;
  ot_name_list names = ot_name_list_create(arena);
  if (ot_safetensors_create(path, "", &set) != OT_OK) return NULL;
  for (int i = 0; i < ot_safetensors_count(set); i++) {
    const ot_safetensors_tensor *const tensor = ot_safetensors_tensor_at(set, i);
    bool differs = false;
    for (int64_t at = tensor->offset / found->bytes;
         at * found->bytes < tensor->offset + tensor->bytes && !differs; at++)
      differs = piece_differs(stated, found, at);
    if (differs) ot_name_list_add(&names, tensor->name);
  }
  ot_safetensors_destroy(&set);
  return names.count > 0 ? ot_name_list_text(&names) : NULL;
}

// ": bytes 4096 to 8191, tensors a, b" for [first, end); `names`: null if unknown.
static const char *describe_range(ot_arena *arena, int64_t first, int64_t end, const char *names) {
  return ot_arena_format(arena, ": bytes %lld to %lld%s%s", (long long)first, (long long)(end - 1),
                         names ? ", tensors " : "", names ? names : "");
}

// The range of blocks that differ, if known.
static const char *locate(ot_arena *arena, const char *path, const ot_content_record *stated,
                          const ot_content_record *found) {
  const ot_content_blocks *const a = &stated->pieces, *const b = &found->pieces;
  if (a->bytes != b->bytes) return "";
  int64_t first = 0, last = a->count - 1;
  while (first < a->count && !piece_differs(a, b, first)) first++;
  while (last > first && !piece_differs(a, b, last)) last--;
  if (first == a->count) return "";
  const int64_t end = (last + 1) * a->bytes < found->bytes ? (last + 1) * a->bytes : found->bytes;
  return describe_range(arena, first * a->bytes, end, name_tensors(arena, path, a, b));
}

// How much of a file is compared with its hashes.
typedef enum inspection { INSPECT_SIZE, INSPECT_HEADER, INSPECT_ALL } inspection;

// Block `index` of a file; `set`: the open tensors of which it is file `file`, null: unknown.
static const char *locate_block(ot_arena *arena, const ot_safetensors *set, int file,
                                const ot_content_record *record, int64_t index) {
  const int64_t first = index * record->pieces.bytes, after = first + record->pieces.bytes;
  const int64_t end = after < record->bytes ? after : record->bytes;
  ot_name_list names = ot_name_list_create(arena);
  for (int i = 0; set != NULL && i < ot_safetensors_count(set); i++) {
    const ot_safetensors_tensor *const t = ot_safetensors_tensor_at(set, i);
    if (t->file == file && t->offset < end && t->offset + t->bytes > first)
      ot_name_list_add(&names, t->name);
  }
  return describe_range(arena, first, end, names.count > 0 ? ot_name_list_text(&names) : NULL);
}

static const char *describe_difference(ot_arena *arena, const char *path, const char *where) {
  return ot_arena_format(arena, "the content of %s differs from its manifest%s", path, where);
}

typedef struct opened_file {
  const char *path;
  int descriptor;
} opened_file;

// Compares the blocks of [0, bytes) of a file.
static ot_status inspect_blocks(ot_arena *arena, opened_file file, const ot_content_record *record,
                                int64_t bytes, const char **damage) {
  const ot_content_blocks *const pieces = &record->pieces;
  char *const block = malloc((size_t)pieces->bytes);
  ot_status status = OT_OK;
  OT_CHECK(block != NULL, OT_ENVIRONMENT, "out of memory (%s)", file.path);
  for (int64_t i = 0; i * pieces->bytes < bytes && status == OT_OK && *damage == NULL; i++) {
    const int64_t first = i * pieces->bytes, left = record->bytes - first;
    const int64_t count = left < pieces->bytes ? left : pieces->bytes;
    status = ot_disk_read_at(file.descriptor, file.path, first, block, count);
    if (status == OT_OK && ot_content_hash_block(block, count) != pieces->hash[i])
      *damage = describe_difference(arena, file.path, locate_block(arena, NULL, 0, record, i));
  }
  free(block);
  return status;
}

static ot_status inspect_header(ot_arena *arena, const char *path, const ot_content_record *record,
                                const char **damage) {
  unsigned char start[8];
  opened_file file = {.path = path};
  if (record->pieces.count == 0) return OT_OK;
  OT_TRY(ot_disk_open_own(path, &file.descriptor));
  const int64_t least = record->bytes < (int64_t)sizeof start ? record->bytes : 8;
  ot_status status = ot_disk_read_at(file.descriptor, path, 0, start, least);
  // A length that is damaged is in the first block.
  if (status == OT_OK)
    status = inspect_blocks(arena, file, record, ot_safetensors_header_bytes(start, record->bytes),
                            damage);
  close(file.descriptor);
  return status;
}

static ot_status inspect_file(const inspector *in, const char *path,
                              const ot_content_record *record, inspection verify,
                              const char **damage) {
  ot_arena *const arena = in->arena;
  int64_t bytes = 0;
  OT_TRY(measure(in, path, &bytes, damage));
  if (*damage != NULL) return OT_OK;
  if (bytes != record->bytes) {
    *damage = ot_arena_format(arena, "%s has %lld bytes, its manifest states %lld", path,
                              (long long)bytes, (long long)record->bytes);
    return OT_OK;
  }
  if (verify == INSPECT_SIZE) return OT_OK;
  OT_CHECK(!in->source, OT_ENVIRONMENT,
           "the manifest has no hashes of blocks, so all hosts must see the file (%s)", path);
  if (verify == INSPECT_HEADER) return inspect_header(arena, path, record, damage);
  ot_content_record found;
  OT_TRY(ot_content_record_read(arena, path, &found));
  if (!ot_text_equal(found.hash, record->hash))
    *damage = describe_difference(arena, path, locate(arena, path, record, &found));
  return OT_OK;
}

// The manifest of the checkpoint `directory`, whose name states the step.
static ot_status inspect_manifest(const inspector *in, const char *directory, ot_manifest *manifest,
                                  const char **damage) {
  ot_arena *const arena = in->arena;
  const char *const path = ot_disk_join(arena, directory, "manifest.json");
  const int64_t named = ot_checkpoint_step_of_name(ot_disk_base_name(directory));
  int64_t bytes = 0;
  OT_TRY(measure(in, path, &bytes, damage));
  if (*damage != NULL) return OT_OK;
  if (bytes > OT_MANIFEST_BYTES_MAX) {
    *damage = ot_arena_format(arena, "%s has %lld bytes, allowed are at most %d", path,
                              (long long)bytes, OT_MANIFEST_BYTES_MAX);
    return OT_OK;
  }
  ot_file_text file;
  OT_TRY(ot_file_read(in->source, arena, path, OT_MANIFEST_BYTES_MAX, &file));
  if (ot_manifest_build(arena, path, file.text, file.bytes, manifest) != OT_OK)
    *damage = ot_arena_format(arena, "%s", ot_fail_message());
  else if (named >= 0 && named != manifest->step)
    *damage = ot_arena_format(arena, "%s states step %lld", path, (long long)manifest->step);
  return OT_OK;
}

static inspection inspection_of(const char *name, ot_checkpoint_hashes hashes) {
  if (hashes == OT_CHECKPOINT_HASH_NONE) return INSPECT_SIZE;
  if (!ot_text_ends_with(name, ".safetensors")) return INSPECT_ALL;
  if (hashes == OT_CHECKPOINT_HASH_HEADERS) return INSPECT_HEADER;
  return hashes == OT_CHECKPOINT_HASH_ALL ? INSPECT_ALL : INSPECT_SIZE;
}

static ot_status inspect(const inspector *in, const char *path, ot_checkpoint_hashes hashes,
                         ot_manifest *manifest, const char **damage) {
  *damage = NULL;
  OT_TRY(inspect_manifest(in, path, manifest, damage));
  for (int i = 0; *damage == NULL && i < manifest->num_files; i++) {
    const ot_content_record *const record = &manifest->files[i];
    OT_TRY(inspect_file(in, ot_disk_join(in->arena, path, record->name), record,
                        inspection_of(record->name, hashes), damage));
  }
  return OT_OK;
}

ot_status ot_checkpoint_inspect(ot_arena *arena, const char *path, ot_checkpoint_hashes hashes,
                                ot_manifest *manifest, const char **damage) {
  return inspect(&(inspector){arena, NULL}, path, hashes, manifest, damage);
}

// The sizes of the files, with damage as a failure.
static ot_status check_sizes(ot_checkpoint *checkpoint) {
  const inspector in = {&checkpoint->arena, checkpoint->source};
  const char *damage = NULL;
  OT_TRY(inspect(&in, checkpoint->path, OT_CHECKPOINT_HASH_NONE, &checkpoint->manifest, &damage));
  OT_CHECK(damage == NULL, OT_ENVIRONMENT, "checkpoint is damaged: %s", damage);
  return OT_OK;
}

static bool has_optimizer(ot_arena *arena, const char *path) {
  static const char *const names[] = {"optimizer.safetensors", "optimizer.safetensors.index.json"};
  bool has = false;
  for (int i = 0; i < OT_COUNT(names) && !has; i++)
    has = ot_disk_is_file(ot_disk_join(arena, path, names[i]));
  return has;
}

bool ot_checkpoint_is_native(ot_arena *arena, const char *path) {
  struct stat info;
  if (!ot_disk_is_directory(path)) return false;
  const bool absent = lstat(ot_disk_join(arena, path, "manifest.json"), &info) != 0;
  return !absent || errno != ENOENT || has_optimizer(arena, path);
}

static ot_status find_records(ot_checkpoint *checkpoint, tensor_set *set) {
  ot_arena *const arena = &checkpoint->arena;
  const inspector in = {arena, checkpoint->source};
  const int num_files = ot_safetensors_num_files(set->tensors);
  set->records = ot_arena_array(arena, num_files, sizeof *set->records);
  for (int i = 0; i < num_files; i++) {
    const char *const path = ot_safetensors_file_path(set->tensors, i);
    const ot_content_record *const record =
        ot_manifest_find(&checkpoint->manifest, ot_disk_base_name(path));
    OT_CHECK(record != NULL, OT_ENVIRONMENT,
             "checkpoint is damaged: its manifest does not list this file (%s)", path);
    set->records[i] = record;
    // Old manifests have no blocks to compare while reading.
    if (record->pieces.count > 0) continue;
    OT_TRY(inspect_file(&in, path, record, INSPECT_ALL, &checkpoint->damage));
    OT_CHECK(checkpoint->damage == NULL, OT_ENVIRONMENT, "checkpoint is damaged: %s",
             checkpoint->damage);
  }
  return OT_OK;
}

// The manifest says which files there are: one that it does not list is none of the checkpoint.
static ot_status open_listed(ot_checkpoint *checkpoint, ot_checkpoint_set which, bool *found) {
  ot_arena *const arena = &checkpoint->arena;
  tensor_set *const set = &checkpoint->sets[which];
  const char *const single = ot_arena_format(arena, "%s.safetensors", stems[which]);
  const char *const index = ot_arena_format(arena, "%s" OT_INDEX_ENDING, single);
  const bool has_index = ot_manifest_find(&checkpoint->manifest, index) != NULL;
  *found = has_index || ot_manifest_find(&checkpoint->manifest, single) != NULL;
  if (!*found) return OT_OK;
  OT_TRY(ot_safetensors_create_own(checkpoint->source, checkpoint->path, has_index ? index : single,
                                   &set->tensors));
  return find_records(checkpoint, set);
}

static void count_elements(ot_checkpoint *checkpoint, ot_checkpoint_set which) {
  tensor_set *const set = &checkpoint->sets[which];
  set->elements_read = ot_arena_array(&checkpoint->arena, ot_safetensors_count(set->tensors),
                                      sizeof *set->elements_read);
}

static ot_status open_tensors(ot_checkpoint *checkpoint, ot_checkpoint_set which) {
  OT_TRY(ot_safetensors_create(checkpoint->path, stems[which], &checkpoint->sets[which].tensors));
  count_elements(checkpoint, which);
  return OT_OK;
}

static ot_status open_own(ot_checkpoint *checkpoint) {
  bool has_model, has_optimizer;
  OT_TRY(check_sizes(checkpoint));
  OT_TRY(open_listed(checkpoint, OT_CHECKPOINT_MODEL, &has_model));
  OT_CHECK(has_model, OT_ENVIRONMENT,
           "checkpoint is damaged: its manifest lists no model.safetensors (%s)", checkpoint->path);
  count_elements(checkpoint, OT_CHECKPOINT_MODEL);
  OT_TRY(open_listed(checkpoint, OT_CHECKPOINT_OPTIMIZER, &has_optimizer));
  if (has_optimizer) count_elements(checkpoint, OT_CHECKPOINT_OPTIMIZER);
  return OT_OK;
}

static ot_status open_checkpoint(ot_checkpoint *checkpoint) {
  ot_arena *const arena = &checkpoint->arena;
  const char *const path = checkpoint->path;
  const ot_file_source *const source = checkpoint->source;
  if (!source && !ot_disk_is_directory(path)) return open_tensors(checkpoint, OT_CHECKPOINT_MODEL);
  checkpoint->has_manifest = source || ot_checkpoint_is_native(arena, path);
  if (checkpoint->has_manifest) return open_own(checkpoint);
  return open_tensors(checkpoint, OT_CHECKPOINT_MODEL);
}

ot_status ot_checkpoint_create(const char *path, ot_checkpoint **out) {
  return ot_checkpoint_create_from(NULL, path, out);
}

ot_status ot_checkpoint_create_from(const ot_file_source *source, const char *path,
                                    ot_checkpoint **out) {
  ot_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
  OT_CHECK(checkpoint != NULL, OT_ENVIRONMENT, "out of memory (%s)", path);
  checkpoint->arena = ot_heap_arena_create(&checkpoint->heap);
  checkpoint->path = ot_arena_text(&checkpoint->arena, path, ot_text_length(path));
  checkpoint->source = source;
  const ot_status status = open_checkpoint(checkpoint);
  if (status != OT_OK) ot_checkpoint_destroy(&checkpoint);
  *out = checkpoint;
  return status;
}

void ot_checkpoint_destroy(ot_checkpoint **checkpoint) {
  if (*checkpoint == NULL) return;
  for (int i = 0; i < OT_CHECKPOINT_SETS; i++)
    ot_safetensors_destroy(&(*checkpoint)->sets[i].tensors);
  free((*checkpoint)->block.bytes);
  ot_heap_release(&(*checkpoint)->heap);
  free(*checkpoint);
  *checkpoint = NULL;
}

const char *ot_checkpoint_directory(const ot_checkpoint *checkpoint) { return checkpoint->path; }

const char *ot_checkpoint_damage(const ot_checkpoint *checkpoint) { return checkpoint->damage; }

const ot_manifest *ot_checkpoint_manifest(const ot_checkpoint *checkpoint) {
  return checkpoint->has_manifest ? &checkpoint->manifest : NULL;
}

const char *ot_checkpoint_file(ot_checkpoint *checkpoint, const char *name) {
  struct stat info;
  const char *const path = ot_disk_join(&checkpoint->arena, checkpoint->path, name);
  const bool link = lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
  return ot_disk_is_file(path) && !(link && checkpoint->has_manifest) ? path : NULL;
}

ot_status ot_checkpoint_read_text(ot_checkpoint *checkpoint, ot_arena *arena,
                                  ot_checkpoint_text *text) {
  enum { TEXT_BYTES_MAX = 1 << 30 };
  const char *const path = ot_disk_join(arena, checkpoint->path, text->name);
  ot_file_text file = {0};
  if (checkpoint->has_manifest) {
    if (!ot_file_exists(checkpoint->source, path)) return OT_OK;
    OT_TRY(ot_file_read(checkpoint->source, arena, path, TEXT_BYTES_MAX, &file));
  } else {
    if (!ot_disk_is_file(path)) return OT_OK;
    OT_TRY(ot_disk_read(arena, path, TEXT_BYTES_MAX, &file.text, &file.bytes));
  }
  text->text = file.text;
  text->bytes = file.bytes;
  return OT_OK;
}

const ot_safetensors *ot_checkpoint_tensors(const ot_checkpoint *checkpoint,
                                            ot_checkpoint_set set) {
  return checkpoint->sets[set].tensors;
}

// ---- reading ----

// The place of bytes to read.
typedef struct block_reader {
  ot_checkpoint *checkpoint;
  int set;
} block_reader;

// Reads block `index` of a file, `count` bytes, and compares it with its hash.
static ot_status read_block(const block_reader *r, int file, int64_t index, int64_t count,
                            void *to) {
  ot_checkpoint *const c = r->checkpoint;
  const tensor_set *const set = &c->sets[r->set];
  const ot_content_record *const record = set->records[file];
  OT_TRY(ot_safetensors_read_bytes(set->tensors, file, index * record->pieces.bytes, to, count));
  if (ot_content_hash_block(to, count) == record->pieces.hash[index]) return OT_OK;
  c->damage = describe_difference(&c->arena, ot_safetensors_file_path(set->tensors, file),
                                  locate_block(&c->arena, set->tensors, file, record, index));
  return ot_fail(OT_ENVIRONMENT, "checkpoint is damaged: %s", c->damage);
}

static ot_status keep_block(const block_reader *r, int file, int64_t index, int64_t count) {
  block_cache *const kept = &r->checkpoint->block;
  const bool same =
      kept->count > 0 && kept->set == r->set && kept->file == file && kept->index == index;
  if (same) return OT_OK;
  kept->count = 0;
  if (kept->capacity < count) {
    free(kept->bytes);
    kept->bytes = malloc((size_t)count);
    kept->capacity = kept->bytes != NULL ? count : 0;
    OT_CHECK(kept->bytes != NULL, OT_ENVIRONMENT, "out of memory for a block of %lld bytes (%s)",
             (long long)count, r->checkpoint->path);
  }
  OT_TRY(read_block(r, file, index, count, kept->bytes));
  kept->set = r->set;
  kept->file = file;
  kept->index = index;
  kept->count = count;
  return OT_OK;
}

static ot_status fetch_verified(void *context, int file, int64_t offset, void *to, int64_t bytes) {
  const block_reader *const r = context;
  const ot_content_record *const record = r->checkpoint->sets[r->set].records[file];
  const int64_t piece = record->pieces.bytes;
  for (int64_t done = 0; done < bytes;) {
    const int64_t at = offset + done, index = at / piece, begin = index * piece;
    const int64_t count = record->bytes - begin < piece ? record->bytes - begin : piece;
    const int64_t left = begin + count - at;
    const int64_t part = left < bytes - done ? left : bytes - done;
    if (part == count) {
      OT_TRY(read_block(r, file, index, count, (char *)to + done));
    } else {
      OT_TRY(keep_block(r, file, index, count));
      memcpy((char *)to + done, r->checkpoint->block.bytes + (at - begin), (size_t)part);
    }
    done += part;
  }
  return OT_OK;
}

// Whether reading compares the blocks of a file.
static bool is_hashed(const tensor_set *set, int file) {
  return set->records != NULL && set->records[file]->pieces.count > 0;
}

ot_status ot_checkpoint_fetch(ot_checkpoint *checkpoint, ot_checkpoint_set set,
                              ot_safetensors_range range, ot_dtype dtype, void *out) {
  const tensor_set *const s = &checkpoint->sets[set];
  const int file = ot_safetensors_tensor_at(s->tensors, range.tensor)->file;
  if (!is_hashed(s, file)) return ot_safetensors_read(s->tensors, range, dtype, out);
  block_reader reader = {checkpoint, (int)set};
  const ot_safetensors_bytes source = {fetch_verified, &reader};
  return ot_safetensors_read_from(s->tensors, &source, range, dtype, out);
}

ot_status ot_checkpoint_fetch_bytes(ot_checkpoint *checkpoint, ot_checkpoint_set set,
                                    ot_safetensors_range range, void *out) {
  const tensor_set *const s = &checkpoint->sets[set];
  const ot_safetensors_tensor *const t = ot_safetensors_tensor_at(s->tensors, range.tensor);
  OT_ASSERT(range.first >= 0 && range.count >= 0 && range.count <= t->bytes - range.first);
  const int64_t offset = t->offset + range.first;
  block_reader reader = {checkpoint, (int)set};
  return is_hashed(s, t->file)
             ? fetch_verified(&reader, t->file, offset, out, range.count)
             : ot_safetensors_read_bytes(s->tensors, t->file, offset, out, range.count);
}

ot_status ot_checkpoint_read_range(ot_checkpoint *checkpoint, ot_checkpoint_set set,
                                   ot_safetensors_range range, ot_dtype dtype, void *out) {
  tensor_set *const s = &checkpoint->sets[set];
  OT_TRY(ot_checkpoint_fetch(checkpoint, set, range, dtype, out));
  s->elements_read[range.tensor] += range.count;
  return OT_OK;
}

void ot_checkpoint_skip(ot_checkpoint *checkpoint, ot_checkpoint_set set, int index) {
  tensor_set *const s = &checkpoint->sets[set];
  s->elements_read[index] = ot_safetensors_tensor_at(s->tensors, index)->elements;
}

void ot_checkpoint_skip_elements(ot_checkpoint *checkpoint, ot_checkpoint_set set, int index,
                                 int64_t count) {
  checkpoint->sets[set].elements_read[index] += count;
}

static ot_status account_set(const ot_checkpoint *checkpoint, const tensor_set *set,
                             ot_arena *arena) {
  ot_name_list unread = ot_name_list_create(arena);
  ot_name_list repeated = ot_name_list_create(arena);
  for (int i = 0; i < ot_safetensors_count(set->tensors); i++) {
    const ot_safetensors_tensor *const tensor = ot_safetensors_tensor_at(set->tensors, i);
    if (set->elements_read[i] < tensor->elements) ot_name_list_add(&unread, tensor->name);
    if (set->elements_read[i] > tensor->elements) ot_name_list_add(&repeated, tensor->name);
  }
  OT_CHECK(unread.count == 0, OT_ENVIRONMENT, "%d tensor%s not read completely: %s (%s)",
           unread.count, ot_text_plural(unread.count, "s"), ot_name_list_text(&unread),
           checkpoint->path);
  OT_CHECK(repeated.count == 0, OT_ENVIRONMENT, "%d tensor%s read more than once: %s (%s)",
           repeated.count, ot_text_plural(repeated.count, "s"), ot_name_list_text(&repeated),
           checkpoint->path);
  return OT_OK;
}

ot_status ot_checkpoint_check_complete(const ot_checkpoint *checkpoint, ot_checkpoint_set set) {
  if (checkpoint->sets[set].tensors == NULL) return OT_OK;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = account_set(checkpoint, &checkpoint->sets[set], &arena);
  ot_heap_release(&heap);
  return status;
}
