// SPDX-License-Identifier: Apache-2.0
// Saves into a new directory in the same parent, synced, then renames once. A rename over an
// existing checkpoint exchanges the two, so that one of them exists at any time.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "files/disk.h"
#include "host/heap.h"

enum { FILL_BYTES = 4 << 20, STEP_DIGITS = 8 };

typedef struct save {
  ot_arena *arena;
  const ot_checkpoint_content *content;
  const char *partial;  // the directory being filled
  bool moved;           // the new directory is at its final path
  void *block;          // [FILL_BYTES] for sources with `fill`
  int num_records;
  ot_content_record *records;  // of the files so far
} save;

char *ot_checkpoint_path(ot_arena *arena, const char *directory, int64_t step) {
  char name[64];
  ot_text_format(name, sizeof name, "%lld", (long long)step);
  char *padded = ot_arena_format(arena, "step-%s", name);
  const int64_t length = ot_text_length(name);
  if (length < STEP_DIGITS)
    padded = ot_arena_format(arena, "step-%.*s%s", (int)(STEP_DIGITS - length), "00000000", name);
  return ot_disk_join(arena, directory, padded);
}

// ---- tensor files ----

static ot_status write_filled(save *s, ot_safetensors_writer *writer, int tensor,
                              const ot_tensor_source *source, int64_t elements) {
  const int64_t part = FILL_BYTES / ot_dtype_bytes(source->dtype);
  for (int64_t first = 0; first < elements; first += part) {
    const int64_t count = elements - first < part ? elements - first : part;
    OT_TRY(source->fill(source->context, first, count, s->block));
    OT_TRY(ot_safetensors_write(writer, (ot_safetensors_range){tensor, first, count}, s->block));
  }
  return OT_OK;
}

static ot_status write_tensors(save *s, const ot_safetensors_layout *layout,
                               const ot_tensor_source *sources, ot_safetensors_writer *writer) {
  for (int i = 0; i < layout->num_files; i++) {
    for (int j = 0; j < layout->files[i].num_tensors; j++) {
      const int tensor = layout->files[i].order[j];
      const ot_tensor_source *const source = &sources[tensor];
      if (source->data != NULL)
        OT_TRY(ot_safetensors_write_tensor(writer, tensor, source->data));
      else
        OT_TRY(write_filled(s, writer, tensor, source, layout->tensors[tensor].elements));
    }
  }
  ot_content_record *records = NULL;
  int num_records = 0;
  OT_TRY(ot_safetensors_writer_finish(writer, s->arena, &records, &num_records));
  memcpy(s->records + s->num_records, records, (size_t)num_records * sizeof *records);
  s->num_records += num_records;
  return OT_OK;
}

static ot_status write_set(save *s, const ot_safetensors_layout *layout,
                           const ot_tensor_source *sources) {
  ot_safetensors_writer *writer = NULL;
  OT_TRY(ot_safetensors_writer_create(s->partial, layout, &writer));
  const ot_status status = write_tensors(s, layout, sources, writer);
  ot_safetensors_writer_destroy(&writer);
  return status;
}

static ot_status lay_out(save *s, const char *stem, const ot_tensor_source *sources, int num,
                         ot_safetensors_layout *layout) {
  ot_safetensors_tensor *const tensors = ot_arena_array(s->arena, num, sizeof *tensors);
  for (int i = 0; i < num; i++) {
    tensors[i] = (ot_safetensors_tensor){.name = sources[i].name,
                                         .type = ot_safetensors_type_of(sources[i].dtype),
                                         .rank = sources[i].rank};
    memcpy(tensors[i].dim, sources[i].dim, sizeof tensors[i].dim);
  }
  const ot_safetensors_request request = {stem, s->content->shard_bytes, num, tensors};
  return ot_safetensors_layout_build(s->arena, &request, layout);
}

// ---- the directory ----

static ot_status write_text(save *s, const char *name, const char *text, int64_t bytes) {
  OT_TRY(ot_disk_write(ot_disk_join(s->arena, s->partial, name), text, bytes));
  ot_content_record *const record = &s->records[s->num_records++];
  *record = (ot_content_record){.name = name, .bytes = bytes};
  ot_content_hash_memory(text, bytes, record->hash);
  return OT_OK;
}

static int64_t layout_bytes(const ot_safetensors_layout *layout) {
  int64_t bytes = layout->index_text != NULL ? ot_text_length(layout->index_text) : 0;
  for (int i = 0; i < layout->num_files; i++) bytes += layout->files[i].file_bytes;
  return bytes;
}

// Checks before writing, because metrics and logs of the run share the disk.
static ot_status check_room(const save *s, int64_t bytes) {
  int64_t free_bytes = 0;
  OT_TRY(ot_disk_free_bytes(s->partial, &free_bytes));
  if (free_bytes >= bytes) return OT_OK;
  ot_fail(OT_ENVIRONMENT, "cannot save: needs %lld bytes, %lld are free (%s)", (long long)bytes,
          (long long)free_bytes, s->partial);
  return ot_fail_hint(OT_ENVIRONMENT,
                      "free space on that file system; older checkpoints are unchanged");
}

static ot_status fill_directory(save *s) {
  const ot_checkpoint_content *const content = s->content;
  ot_safetensors_layout model, optimizer = {0};
  OT_TRY(lay_out(s, "model", content->model, content->num_model, &model));
  if (content->num_optimizer > 0)
    OT_TRY(lay_out(s, "optimizer", content->optimizer, content->num_optimizer, &optimizer));
  OT_TRY(check_room(s, layout_bytes(&model) + layout_bytes(&optimizer)));
  s->records = ot_arena_array(
      s->arena, model.num_files + optimizer.num_files + content->num_texts + 2, sizeof *s->records);
  OT_TRY(write_set(s, &model, content->model));
  if (content->num_optimizer > 0) OT_TRY(write_set(s, &optimizer, content->optimizer));
  for (int i = 0; i < content->num_texts; i++)
    OT_TRY(write_text(s, content->texts[i].name, content->texts[i].text, content->texts[i].bytes));
  if (content->manifest != NULL) {
    ot_manifest manifest = *content->manifest;
    manifest.files = s->records;
    manifest.num_files = s->num_records;
    const char *const text = ot_manifest_print(s->arena, &manifest);
    OT_TRY(ot_disk_write(ot_disk_join(s->arena, s->partial, "manifest.json"), text,
                         ot_text_length(text)));
  }
  return ot_disk_sync_directory(s->partial);
}

static ot_status rename_to(const char *from, const char *to) {
  if (rename(from, to) == 0) return OT_OK;
  return ot_disk_fail("rename into place", to, errno);
}

// Afterwards `path` is the new directory and `partial` is absent or the old one.
static ot_status move_into_place(save *s, const char *path) {
  const bool replaces = ot_disk_is_directory(path);
  const unsigned flags = replaces ? RENAME_EXCHANGE : RENAME_NOREPLACE;
  if (renameat2(AT_FDCWD, s->partial, AT_FDCWD, path, flags) == 0) return OT_OK;
  if (errno != EINVAL && errno != ENOSYS) return ot_disk_fail("rename into place", path, errno);
  // A file system without these flags: first renames the old directory.
  if (!replaces) return rename_to(s->partial, path);
  const char *const aside = ot_arena_format(s->arena, "%s.old", s->partial);
  OT_TRY(ot_disk_remove(aside));
  OT_TRY(rename_to(path, aside));
  OT_TRY(rename_to(s->partial, path));
  return rename_to(aside, s->partial);
}

// Removes the remains of a failed save without replacing the message of its failure.
static void remove_failed(ot_arena *arena, const char *partial) {
  const char *const message = ot_arena_format(arena, "%s", ot_fail_message());
  const char *const hint = ot_arena_format(arena, "%s", ot_fail_hint_text());
  if (ot_disk_remove(partial) == OT_OK) return;
  ot_fail(OT_ENVIRONMENT, "%s", message);
  ot_fail_hint(OT_ENVIRONMENT, "%s", hint);
}

static ot_status save_beside(save *s, const char *path, const char *parent) {
  OT_TRY(ot_disk_remove(s->partial));
  if (mkdir(s->partial, 0777) != 0) return ot_disk_fail("create directory", s->partial, errno);
  OT_TRY(fill_directory(s));
  OT_TRY(move_into_place(s, path));
  s->moved = true;
  return ot_disk_sync_directory(parent);
}

static ot_status save_with_block(save *s, const char *given) {
  int64_t length = ot_text_length(given);
  while (length > 1 && given[length - 1] == '/') length--;
  const char *const path = ot_arena_text(s->arena, given, length);
  const char *const base = ot_disk_base_name(path);
  const int64_t before = base - path;
  const char *const parent =
      before == 0 ? "." : ot_arena_text(s->arena, path, before > 1 ? before - 1 : 1);
  s->partial = ot_disk_join(s->arena, parent, ot_arena_format(s->arena, ".%s.partial", base));
  const ot_status status = save_beside(s, path, parent);
  if (status != OT_OK && !s->moved) remove_failed(s->arena, s->partial);
  // If this fails, the remains are harmless: ot_checkpoint_clean removes them.
  if (status == OT_OK) (void)ot_disk_remove(s->partial);
  return status;
}

ot_status ot_checkpoint_write(const char *path, const ot_checkpoint_content *content) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  save s = {.arena = &arena, .content = content, .block = malloc(FILL_BYTES)};
  ot_status status = ot_fail(OT_ENVIRONMENT, "out of memory for a checkpoint (%s)", path);
  if (s.block != NULL) status = save_with_block(&s, path);
  free(s.block);
  ot_heap_release(&heap);
  return status;
}
