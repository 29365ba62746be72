// SPDX-License-Identifier: Apache-2.0
// What a compute task takes on a GPU or TPU under a style of kernels. Private to simulate/.
#pragma once

#include "simulate/price.h"

// OT_USAGE when the device cannot multiply in the type that `task` needs.
ot_status ot_price_kernel(const ot_simulation *simulation, const ot_task *task, ot_price *price);

// Bytes a second in a long pass over the device's memory.
double ot_device_stream_rate(const ot_device_kind *device);
