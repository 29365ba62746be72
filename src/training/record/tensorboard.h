// SPDX-License-Identifier: Apache-2.0
// TensorBoard event files: scalars by step, for `tensorboard --logdir RUN/tensorboard` and similar
// tools. A copy for viewing; metrics.jsonl is authoritative.
#pragma once

#include <stdint.h>

#include "base/text_builder.h"
#include "record/metrics.h"

typedef struct ot_tensorboard ot_tensorboard;

// Starts a new event file in `directory`, which must exist, after `step` completed steps: if there
// are any, readers are told to discard later steps of older files.
ot_status ot_tensorboard_create(const char *directory, int64_t step, ot_tensorboard **out);
void ot_tensorboard_destroy(ot_tensorboard **tensorboard);

// The file, for what happens to it. Valid until destroy.
ot_log_file *ot_tensorboard_log(const ot_tensorboard *tensorboard);

// Appends `scalars` [num_scalars] of `step`, with the time of the call. Tags are grouped by the
// part before "/".
void ot_tensorboard_write(ot_tensorboard *tensorboard, int64_t step, const ot_metric *scalars,
                          int num_scalars);

// The same for a line of metrics.jsonl: train/loss, train/grad_norm, train/lr, perf/...,
// memory/..., exposed/..., health as named. Unknown values are omitted.
void ot_tensorboard_write_step(ot_tensorboard *tensorboard, const ot_metrics_step *step);

// ---- one record of an event file as bytes ----

// TFRecord framing (length and masked CRC-32C of the length, then the payload and its masked
// CRC-32C) around a protobuf Event. No protobuf library: an event of scalars has seven kinds of
// field. Pure.

// CRC-32C (Castagnoli) of `bytes` [length]: 0xe3069283 for "123456789".
uint32_t ot_crc32c(const void *bytes, int64_t length);

// Appends the record that every event file starts with.
void ot_event_record_version(ot_text_builder *out, double wall_s);

// Appends a record that tells readers to discard events from `step` on in older files.
void ot_event_record_restart(ot_text_builder *out, double wall_s, int64_t step);

// Appends a record of `scalars` [num_scalars] at `step`, as float32. Non-finite ones are kept:
// TensorBoard marks them. `wall_s` is seconds since 1970.
void ot_event_record_scalars(ot_text_builder *out, double wall_s, int64_t step,
                             const ot_metric *scalars, int num_scalars);
