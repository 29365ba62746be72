// SPDX-License-Identifier: Apache-2.0
// Finds NCCL at run time.
#include <dlfcn.h>

#include "comm/nccl_api.h"
#include "host/shared_library.h"

static const char *const name = "libnccl.so.2";

static ot_status find_functions(void *library, ot_nccl_api *api) {
  const ot_symbol symbols[] = {
      {"ncclGetVersion", &api->version},
      {"ncclGetUniqueId", &api->make_id},
      {"ncclCommInitRank", &api->create},
      {"ncclGroupStart", &api->begin},
      {"ncclGroupEnd", &api->end},
      {"ncclSend", &api->send},
      {"ncclRecv", &api->receive},
      {"ncclAllGather", &api->all_gather},
      {"ncclCommGetAsyncError", &api->failure},
      {"ncclCommFinalize", &api->finalize},
      {"ncclCommDestroy", &api->destroy},
      {"ncclCommAbort", &api->abort},
      {"ncclGetErrorString", &api->describe},
      {"ncclGetLastError", &api->last_error},
  };
  const char *const missing = ot_symbols_find(library, symbols, OT_COUNT(symbols));
  OT_CHECK(!missing, OT_ENVIRONMENT, "%s has no %s: it is too old (2.14.3 or later is needed)",
           name, missing);
  return OT_OK;
}

static ot_status check_version(const ot_nccl_api *api) {
  int version = 0;
  const int result = api->version(&version);
  OT_CHECK(result == 0, OT_ENVIRONMENT, "NCCL does not tell its version: %s",
           api->describe(result));
  OT_CHECK(version >= OT_NCCL_OLDEST, OT_ENVIRONMENT,
           "%s has version code %d: it is too old (2.14.3 or later is needed)", name, version);
  return OT_OK;
}

ot_status ot_nccl_open(ot_nccl_api *api) {
  void *const library = ot_cuda_library_open(name);
  if (!library) {
    ot_fail(OT_ENVIRONMENT, "NCCL is not found: %s", dlerror());
    return ot_fail_hint(OT_ENVIRONMENT,
                        "install NCCL for CUDA 13 (pip's nvidia-nccl-cu13), and set "
                        "OT_CUDA_LIBRARIES or LD_LIBRARY_PATH to the folder of %s",
                        name);
  }
  OT_TRY(find_functions(library, api));
  return check_version(api);
}
