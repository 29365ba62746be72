// SPDX-License-Identifier: Apache-2.0
// In builds without CUDA, instead of device_cuda.c.
#include <stddef.h>

#include "device/device_backend.h"

const ot_device_backend *const ot_device_cuda = NULL;
