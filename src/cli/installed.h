// SPDX-License-Identifier: Apache-2.0
// Where the program's own files are: beside the program (a build tree or an installation), where it
// was built, where it was to be installed, and the user's own folder.
#pragma once

#include "base/arena.h"
#include "files/config_file.h"

// Directories of presets, in the order in which they are tried. Lives in `arena`.
ot_presets ot_installed_presets(ot_arena *arena);

// The user's folder for orthant ($XDG_CONFIG_HOME/orthant, ~/.config/orthant), or null without a
// home. It need not exist.
const char *ot_installed_user_directory(ot_arena *arena);
