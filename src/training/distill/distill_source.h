// SPDX-License-Identifier: Apache-2.0
// Distillation as a source of targets of a run (runtime/target_source.h).
#pragma once

#include "data/data_loader.h"
#include "runtime/target_source.h"

// Opens what run->distill names, for a rank with `runtime`; `out` is without context if the run
// learns from its data alone. Keeps all of them until destroy. Errors as ot_distiller_create, and
// OT_RANKS if stores differ between hosts. Collective over the world.
ot_status ot_distill_source_open(const ot_run *run, ot_data_loader *loader, ot_runtime *runtime,
                                 ot_world *world, ot_target_source *out);
