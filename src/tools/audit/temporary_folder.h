// SPDX-License-Identifier: Apache-2.0
// A new folder for files of an audit, in $TMPDIR or /tmp.
#pragma once

#include "runtime/run_world.h"

// Creates it on the leader, which removes it (files/disk.h); all ranks learn its path. Collective.
// OT_ENVIRONMENT.
ot_status ot_temporary_folder_create(ot_world *world, char folder[OT_WORLD_TEXT]);
