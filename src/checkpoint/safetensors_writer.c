// SPDX-License-Identifier: Apache-2.0
// Slices to files. Each file counts its elements and hashes those written in order.
#include "checkpoint/safetensors_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"
#include "files/disk.h"
#include "host/heap.h"

typedef struct output_file {
  const char *path;
  int descriptor;  // -1 when closed
  ot_content_hash *hash;
  int64_t hashed;  // leading bytes of the file covered by `hash`
} output_file;

struct ot_safetensors_writer {
  ot_heap heap;
  ot_arena arena;
  const ot_safetensors_layout *layout;
  const char *directory;
  output_file *files;  // [layout->num_files]
  int64_t *written;    // [layout->num_tensors] elements
};

static ot_status write_bytes(output_file *file, int64_t offset, const void *data, int64_t bytes) {
  OT_TRY(ot_disk_write_at(file->descriptor, file->path, offset, data, bytes));
  if (offset != file->hashed) return OT_OK;
  ot_content_hash_update(file->hash, data, bytes);
  file->hashed += bytes;
  return OT_OK;
}

static ot_status create_file(output_file *file, const ot_safetensors_layout_file *layout) {
  OT_TRY(ot_content_hash_create_blocks(layout->file_bytes, &file->hash));
  file->descriptor = open(file->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file->descriptor < 0) return ot_disk_fail("create", file->path, errno);
  return write_bytes(file, 0, layout->header, layout->header_bytes);
}

static ot_status create_files(ot_safetensors_writer *writer) {
  const ot_safetensors_layout *const layout = writer->layout;
  for (int i = 0; i < layout->num_files; i++) {
    writer->files[i].path = ot_disk_join(&writer->arena, writer->directory, layout->files[i].name);
    OT_TRY(create_file(&writer->files[i], &layout->files[i]));
  }
  return OT_OK;
}

ot_status ot_safetensors_writer_create(const char *directory, const ot_safetensors_layout *layout,
                                       ot_safetensors_writer **out) {
  ot_safetensors_writer *writer = calloc(1, sizeof *writer);
  OT_CHECK(writer != NULL, OT_ENVIRONMENT, "out of memory (%s)", directory);
  writer->arena = ot_heap_arena_create(&writer->heap);
  ot_arena *const arena = &writer->arena;
  writer->layout = layout;
  writer->directory = ot_arena_text(arena, directory, ot_text_length(directory));
  writer->files = ot_arena_array(arena, layout->num_files, sizeof *writer->files);
  writer->written = ot_arena_array(arena, layout->num_tensors, sizeof *writer->written);
  for (int i = 0; i < layout->num_files; i++) writer->files[i].descriptor = -1;
  const ot_status status = create_files(writer);
  if (status != OT_OK) ot_safetensors_writer_destroy(&writer);
  *out = writer;
  return status;
}

ot_status ot_safetensors_write(ot_safetensors_writer *writer, ot_safetensors_range range,
                               const void *data) {
  const ot_safetensors_tensor *const tensor = &writer->layout->tensors[range.tensor];
  OT_ASSERT(range.first >= 0 && range.count >= 0 && range.count <= tensor->elements - range.first);
  const int64_t element_bytes = ot_safetensors_type_bits(tensor->type) / 8;
  writer->written[range.tensor] += range.count;
  return write_bytes(&writer->files[tensor->file], tensor->offset + range.first * element_bytes,
                     data, range.count * element_bytes);
}

ot_status ot_safetensors_write_tensor(ot_safetensors_writer *writer, int tensor, const void *data) {
  const int64_t elements = writer->layout->tensors[tensor].elements;
  return ot_safetensors_write(writer, (ot_safetensors_range){tensor, 0, elements}, data);
}

static ot_status check_complete(const ot_safetensors_writer *writer) {
  for (int i = 0; i < writer->layout->num_tensors; i++) {
    const ot_safetensors_tensor *const tensor = &writer->layout->tensors[i];
    OT_CHECK(writer->written[i] == tensor->elements, OT_BUG,
             "%s: tensor %s: %lld of %lld elements were written", writer->files[tensor->file].path,
             tensor->name, (long long)writer->written[i], (long long)tensor->elements);
  }
  return OT_OK;
}

static ot_status finish_file(ot_arena *arena, output_file *file,
                             const ot_safetensors_layout_file *layout, ot_content_record *record) {
  OT_TRY(ot_content_hash_range(file->hash, file->descriptor, file->path, file->hashed,
                               layout->file_bytes - file->hashed));
  *record = (ot_content_record){.name = layout->name, .bytes = layout->file_bytes};
  ot_content_hash_print(file->hash, record->hash);
  record->pieces = ot_content_hash_blocks(file->hash, arena);
  const int descriptor = file->descriptor;
  file->descriptor = -1;
  return ot_disk_sync_close(descriptor, file->path);
}

ot_status ot_safetensors_writer_finish(ot_safetensors_writer *writer, ot_arena *arena,
                                       ot_content_record **records, int *num_records) {
  const ot_safetensors_layout *const layout = writer->layout;
  OT_TRY(check_complete(writer));
  *records = ot_arena_array(arena, layout->num_files + 1, sizeof **records);
  for (int i = 0; i < layout->num_files; i++)
    OT_TRY(finish_file(arena, &writer->files[i], &layout->files[i], &(*records)[i]));
  *num_records = layout->num_files;
  if (layout->index_name == NULL) return OT_OK;
  const int64_t bytes = ot_text_length(layout->index_text);
  OT_TRY(ot_disk_write(ot_disk_join(arena, writer->directory, layout->index_name),
                       layout->index_text, bytes));
  ot_content_record *const record = &(*records)[(*num_records)++];
  *record = (ot_content_record){.name = layout->index_name, .bytes = bytes};
  ot_content_hash_memory(layout->index_text, bytes, record->hash);
  return OT_OK;
}

void ot_safetensors_writer_destroy(ot_safetensors_writer **writer) {
  if (*writer == NULL) return;
  for (int i = 0; i < (*writer)->layout->num_files; i++) {
    output_file *const file = &(*writer)->files[i];
    if (file->descriptor >= 0) close(file->descriptor);
    ot_content_hash_destroy(&file->hash);
  }
  ot_heap_release(&(*writer)->heap);
  free(*writer);
  *writer = NULL;
}
