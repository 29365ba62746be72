// SPDX-License-Identifier: Apache-2.0
#include "ledger/work_tree.h"

#include <string.h>

#include "base/text.h"
#include "files/disk.h"
#include "ledger/processes.h"

enum { LIST_BYTES_MAX = 1 << 24 };

// Runs a command in `folder` (null: this one); its output goes to `out` (null: the log).
static ot_status run_command(const ot_work_tree *t, const char *const *words, const char *folder,
                             const char *out, const char *doing) {
  int code;
  const char *const log = ot_arena_format(t->arena, "%s.log", t->path);
  OT_TRY(ot_ledger_run_command(words, folder, out ? out : log, log, &code));
  OT_CHECK(code == 0, OT_ENVIRONMENT, "cannot %s: %s ended with code %d (%s)", doing, words[0],
           code, log);
  return OT_OK;
}

ot_status ot_work_tree_list(const ot_work_tree *t, const char *good, const char *last,
                            const char ***labels, int64_t *count) {
  const char *const path = ot_arena_format(t->arena, "%s.txt", t->path);
  const char *const list[] = {"sh",
                              "-c",
                              "git -C \"$1\" log -1 --format='%H %s' \"$2\" && git -C \"$1\" log "
                              "--reverse --first-parent --format='%H %s' \"$2..$3\"",
                              "git",
                              t->source,
                              good,
                              last,
                              NULL};
  char *text;
  int64_t bytes, lines = 0;
  OT_TRY(run_command(t, list, NULL, path, "list the commits"));
  OT_TRY(ot_disk_read(t->arena, path, LIST_BYTES_MAX, &text, &bytes));
  for (const char *at = text; *at; at++) lines += *at == '\n';
  *labels = ot_arena_array(t->arena, lines + 1, sizeof **labels);
  *count = 0;
  for (const char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1)
    (*labels)[(*count)++] = ot_arena_text(t->arena, at, end - at);
  return OT_OK;
}

ot_status ot_work_tree_create(const ot_work_tree *t, const char *commit) {
  const char *const add[] = {"git",      "-C", t->source, "worktree", "add", "--quiet",
                             "--detach", "-f", t->path,   commit,     NULL};
  return run_command(t, add, NULL, NULL, "make a work tree");
}

ot_status ot_work_tree_move(const ot_work_tree *t, const char *commit) {
  const char *const checkout[] = {"git",     "-C",       t->path, "checkout",
                                  "--quiet", "--detach", commit,  NULL};
  return run_command(t, checkout, NULL, NULL, "check out a commit");
}

ot_status ot_work_tree_build(const ot_work_tree *t, const char *command) {
  const char *const build[] = {"sh", "-c", command, NULL};
  return run_command(t, build, t->path, NULL, "build");
}

ot_status ot_work_tree_remove(const ot_work_tree *t) {
  const char *const remove[] = {"git",    "-C",      t->source, "worktree",
                                "remove", "--force", t->path,   NULL};
  if (!ot_disk_is_directory(t->path)) return OT_OK;
  return run_command(t, remove, NULL, NULL, "remove a work tree");
}
