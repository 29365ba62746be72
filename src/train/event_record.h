// SPDX-License-Identifier: Apache-2.0
// One record of a TensorBoard event file as bytes: TFRecord framing (length and masked CRC-32C of
// the length, then the payload and its masked CRC-32C) around a protobuf Event. No protobuf
// library: an event of scalars has seven kinds of field. Pure.
#pragma once

#include <stdint.h>

#include "base/text_builder.h"
#include "train/metrics.h"

// CRC-32C (Castagnoli) of `bytes` [length]: 0xe3069283 for "123456789".
uint32_t ot_crc32c(const void *bytes, int64_t length);

// Appends the record that every event file starts with.
void ot_event_record_version(ot_text_builder *out, double wall_s);

// Appends a record that tells readers to forget events of `step` and later ones in older files.
void ot_event_record_restart(ot_text_builder *out, double wall_s, int64_t step);

// Appends a record of `scalars` [num_scalars] at `step`, as float32. Ones that are not finite are
// kept: TensorBoard marks them. `wall_s` is seconds since 1970.
void ot_event_record_scalars(ot_text_builder *out, double wall_s, int64_t step,
                             const ot_metric *scalars, int num_scalars);
