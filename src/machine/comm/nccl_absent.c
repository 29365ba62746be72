// SPDX-License-Identifier: Apache-2.0
// NCCL in builds without CUDA: none.
#include "comm/nccl_api.h"

ot_status ot_nccl_open(ot_nccl_api *api) {
  *api = (ot_nccl_api){0};
  return ot_fail(OT_ENVIRONMENT, "this build of orthant has no CUDA, so no NCCL");
}
