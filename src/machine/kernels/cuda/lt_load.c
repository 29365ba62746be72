// SPDX-License-Identifier: Apache-2.0
// Finds cuBLASLt at run time.
#include <dlfcn.h>

#include "host/shared_library.h"
#include "kernels/cuda/lt_api.h"

ot_status ot_lt_open(ot_lt_api *api) {
  *api = (ot_lt_api){.library = ot_cuda_library_open("libcublasLt.so.13")};
  if (!api->library) {
    ot_fail(OT_ENVIRONMENT, "cuBLASLt is not found: %s", dlerror());
    return ot_fail_hint(OT_ENVIRONMENT,
                        "install CUDA 13 or pip's nvidia-cublas, and set OT_CUDA_LIBRARIES to the "
                        "folder of libcublasLt.so.13");
  }
  const ot_symbol symbols[] = {
      {"cublasLtCreate", &api->create},
      {"cublasLtDestroy", &api->destroy},
      {"cublasLtMatmulDescCreate", &api->describe},
      {"cublasLtMatmulDescSetAttribute", &api->set_description},
      {"cublasLtMatmulDescDestroy", &api->forget},
      {"cublasLtMatrixLayoutCreate", &api->lay_out},
      {"cublasLtMatrixLayoutDestroy", &api->free_layout},
      {"cublasLtMatmulPreferenceCreate", &api->prefer},
      {"cublasLtMatmulPreferenceSetAttribute", &api->set_preference},
      {"cublasLtMatmulPreferenceDestroy", &api->free_preference},
      {"cublasLtMatmulAlgoGetHeuristic", &api->choose},
      {"cublasLtMatmulAlgoCheck", &api->check},
      {"cublasLtMatmul", &api->multiply},
      {"cublasLtGetVersion", &api->version},
  };
  const char *const missing = ot_symbols_find(api->library, symbols, OT_COUNT(symbols));
  OT_CHECK(!missing, OT_ENVIRONMENT, "libcublasLt.so.13 has no %s", missing);
  return OT_OK;
}

void ot_lt_close(ot_lt_api *api) {
  if (api->library) dlclose(api->library);
  api->library = NULL;
}
