// SPDX-License-Identifier: Apache-2.0
// Directories of the program's own files: next to the program (a build tree or an installation),
// where it was built, the installation prefix, and the user's own folder.
#pragma once

#include "base/arena.h"
#include "files/config_file.h"

// Directories of presets, in search order. Lives in `arena`.
ot_presets ot_installed_presets(ot_arena *arena);

// The planner's web page (make page), next to the program or installed with it; null: not built.
const char *ot_installed_page(ot_arena *arena);

// The user's folder for orthant ($XDG_CONFIG_HOME/orthant, ~/.config/orthant), or null without a
// home. It need not exist.
const char *ot_installed_user_directory(ot_arena *arena);
