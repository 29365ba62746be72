// SPDX-License-Identifier: Apache-2.0
// Finds cuBLASLt at run time.
#include <dlfcn.h>
#include <string.h>

#include "host/cuda_library.h"
#include "kernels/cuda/lt_api.h"

ot_status ot_lt_open(ot_lt_api *api) {
  *api = (ot_lt_api){.library = ot_cuda_library_open("libcublasLt.so.13")};
  if (!api->library) {
    ot_fail(OT_ENVIRONMENT, "cuBLASLt is not found: %s", dlerror());
    return ot_fail_hint(OT_ENVIRONMENT,
                        "install CUDA 13 or pip's nvidia-cublas, and set OT_CUDA_LIBRARIES to the "
                        "folder of libcublasLt.so.13");
  }
  const struct {
    const char *name;
    void *place;
  } symbols[] = {
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
  for (int i = 0; i < OT_COUNT(symbols); i++) {
    void *const found = dlsym(api->library, symbols[i].name);
    OT_CHECK(found, OT_ENVIRONMENT, "libcublasLt.so.13 has no %s", symbols[i].name);
    memcpy(symbols[i].place, &found, sizeof found);
  }
  return OT_OK;
}

void ot_lt_close(ot_lt_api *api) {
  if (api->library) dlclose(api->library);
  api->library = NULL;
}
