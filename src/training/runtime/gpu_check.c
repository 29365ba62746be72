// SPDX-License-Identifier: Apache-2.0
// The memory that is free is that seen by a process with a context on the GPU.
#include "runtime/gpu_check.h"

#include "base/quantity.h"
#include "base/text_builder.h"
#include "device/device.h"
#include "execute/bind.h"

// Workspace of products on the streams of a rank, and what the runtime takes for its kernels.
const int64_t ot_gpu_reserve_bytes = (int64_t)128 << 20;

int ot_gpu_sharers(int local_ranks) {
  return local_ranks <= ot_device_count(OT_BACKEND_CUDA) ? 1 : local_ranks;
}

const char *ot_memory_table(const ot_memory_breakdown *memory, ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  for (int i = 0; i < OT_MEMORY_CLASSES; i++) {
    const int64_t bytes = memory->class_bytes[i];
    if (bytes == 0) continue;
    ot_text_appendf(&text, "  %-12s %14s\n", ot_memory_class_name((ot_memory_class)i),
                    ot_figure_bytes(arena, bytes));
  }
  return ot_text_builder_text(&text);
}

ot_status ot_gpu_check_memory(const ot_gpu_need *need, ot_arena *arena, int64_t *free_bytes) {
  ot_device_info info;
  OT_TRY(ot_device_query(OT_BACKEND_CUDA, need->ordinal, &info));
  const int64_t each = info.free_bytes / need->ranks - ot_gpu_reserve_bytes;
  if (free_bytes) *free_bytes = info.free_bytes;
  if (need->memory->peak_bytes <= each) return OT_OK;
  const ot_memory_advisor *const advisor = &need->advisor;
  const char *const advice =
      advisor->advise ? advisor->advise(advisor->context, each, arena) : NULL;
  const char *const shared =
      need->ranks > 1 ? ot_arena_format(arena, " for each of %d ranks", need->ranks) : "";
  ot_fail(OT_ENVIRONMENT,
          "GPU %d (%s) has %s free of %s, and the run needs %s%s, %s of them for libraries:\n%s"
          "  %-12s %14s",
          need->ordinal, info.name, ot_figure_bytes(arena, info.free_bytes),
          ot_figure_bytes(arena, info.total_bytes),
          ot_figure_bytes(arena, need->memory->peak_bytes + ot_gpu_reserve_bytes), shared,
          ot_figure_bytes(arena, ot_gpu_reserve_bytes), ot_memory_table(need->memory, arena),
          "peak", ot_figure_bytes(arena, need->memory->peak_bytes));
  return ot_fail_hint(
      OT_ENVIRONMENT, "%s",
      advice ? advice : "a smaller model or batch, a GPU with more memory, or device=cpu");
}

ot_status ot_gpu_check_kernels(int ordinal, const ot_schedule *schedule) {
  ot_device_info info;
  OT_TRY(ot_device_query(OT_BACKEND_CUDA, ordinal, &info));
  return ot_bind_check_kernels(schedule, &info);
}
