// SPDX-License-Identifier: Apache-2.0
// Slices to files. Each file counts its elements and hashes those written in order. Few files are
// open at a time: the first opened is synced and closed when another one is needed, while the bytes
// of the others go to the disk.
#include "checkpoint/safetensors_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"
#include "files/disk.h"
#include "host/heap.h"

enum { OPEN_MAX = 4, FLUSH_BYTES = 8 << 20 };

typedef struct output_file {
  const char *path;
  int descriptor;         // -1: closed
  ot_content_hash *hash;  // of the leading bytes; null: none passed yet, or some did out of order
  int64_t hashed;         // bytes in `hash`; -1: none will be
  int64_t first, end;     // bytes not yet passed on to the disk are in this range
  int64_t waiting;        // and so many
} output_file;

struct ot_safetensors_writer {
  ot_heap heap;
  ot_arena arena;
  const ot_safetensors_layout *layout;
  const char *directory;
  ot_safetensors_sink sink;  // put: null: files are written
  output_file *files;        // [layout->num_files]
  int64_t *written;          // [layout->num_tensors] elements
  int num_open;
  int open[OPEN_MAX];  // [num_open] files, in the order of opening
};

// ---- creating the files ----

// Reserves the space, or, where that is not possible, only sets the size.
static ot_status set_size(int file, const char *path, int64_t bytes) {
  int result;
  do {
    result = fallocate(file, 0, 0, bytes);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return OT_OK;
  if (errno != EOPNOTSUPP && errno != ENOSYS) return ot_disk_fail("reserve space", path, errno);
  do {
    result = ftruncate(file, bytes);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? OT_OK : ot_disk_fail("set the size", path, errno);
}

ot_status ot_safetensors_files_create(const char *directory, const ot_safetensors_layout *layout) {
  char path[OT_PATH_BYTES];
  for (int i = 0; i < layout->num_files; i++) {
    ot_text_format(path, sizeof path, "%s/%s", directory, layout->files[i].name);
    const int file = ot_disk_open_file(path, O_WRONLY | O_CREAT | O_EXCL);
    if (file < 0) return ot_disk_fail("create", path, errno);
    const ot_status status = set_size(file, path, layout->files[i].file_bytes);
    const ot_status closed = ot_disk_close(file, path);
    OT_TRY(status != OT_OK ? status : closed);
  }
  return OT_OK;
}

// ---- writing ----

static ot_status sync_file(output_file *file) {
  const int descriptor = file->descriptor;
  file->descriptor = -1;
  return ot_disk_sync_close(descriptor, file->path);
}

static ot_status open_file(ot_safetensors_writer *writer, int index) {
  output_file *const file = &writer->files[index];
  if (writer->num_open == OPEN_MAX) {
    const int oldest = writer->open[0];
    writer->num_open--;
    for (int i = 0; i < writer->num_open; i++) writer->open[i] = writer->open[i + 1];
    OT_TRY(sync_file(&writer->files[oldest]));
  }
  int tries = 0;
  do {
    file->descriptor = ot_disk_open_file(file->path, O_WRONLY);
  } while (file->descriptor < 0 && (errno == ENOENT || errno == ESTALE) &&
           ot_disk_wait_late(file->path, &tries));
  if (file->descriptor < 0) return ot_disk_fail("open", file->path, errno);
  writer->open[writer->num_open++] = index;
  return OT_OK;
}

// The disk works while further bytes are made, and the final sync is short.
static void pass_on(output_file *file, int64_t offset, int64_t bytes) {
  if (file->waiting == 0 || offset < file->first) file->first = offset;
  if (file->waiting == 0 || offset + bytes > file->end) file->end = offset + bytes;
  file->waiting += bytes;
  if (file->waiting < FLUSH_BYTES) return;
  // A file system without this syncs at the end.
  (void)sync_file_range(file->descriptor, file->first, file->end - file->first,
                        SYNC_FILE_RANGE_WRITE);
  file->waiting = 0;
}

// A file is hashed from its header on, whoever writes that.
static ot_status hash_bytes(const ot_safetensors_layout_file *layout, output_file *file,
                            int64_t offset, const void *data, int64_t bytes) {
  if (file->hashed == 0 && (offset == 0 || offset == layout->header_bytes)) {
    OT_TRY(ot_content_hash_create_blocks(layout->file_bytes, &file->hash));
    ot_content_hash_update(file->hash, layout->header, layout->header_bytes);
    file->hashed = layout->header_bytes;
  }
  if (offset == 0) return OT_OK;
  if (offset == file->hashed) {
    ot_content_hash_update(file->hash, data, bytes);
    file->hashed += bytes;
  } else {
    ot_content_hash_destroy(&file->hash);
    file->hashed = -1;
  }
  return OT_OK;
}

static ot_status write_bytes(ot_safetensors_writer *writer, int index, int64_t offset,
                             const void *data, int64_t bytes) {
  output_file *const file = &writer->files[index];
  if (bytes == 0) return OT_OK;
  if (writer->sink.put != NULL)
    return writer->sink.put(writer->sink.context, index, offset, data, bytes);
  if (file->descriptor < 0) OT_TRY(open_file(writer, index));
  OT_TRY(ot_disk_write_at(file->descriptor, file->path, offset, data, bytes));
  pass_on(file, offset, bytes);
  return file->hashed < 0 ? OT_OK
                          : hash_bytes(&writer->layout->files[index], file, offset, data, bytes);
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
  for (int i = 0; i < layout->num_files; i++)
    writer->files[i] = (output_file){
        .path = ot_disk_join(arena, writer->directory, layout->files[i].name), .descriptor = -1};
  *out = writer;
  return OT_OK;
}

ot_status ot_safetensors_write_header(ot_safetensors_writer *writer, int file) {
  const ot_safetensors_layout_file *const layout = &writer->layout->files[file];
  return write_bytes(writer, file, 0, layout->header, layout->header_bytes);
}

ot_status ot_safetensors_write(ot_safetensors_writer *writer, ot_safetensors_range range,
                               const void *data) {
  const ot_safetensors_tensor *const tensor = &writer->layout->tensors[range.tensor];
  OT_ASSERT(range.first >= 0 && range.count >= 0 && range.count <= tensor->elements - range.first);
  const int64_t element_bytes = ot_safetensors_type_bits(tensor->type) / 8;
  writer->written[range.tensor] += range.count;
  return write_bytes(writer, tensor->file, tensor->offset + range.first * element_bytes, data,
                     range.count * element_bytes);
}

ot_status ot_safetensors_write_tensor(ot_safetensors_writer *writer, int tensor, const void *data) {
  const int64_t elements = writer->layout->tensors[tensor].elements;
  return ot_safetensors_write(writer, (ot_safetensors_range){tensor, 0, elements}, data);
}

void ot_safetensors_writer_redirect(ot_safetensors_writer *writer, ot_safetensors_sink sink) {
  writer->sink = sink;
}

ot_status ot_safetensors_put(ot_safetensors_writer *writer, int file, int64_t offset,
                             const void *data, int64_t bytes) {
  const ot_safetensors_layout *const layout = writer->layout;
  OT_CHECK(file >= 0 && file < layout->num_files && offset >= 0 && bytes >= 0 &&
               offset <= layout->files[file].file_bytes - bytes,
           OT_BUG, "%lld bytes at byte %lld of file %d of %d are not in it", (long long)bytes,
           (long long)offset, file, layout->num_files);
  return write_bytes(writer, file, offset, data, bytes);
}

ot_status ot_safetensors_writer_sync(ot_safetensors_writer *writer) {
  while (writer->num_open > 0) OT_TRY(sync_file(&writer->files[writer->open[--writer->num_open]]));
  return OT_OK;
}

// ---- results ----

const int64_t *ot_safetensors_written(const ot_safetensors_writer *writer) {
  return writer->written;
}

ot_status ot_safetensors_check_written(const ot_safetensors_layout *layout,
                                       const int64_t *written) {
  for (int i = 0; i < layout->num_tensors; i++) {
    const ot_safetensors_tensor *const tensor = &layout->tensors[i];
    OT_CHECK(written[i] == tensor->elements, OT_BUG,
             "%s: tensor %s: %lld of %lld elements were written", layout->files[tensor->file].name,
             tensor->name, (long long)written[i], (long long)tensor->elements);
  }
  return OT_OK;
}

bool ot_safetensors_is_hashed(const ot_safetensors_writer *writer, int file) {
  return writer->files[file].hashed == writer->layout->files[file].file_bytes;
}

ot_status ot_safetensors_record(const ot_safetensors_writer *writer, int file, ot_arena *arena,
                                ot_content_record *record) {
  const ot_safetensors_layout_file *const layout = &writer->layout->files[file];
  const output_file *const written = &writer->files[file];
  *record = (ot_content_record){.name = layout->name, .bytes = layout->file_bytes};
  if (!ot_safetensors_is_hashed(writer, file)) {
    OT_TRY(ot_content_record_read(arena, written->path, record));
    OT_CHECK(record->bytes == layout->file_bytes, OT_ENVIRONMENT,
             "%lld bytes were written, and the file has %lld (%s)", (long long)layout->file_bytes,
             (long long)record->bytes, written->path);
    return OT_OK;
  }
  ot_content_hash_print(written->hash, record->hash);
  record->pieces = ot_content_hash_blocks(written->hash, arena);
  return OT_OK;
}

ot_status ot_safetensors_writer_finish(ot_safetensors_writer *writer, ot_arena *arena,
                                       ot_content_record *records) {
  OT_TRY(ot_safetensors_check_written(writer->layout, writer->written));
  OT_TRY(ot_safetensors_writer_sync(writer));
  for (int i = 0; i < writer->layout->num_files; i++)
    OT_TRY(ot_safetensors_record(writer, i, arena, &records[i]));
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
