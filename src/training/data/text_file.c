// SPDX-License-Identifier: Apache-2.0
// One read function per kind of file. zlib's gzread also reads plain files, but not Zstandard ones,
// and maps read errors to its own codes, so plain files are read directly.
#include "data/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { READ_BYTES = 1 << 17 };

struct ot_text_file {
  char *path;
  int descriptor;  // -1: owned by gz
  gzFile gz;
  ZSTD_DStream *zstd;
  uint8_t *compressed;  // [READ_BYTES] of zstd
  ZSTD_inBuffer waiting;
  bool frame_open;  // a frame has begun but not ended
};

static ot_status open_gzip(ot_text_file *file) {
  file->gz = gzdopen(file->descriptor, "rb");
  OT_CHECK(file->gz, OT_ENVIRONMENT, "out of memory (%s)", file->path);
  file->descriptor = -1;
  gzbuffer(file->gz, READ_BYTES);
  return OT_OK;
}

static ot_status open_zstd(ot_text_file *file) {
  file->zstd = ZSTD_createDStream();
  file->compressed = malloc(READ_BYTES);
  OT_CHECK(file->zstd && file->compressed, OT_ENVIRONMENT, "out of memory (%s)", file->path);
  file->waiting.src = file->compressed;
  return OT_OK;
}

typedef enum packing { PACKED_NOT, PACKED_GZIP, PACKED_ZSTD } packing;

static bool ends_with(const char *path, const char *ending) {
  const size_t length = strlen(path), n = strlen(ending);
  return length > n && strcasecmp(path + length - n, ending) == 0;
}

// By the magic number; by the name if there is none, which then is an error, or in a pipe.
static packing find_packing(const ot_text_file *file, const char *path) {
  static const uint8_t gzip[] = {0x1f, 0x8b}, zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
  uint8_t head[sizeof zstd] = {0};
  const ssize_t n = pread(file->descriptor, head, sizeof head, 0);
  if (n >= (ssize_t)sizeof gzip && memcmp(head, gzip, sizeof gzip) == 0) return PACKED_GZIP;
  if (n >= (ssize_t)sizeof zstd && memcmp(head, zstd, sizeof zstd) == 0) return PACKED_ZSTD;
  if (ends_with(path, ".gz")) return PACKED_GZIP;
  return ends_with(path, ".zst") || ends_with(path, ".zstd") ? PACKED_ZSTD : PACKED_NOT;
}

static ot_status open_file(ot_text_file *file, const char *path) {
  file->path = strdup(path);
  OT_CHECK(file->path, OT_ENVIRONMENT, "out of memory (%s)", path);
  file->descriptor = open(path, O_RDONLY | O_CLOEXEC);
  OT_CHECK(file->descriptor >= 0, OT_ENVIRONMENT, "cannot open %s: %s", path, strerror(errno));
  struct stat about;
  OT_CHECK(fstat(file->descriptor, &about) == 0, OT_ENVIRONMENT, "cannot read %s: %s", path,
           strerror(errno));
  OT_CHECK(!S_ISDIR(about.st_mode), OT_ENVIRONMENT, "cannot read %s: it is a directory", path);
  // Some devices never end. Text from a pipe is as good as that of a file.
  const bool device =
      S_ISBLK(about.st_mode) || (S_ISCHR(about.st_mode) && !isatty(file->descriptor));
  OT_CHECK(!device, OT_ENVIRONMENT, "cannot read %s: it is a device", path);
  switch (find_packing(file, path)) {
    case PACKED_GZIP:
      return open_gzip(file);
    case PACKED_ZSTD:
      return open_zstd(file);
    case PACKED_NOT:
      return OT_OK;
  }
  OT_UNREACHABLE();
}

ot_status ot_text_file_create(const char *path, ot_text_file **out) {
  *out = NULL;
  ot_text_file *file = calloc(1, sizeof *file);
  OT_CHECK(file, OT_ENVIRONMENT, "out of memory (%s)", path);
  file->descriptor = -1;
  const ot_status status = open_file(file, path);
  if (status != OT_OK) ot_text_file_destroy(&file);
  *out = file;
  return status;
}

void ot_text_file_destroy(ot_text_file **file) {
  if (!*file) return;
  if ((*file)->gz) gzclose_r((*file)->gz);
  if ((*file)->descriptor >= 0) close((*file)->descriptor);
  ZSTD_freeDStream((*file)->zstd);
  free((*file)->compressed);
  free((*file)->path);
  free(*file);
  *file = NULL;
}

static ot_status read_plain(ot_text_file *file, uint8_t *out, int64_t capacity, int64_t *length) {
  ssize_t n;
  do {
    n = read(file->descriptor, out, (size_t)capacity);
  } while (n < 0 && errno == EINTR);
  OT_CHECK(n >= 0, OT_ENVIRONMENT, "cannot read %s: %s", file->path, strerror(errno));
  *length = n;
  return OT_OK;
}

static ot_status read_gzip(ot_text_file *file, uint8_t *out, int64_t capacity, int64_t *length) {
  const int n = gzread(file->gz, out, (unsigned)(capacity < READ_BYTES ? capacity : READ_BYTES));
  int code = Z_OK;
  const char *const message = gzerror(file->gz, &code);
  OT_CHECK(n <= 0 || !gzdirect(file->gz), OT_ENVIRONMENT, "cannot read %s: not gzip data",
           file->path);
  OT_CHECK(n >= 0 && (code == Z_OK || code == Z_STREAM_END), OT_ENVIRONMENT,
           "cannot read %s: damaged or truncated gzip data (%s)", file->path, message);
  *length = n;
  return OT_OK;
}

static ot_status refill_zstd(ot_text_file *file) {
  int64_t n = 0;
  OT_TRY(read_plain(file, file->compressed, READ_BYTES, &n));
  file->waiting.size = (size_t)n;
  file->waiting.pos = 0;
  return OT_OK;
}

static ot_status read_zstd(ot_text_file *file, uint8_t *out, int64_t capacity, int64_t *length) {
  ZSTD_outBuffer made = {.dst = out, .size = (size_t)capacity};
  while (made.pos == 0) {
    const bool dry = file->waiting.pos == file->waiting.size;
    if (dry) OT_TRY(refill_zstd(file));
    const bool at_end = dry && file->waiting.size == 0;
    if (at_end && !file->frame_open) break;
    // At the end of the file the decoder may still hold output, so it is called once more.
    const size_t code = ZSTD_decompressStream(file->zstd, &made, &file->waiting);
    OT_CHECK(!ZSTD_isError(code), OT_ENVIRONMENT, "cannot read %s: damaged Zstandard data (%s)",
             file->path, ZSTD_getErrorName(code));
    file->frame_open = code != 0;
    OT_CHECK(!at_end || made.pos > 0 || !file->frame_open, OT_ENVIRONMENT,
             "cannot read %s: truncated Zstandard data", file->path);
  }
  *length = (int64_t)made.pos;
  return OT_OK;
}

ot_status ot_text_file_read(ot_text_file *file, uint8_t *out, int64_t capacity, int64_t *length) {
  *length = 0;
  if (capacity == 0) return OT_OK;
  if (file->gz) return read_gzip(file, out, capacity, length);
  if (file->zstd) return read_zstd(file, out, capacity, length);
  return read_plain(file, out, capacity, length);
}
