// SPDX-License-Identifier: Apache-2.0
#include "audit/temporary_folder.h"

#include <stdlib.h>

#include "base/text.h"

static ot_status make(char folder[OT_WORLD_TEXT]) {
  const char *const temporary = getenv("TMPDIR");
  ot_text_format(folder, OT_WORLD_TEXT, "%s/orthant-audit-XXXXXX", temporary ? temporary : "/tmp");
  OT_CHECK(mkdtemp(folder), OT_ENVIRONMENT, "cannot create a folder for temporary files (%s)",
           folder);
  return OT_OK;
}

ot_status ot_temporary_folder_create(ot_world *world, char folder[OT_WORLD_TEXT]) {
  OT_TRY(ot_world_agree(world, ot_world_is_leader(world) ? make(folder) : OT_OK));
  return ot_world_broadcast(world, folder);
}
