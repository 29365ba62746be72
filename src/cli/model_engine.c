// SPDX-License-Identifier: Apache-2.0
// From options to a runtime.
#include "cli/model_engine.h"

#include <stdio.h>

static void say_notes(const ot_model_files *files, const ot_runtime *runtime) {
  if (files->note) fprintf(stderr, "note: %s\nreading %s\n", files->note, files->path);
  const char *const note = ot_runtime_note(runtime);
  if (note) fprintf(stderr, "note: %s\n", note);
}

ot_status ot_model_engine_create(const ot_options *options, const ot_inference_shape *shape,
                                 ot_opened_model *model, ot_runtime **runtime) {
  ot_runtime_request request = {
      .compute = OT_F32,
      .storage = OT_F32,
      .backend = ot_model_options_backend(options),
      .may_fall_back = ot_options_choice(options, "device") == OT_DEVICE_AUTO,
      .threads = (int)ot_options_integer(options, "threads"),
  };
  ot_inference_complete(shape, &request);
  OT_TRY(ot_model_files_runtime(&model->files, &request, runtime));
  say_notes(&model->files, *runtime);
  return OT_OK;
}
