// SPDX-License-Identifier: Apache-2.0
// Cost of a compute task on a GPU or TPU with a kernel style. Private to simulate/.
#pragma once

#include "simulate/price.h"

// OT_USAGE if the device has no rate for the GEMM dtype of `task`.
ot_status ot_price_kernel(const ot_simulation *simulation, const ot_task *task, ot_price *price);

// Fails because the device has no rate for products in `type`, which `task` needs.
ot_status ot_price_lacks_rate(const ot_simulation *simulation, ot_dtype type, const ot_task *task);

// Bytes per second in a long pass over device memory.
double ot_device_stream_rate(const ot_device_kind *device);
