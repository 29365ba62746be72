// SPDX-License-Identifier: Apache-2.0
// Saves into a new directory in the same parent, synced, then renames once. A rename over an
// existing checkpoint exchanges the two, so that one of them exists at any time.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/failure.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "files/disk.h"
#include "host/heap.h"

enum { FILL_BYTES = 4 << 20 };

// ---- the plan ----

typedef struct source_list {
  const char *stem;
  int count;
  const ot_tensor_source *sources;  // [count]
} source_list;

static source_list list_of(const ot_checkpoint_content *content, ot_checkpoint_set set) {
  if (set == OT_CHECKPOINT_MODEL) return (source_list){"model", content->num_model, content->model};
  return (source_list){"optimizer", content->num_optimizer, content->optimizer};
}

static ot_status lay_out(ot_arena *arena, const source_list *list, int64_t shard_bytes,
                         ot_safetensors_layout *layout) {
  ot_safetensors_tensor *const tensors = ot_arena_array(arena, list->count, sizeof *tensors);
  for (int i = 0; i < list->count; i++) {
    const ot_tensor_source *const source = &list->sources[i];
    tensors[i] = (ot_safetensors_tensor){
        .name = source->name, .type = ot_safetensors_type_of(source->dtype), .rank = source->rank};
    memcpy(tensors[i].dim, source->dim, sizeof tensors[i].dim);
  }
  const ot_safetensors_request request = {list->stem, shard_bytes, list->count, tensors};
  return ot_safetensors_layout_build(arena, &request, layout);
}

// The path without slashes at its end, its parent, and the directory to fill beside it.
static void name_places(ot_arena *arena, const char *given, ot_checkpoint_plan *plan) {
  int64_t length = ot_text_length(given);
  while (length > 1 && given[length - 1] == '/') length--;
  plan->path = ot_arena_text(arena, given, length);
  const char *const base = ot_disk_base_name(plan->path);
  const int64_t before = base - plan->path;
  plan->parent = before == 0 ? "." : ot_arena_text(arena, plan->path, before > 1 ? before - 1 : 1);
  plan->partial = ot_disk_join(arena, plan->parent, ot_arena_format(arena, ".%s.partial", base));
}

ot_status ot_checkpoint_plan_build(ot_arena *arena, const char *path,
                                   const ot_checkpoint_content *content, ot_checkpoint_plan *plan) {
  *plan = (ot_checkpoint_plan){0};
  name_places(arena, path, plan);
  for (int set = 0; set < OT_CHECKPOINT_SETS; set++) {
    const source_list list = list_of(content, (ot_checkpoint_set)set);
    ot_safetensors_layout *const layout = &plan->layout[set];
    if (list.count == 0 && set != OT_CHECKPOINT_MODEL) continue;
    OT_TRY(lay_out(arena, &list, content->shard_bytes, layout));
    plan->num_files += layout->num_files;
    for (int i = 0; i < layout->num_files; i++) plan->bytes += layout->files[i].file_bytes;
  }
  return OT_OK;
}

// ---- beginning ----

// Checks before writing, because metrics and logs of the run share the disk.
static ot_status check_room(const ot_checkpoint_plan *plan) {
  int64_t free_bytes = 0;
  OT_TRY(ot_disk_free_bytes(plan->partial, &free_bytes));
  if (free_bytes >= plan->bytes) return OT_OK;
  ot_fail(OT_ENVIRONMENT, "cannot save: needs %lld bytes, %lld are free (%s)",
          (long long)plan->bytes, (long long)free_bytes, plan->partial);
  return ot_fail_hint(OT_ENVIRONMENT,
                      "free space on that file system; older checkpoints are unchanged");
}

ot_status ot_checkpoint_begin(const ot_checkpoint_plan *plan) {
  OT_TRY(ot_disk_remove(plan->partial));
  OT_TRY(ot_disk_create_directory(plan->partial));
  OT_TRY(check_room(plan));
  for (int set = 0; set < OT_CHECKPOINT_SETS; set++)
    OT_TRY(ot_safetensors_files_create(plan->partial, &plan->layout[set]));
  return OT_OK;
}

// ---- committing ----

typedef struct commit {
  ot_arena *arena;
  const ot_checkpoint_plan *plan;
  int num_records;
  ot_content_record *records;  // of all files so far
} commit;

static ot_status write_text(commit *c, const char *name, const char *text, int64_t bytes) {
  OT_TRY(ot_disk_write(ot_disk_join(c->arena, c->plan->partial, name), text, bytes));
  ot_content_record *const record = &c->records[c->num_records++];
  *record = (ot_content_record){.name = name, .bytes = bytes};
  ot_content_hash_memory(text, bytes, record->hash);
  return OT_OK;
}

static ot_status write_texts(commit *c, const ot_checkpoint_content *content,
                             const ot_content_record *records) {
  const ot_checkpoint_plan *const plan = c->plan;
  c->records = ot_arena_array(c->arena, plan->num_files + OT_CHECKPOINT_SETS + content->num_texts,
                              sizeof *c->records);
  if (plan->num_files > 0) memcpy(c->records, records, (size_t)plan->num_files * sizeof *records);
  c->num_records = plan->num_files;
  for (int set = 0; set < OT_CHECKPOINT_SETS; set++) {
    const ot_safetensors_layout *const layout = &plan->layout[set];
    if (layout->index_name == NULL) continue;
    OT_TRY(
        write_text(c, layout->index_name, layout->index_text, ot_text_length(layout->index_text)));
  }
  for (int i = 0; i < content->num_texts; i++) {
    const ot_checkpoint_text *const text = &content->texts[i];
    OT_TRY(write_text(c, text->name, text->text, text->bytes));
  }
  return OT_OK;
}

static ot_status write_manifest(const commit *c, const ot_manifest *given) {
  if (given == NULL) return OT_OK;
  ot_manifest manifest = *given;
  manifest.files = c->records;
  manifest.num_files = c->num_records;
  const char *const text = ot_manifest_print(c->arena, &manifest);
  return ot_disk_write(ot_disk_join(c->arena, c->plan->partial, "manifest.json"), text,
                       ot_text_length(text));
}

static int rename_with(const ot_checkpoint_plan *plan, unsigned flags) {
  int result;
  do {
    result = renameat2(AT_FDCWD, plan->partial, AT_FDCWD, plan->path, flags);
  } while (result != 0 && errno == EINTR);
  return result;
}

// Afterwards `path` is the new directory and `partial` is absent or the old one.
static ot_status move_into_place(ot_arena *arena, const ot_checkpoint_plan *plan) {
  const bool replaces = ot_disk_is_directory(plan->path);
  if (rename_with(plan, replaces ? RENAME_EXCHANGE : RENAME_NOREPLACE) == 0) return OT_OK;
  if (errno != EINVAL && errno != ENOSYS)
    return ot_disk_fail("rename into place", plan->path, errno);
  // A file system without these flags: first renames the old directory.
  if (!replaces) return ot_disk_rename(plan->partial, plan->path);
  const char *const aside = ot_arena_format(arena, "%s.old", plan->partial);
  OT_TRY(ot_disk_remove(aside));
  OT_TRY(ot_disk_rename(plan->path, aside));
  OT_TRY(ot_disk_rename(plan->partial, plan->path));
  return ot_disk_rename(aside, plan->partial);
}

static ot_status commit_in(commit *c, const ot_checkpoint_content *content,
                           const ot_content_record *records, bool *committed) {
  const ot_checkpoint_plan *const plan = c->plan;
  OT_TRY(write_texts(c, content, records));
  OT_TRY(write_manifest(c, content->manifest));
  OT_TRY(ot_disk_sync_directory(plan->partial));
  OT_TRY(move_into_place(c->arena, plan));
  *committed = true;
  OT_TRY(ot_disk_sync_directory(plan->parent));
  // Removes the replaced files. If this fails, the remains are harmless: ot_checkpoint_clean
  // removes them.
  (void)ot_disk_remove(plan->partial);
  return OT_OK;
}

ot_status ot_checkpoint_commit(const ot_checkpoint_plan *plan, const ot_checkpoint_content *content,
                               const ot_content_record *records, bool *committed) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  commit c = {.arena = &arena, .plan = plan};
  *committed = false;
  const ot_status status = commit_in(&c, content, records, committed);
  ot_heap_release(&heap);
  return status;
}

void ot_checkpoint_abandon(const ot_checkpoint_plan *plan) {
  ot_failure failure = {.status = OT_OK};
  ot_failure_take(&failure, OT_ENVIRONMENT);
  (void)ot_disk_remove(plan->partial);
  (void)ot_failure_repeat(&failure);
}

// ---- one process ----

typedef struct save {
  ot_arena *arena;
  const ot_checkpoint_content *content;
  ot_checkpoint_plan plan;
  void *block;  // [FILL_BYTES] for sources with `fill`
  int num_records;
  ot_content_record *records;  // of the tensor files so far
} save;

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
    OT_TRY(ot_safetensors_write_header(writer, i));
    for (int j = 0; j < layout->files[i].num_tensors; j++) {
      const int tensor = layout->files[i].order[j];
      const ot_tensor_source *const source = &sources[tensor];
      if (source->data != NULL)
        OT_TRY(ot_safetensors_write_tensor(writer, tensor, source->data));
      else
        OT_TRY(write_filled(s, writer, tensor, source, layout->tensors[tensor].elements));
    }
  }
  OT_TRY(ot_safetensors_writer_finish(writer, s->arena, &s->records[s->num_records]));
  s->num_records += layout->num_files;
  return OT_OK;
}

static ot_status write_set(save *s, ot_checkpoint_set set) {
  ot_safetensors_writer *writer = NULL;
  OT_TRY(ot_safetensors_writer_create(s->plan.partial, &s->plan.layout[set], &writer));
  const ot_status status =
      write_tensors(s, &s->plan.layout[set], list_of(s->content, set).sources, writer);
  ot_safetensors_writer_destroy(&writer);
  return status;
}

static ot_status write_all(save *s, bool *committed) {
  OT_TRY(ot_checkpoint_begin(&s->plan));
  s->records = ot_arena_array(s->arena, s->plan.num_files, sizeof *s->records);
  for (int set = 0; set < OT_CHECKPOINT_SETS; set++) OT_TRY(write_set(s, (ot_checkpoint_set)set));
  return ot_checkpoint_commit(&s->plan, s->content, s->records, committed);
}

static ot_status save_with_block(save *s, const char *path) {
  bool committed = false;
  OT_TRY(ot_checkpoint_plan_build(s->arena, path, s->content, &s->plan));
  const ot_status status = write_all(s, &committed);
  if (status != OT_OK && !committed) ot_checkpoint_abandon(&s->plan);
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
