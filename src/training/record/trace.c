// SPDX-License-Identifier: Apache-2.0
// Events are written as they arrive, always through zlib (which copies when not compressing). Start
// and end times are each rounded to nanoseconds once, so adjacent spans stay adjacent.
#include "record/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "files/disk.h"
#include "files/output_file.h"
#include "host/heap.h"

enum { FLUSH_BYTES = 1 << 16 };

struct ot_trace {
  ot_heap heap;
  ot_arena arena;
  char path[OT_PATH_BYTES];
  ot_output_file *output;  // null: a stream
  int memory;              // a stream gets what this file in memory has; -1: none
  double patience_s;       // with its reader
  gzFile file;             // writes to a dup of the descriptor of either; null when closed
  ot_json_writer json;
};

static ot_status write_failed(const ot_trace *trace) {
  int code = Z_OK;
  if (trace->file != NULL) gzerror(trace->file, &code);
  return ot_disk_fail("write", trace->path, code == Z_ERRNO && errno != 0 ? errno : EIO);
}

static ot_status flush(ot_trace *trace) {
  ot_json_writer *const json = &trace->json;
  if (json->length == 0) return OT_OK;
  const int written = gzwrite(trace->file, json->text, (unsigned)json->length);
  if (written != json->length) return write_failed(trace);
  json->length = 0;
  return OT_OK;
}

static ot_status flush_when_full(ot_trace *trace) {
  return trace->json.length >= FLUSH_BYTES ? flush(trace) : OT_OK;
}

static ot_status open_file(ot_trace *trace, const char *path) {
  const bool stream = ot_output_file_is_stream(path);
  if (stream) {
    trace->memory = memfd_create("trace", MFD_CLOEXEC);
  } else {
    OT_TRY(ot_output_file_create(path, &trace->output));
  }
  const int file = stream ? trace->memory : ot_output_file_descriptor(trace->output);
  const int copy = fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return ot_disk_fail("create", path, errno);
  trace->file = gzdopen(copy, ot_text_ends_with(path, ".gz") ? "wb6" : "wbT");
  if (trace->file != NULL) return OT_OK;
  close(copy);
  return ot_disk_fail("create", path, ENOMEM);
}

ot_status ot_trace_create(const char *path, double patience_s, ot_trace **out) {
  ot_trace *trace = calloc(1, sizeof *trace);
  OT_CHECK(trace != NULL, OT_ENVIRONMENT, "out of memory (%s)", path);
  ot_text_format(trace->path, sizeof trace->path, "%s", path);
  trace->memory = -1;
  trace->patience_s = patience_s;
  trace->arena = ot_heap_arena_create(&trace->heap);
  trace->json = ot_json_begin(&trace->arena, 0);
  *out = trace;
  const ot_status status = open_file(trace, path);
  if (status != OT_OK) {
    ot_trace_destroy(out);
    return status;
  }
  ot_json_object(&trace->json, NULL);
  ot_json_text(&trace->json, "displayTimeUnit", "ms");
  ot_json_array(&trace->json, "traceEvents");
  return OT_OK;
}

void ot_trace_destroy(ot_trace **trace) {
  if (*trace == NULL) return;
  if ((*trace)->file != NULL) gzclose((*trace)->file);
  if ((*trace)->memory >= 0) close((*trace)->memory);
  ot_output_file_destroy(&(*trace)->output);
  ot_heap_release(&(*trace)->heap);
  free(*trace);
  *trace = NULL;
}

static ot_status write_name(ot_trace *trace, const char *kind, int pid, int tid, const char *name) {
  ot_json_writer *const json = &trace->json;
  ot_json_object(json, NULL);
  ot_json_text(json, "name", kind);
  ot_json_text(json, "ph", "M");
  ot_json_integer(json, "pid", pid);
  ot_json_integer(json, "tid", tid);
  ot_json_object(json, "args");
  ot_json_text(json, "name", name);
  ot_json_end(json);
  ot_json_end(json);
  return flush_when_full(trace);
}

ot_status ot_trace_name_process(ot_trace *trace, int pid, const char *name) {
  return write_name(trace, "process_name", pid, 0, name);
}

ot_status ot_trace_name_thread(ot_trace *trace, int pid, int tid, const char *name) {
  return write_name(trace, "thread_name", pid, tid, name);
}

static int64_t nanoseconds(double seconds) {
  return (int64_t)(seconds * 1e9 + (seconds < 0 ? -0.5 : 0.5));
}

// Microseconds with three decimals.
static void write_time(ot_json_writer *json, const char *key, int64_t time_ns) {
  char text[40];
  const int64_t size = time_ns < 0 ? -time_ns : time_ns;
  ot_text_format(text, sizeof text, "%s%lld.%03lld", time_ns < 0 ? "-" : "",
                 (long long)(size / 1000), (long long)(size % 1000));
  ot_json_raw(json, key, text);
}

ot_status ot_trace_write(ot_trace *trace, const ot_trace_event *event) {
  const int64_t start_ns = nanoseconds(event->start_s), end_ns = nanoseconds(event->end_s);
  ot_json_writer *const json = &trace->json;
  ot_json_object(json, NULL);
  ot_json_text(json, "name", event->name);
  ot_json_text(json, "cat", event->category);
  ot_json_text(json, "ph", "X");
  write_time(json, "ts", start_ns);
  write_time(json, "dur", end_ns - start_ns);
  ot_json_integer(json, "pid", event->pid);
  ot_json_integer(json, "tid", event->tid);
  if (event->arguments != NULL) ot_json_raw(json, "args", event->arguments);
  ot_json_end(json);
  return flush_when_full(trace);
}

// ---- timelines ----

// When the tasks of an entry ran.
typedef struct entry_extent {
  double start_s, end_s;  // 0, 0 before the first
  bool seen, written;
} entry_extent;

typedef struct timeline_writer {
  ot_trace *trace;
  const ot_timeline *timeline;
  const ot_schedule *schedule;
  double offset_s;
  entry_extent *extents;  // [num_entries] on the entry's own lane
  // Concurrent messages are in separate rows.
  ot_arena *arena;
  double *row_end_s;  // [num_rows] end of the last message of each
  int64_t num_rows, row_capacity;
} timeline_writer;

static const ot_entry *entry_of(const timeline_writer *w, int32_t entry) {
  return &w->schedule->orders[w->timeline->order].entries[entry];
}

static void find_extents(timeline_writer *w) {
  for (int64_t i = 0; i < w->timeline->num_spans; i++) {
    const ot_span *const span = &w->timeline->spans[i];
    if (span->lane != (int32_t)entry_of(w, span->entry)->lane) continue;
    entry_extent *const extent = &w->extents[span->entry];
    if (!extent->seen || span->start_s < extent->start_s) extent->start_s = span->start_s;
    if (!extent->seen || span->end_s > extent->end_s) extent->end_s = span->end_s;
    extent->seen = true;
  }
}

static ot_status write_entry(const timeline_writer *w, int32_t index) {
  enum { ARGUMENT_BYTES = 128 };
  const ot_entry *const entry = entry_of(w, index);
  entry_extent *const extent = &w->extents[index];
  char arguments[ARGUMENT_BYTES];
  ot_text_format(arguments, sizeof arguments, "{\"entry\":%d,\"block\":%d,\"micro_batch\":%d}",
                 index, entry->block, entry->micro_batch);
  extent->written = true;
  const ot_trace_event event = {.name = w->schedule->segments[entry->segment].name,
                                .category = ot_phase_name(entry->phase),
                                .start_s = extent->start_s + w->offset_s,
                                .end_s = extent->end_s + w->offset_s,
                                .pid = w->timeline->rank,
                                .tid = (int)entry->lane,
                                .arguments = arguments};
  return ot_trace_write(w->trace, &event);
}

static ot_status write_span(const timeline_writer *w, const ot_span *span, int tid) {
  enum { ARGUMENT_BYTES = 192 };
  const ot_entry *const entry = entry_of(w, span->entry);
  const ot_task *const task = &w->schedule->segments[entry->segment].tasks[span->task];
  char arguments[ARGUMENT_BYTES];
  ot_text_format(
      arguments, sizeof arguments,
      "{\"entry\":%d,\"task\":%d,\"block\":%d,\"micro_batch\":%d,\"matrix_flops\":%.15g}",
      span->entry, span->task, entry->block, entry->micro_batch, ot_task_cost(task).matrix_flops);
  const ot_trace_event event = {.name = ot_task_name(task),
                                .category = ot_phase_name(entry->phase),
                                .start_s = span->start_s + w->offset_s,
                                .end_s = span->end_s + w->offset_s,
                                .pid = w->timeline->rank,
                                .tid = tid,
                                .arguments = arguments};
  return ot_trace_write(w->trace, &event);
}

// The row of a message: the first that is free at its start. Row 0 is the lane's own; the others
// follow the lanes.
static ot_status find_row(timeline_writer *w, const ot_span *span, int *tid) {
  int64_t row = 0;
  while (row < w->num_rows && w->row_end_s[row] > span->start_s) row++;
  *tid = row == 0 ? OT_LANE_PIPELINE : OT_LANES + (int)row - 1;
  const bool made = row == w->num_rows;
  if (made) {
    w->row_end_s = ot_arena_grow(w->arena, w->row_end_s, w->num_rows++, &w->row_capacity,
                                 sizeof *w->row_end_s);
  }
  w->row_end_s[row] = span->end_s;
  if (!made || row == 0) return OT_OK;
  char name[32];
  ot_text_format(name, sizeof name, "%s %d", ot_lane_name(OT_LANE_PIPELINE), (int)row + 1);
  return ot_trace_name_thread(w->trace, w->timeline->rank, *tid, name);
}

static ot_status write_names(const timeline_writer *w) {
  const int pid = w->timeline->rank;
  char name[32];
  ot_text_format(name, sizeof name, "rank %d", pid);
  OT_TRY(ot_trace_name_process(w->trace, pid, name));
  for (int lane = 0; lane < OT_LANES; lane++)
    OT_TRY(ot_trace_name_thread(w->trace, pid, lane, ot_lane_name((ot_lane)lane)));
  return OT_OK;
}

static ot_status write_spans(timeline_writer *w) {
  find_extents(w);
  OT_TRY(write_names(w));
  for (int64_t i = 0; i < w->timeline->num_spans; i++) {
    const ot_span *const span = &w->timeline->spans[i];
    int tid = span->lane;
    if (tid == OT_LANE_PIPELINE) {
      OT_TRY(find_row(w, span, &tid));
    } else if (tid != OT_LANE_TENSOR && !w->extents[span->entry].written) {
      OT_TRY(write_entry(w, span->entry));
    }
    OT_TRY(write_span(w, span, tid));
  }
  return OT_OK;
}

ot_status ot_trace_write_timeline(ot_trace *trace, const ot_timeline *timeline,
                                  const ot_schedule *schedule, double offset_s) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const int num_entries = schedule->orders[timeline->order].num_entries;
  timeline_writer w = {.trace = trace,
                       .timeline = timeline,
                       .schedule = schedule,
                       .offset_s = offset_s,
                       .extents = ot_arena_array(&arena, num_entries, sizeof *w.extents),
                       .arena = &arena};
  const ot_status status = write_spans(&w);
  ot_heap_release(&heap);
  return status;
}

ot_status ot_trace_finish(ot_trace *trace) {
  ot_json_end(&trace->json);
  ot_json_end(&trace->json);
  OT_TRY(flush(trace));
  const int code = gzclose(trace->file);
  trace->file = NULL;
  if (code != Z_OK)
    return ot_disk_fail("write", trace->path, code == Z_ERRNO && errno != 0 ? errno : EIO);
  return trace->output ? ot_output_file_commit(trace->output)
                       : ot_output_file_pour(trace->memory, trace->path, trace->patience_s);
}
