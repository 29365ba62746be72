// SPDX-License-Identifier: Apache-2.0
// A file that ranks read, each on its host, must have the same content on all of them.
#pragma once

#include "runtime/run_world.h"

// OT_RANKS, naming rank, host and file, unless the content is the same on all ranks that read it
// (`reads`). It is compared by a hash of bounded cost (files/content_hash.h). Collective over the
// world.
ot_status ot_same_file_check(ot_world *world, const char *path, bool reads);
