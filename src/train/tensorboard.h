// SPDX-License-Identifier: Apache-2.0
// TensorBoard event files: scalars by step, for `tensorboard --logdir RUN/tensorboard` and whoever
// uploads such files. A copy for looking at; metrics.jsonl is what counts.
#pragma once

#include "train/metrics.h"

typedef struct ot_tensorboard ot_tensorboard;

// Starts a new event file in `directory`, which must exist. `step` completed steps lie before it:
// when there are any, readers are told to forget what older files have of later ones.
ot_status ot_tensorboard_create(const char *directory, int64_t step, ot_tensorboard **out);
void ot_tensorboard_destroy(ot_tensorboard **tensorboard);

// Appends `scalars` [num_scalars] of `step`, with the time of the call. Tags are grouped by what
// comes before "/".
ot_status ot_tensorboard_write(ot_tensorboard *tensorboard, int64_t step, const ot_metric *scalars,
                               int num_scalars);

// The same for a line of metrics.jsonl: train/loss, train/grad_norm, train/lr, perf/...,
// memory/..., exposed/..., health as named. Unknown values are left out.
ot_status ot_tensorboard_write_step(ot_tensorboard *tensorboard, const ot_metrics_step *step);
