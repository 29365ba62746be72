// SPDX-License-Identifier: Apache-2.0
// The emulated device has no cuBLASLt.
extern "C" {
#include "kernels/cuda/lt_api.h"

ot_status ot_lt_open(ot_lt_api *api) {
  *api = ot_lt_api();
  return OT_OK;
}

void ot_lt_close(ot_lt_api *api) { (void)api; }
}
