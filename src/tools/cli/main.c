// SPDX-License-Identifier: Apache-2.0
// The program: finds the verb, reads its options, runs it, prints its failure. The exit code is the
// status (interface: 0 ok, 1 findings, 2 usage, 3 environment, 4 ranks, 5 numeric, 70 bug, 75
// stopped).
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/output.h"
#include "cli/output_queue.h"
#include "cli/start_watch.h"
#include "cli/verbs.h"
#include "host/library_settings.h"
#include "host/stacks.h"

#define ADDRESS_OF(name) &ot_verb_##name,
static const ot_verb *const verbs[] = {OT_EACH_VERB(ADDRESS_OF) NULL};
#undef ADDRESS_OF

static const char examples[] =
    "examples:\n"
    "  orthant plan --model llama3-8b --cluster h100 --gpus 8         the fastest that fits, why\n"
    "  orthant tokenize --tokenizer bytes --out data/train book.txt   text to token files\n"
    "  orthant config --example > run.yaml                            every setting of a run\n"
    "  orthant train run.yaml --dry-run                               check all, train nothing\n"
    "  orthant train run.yaml                                         train, or resume\n"
    "  orthant sample runs/run --prompt \"Once\"                        generate text\n"
    "  orthant help train                                             help of one verb\n";

const ot_verb *const *ot_verb_list(void) { return verbs; }

const ot_verb *ot_verb_find(const char *name) {
  for (int i = 0; verbs[i]; i++) {
    if (strcmp(verbs[i]->name, name) == 0) return verbs[i];
  }
  return NULL;
}

static void print_overview(void) {
  printf(
      "orthant plans, runs and audits LLM pretraining.\n\n"
      "usage: orthant VERB [options]\n\nverbs:\n");
  for (int i = 0; verbs[i]; i++) {
    if (!verbs[i]->hidden) printf("  %-12s %s\n", verbs[i]->name, verbs[i]->summary);
  }
  printf("  %-12s %s\n\n%s", "help", "help of a verb: orthant help VERB", examples);
}

static ot_status unknown_verb(const char *name) {
  const char *nearest = NULL;
  int best = 4;
  for (int i = 0; verbs[i]; i++) ot_text_nearest(name, verbs[i]->name, &nearest, &best);
  ot_fail(OT_USAGE, "unknown verb \"%s\"", name);
  if (nearest) return ot_fail_hint(OT_USAGE, "did you mean `orthant %s`?", nearest);
  return ot_fail_hint(OT_USAGE, "`orthant` lists the verbs");
}

static ot_status help(int count, char *const *words) {
  if (count == 0) {
    print_overview();
    return OT_OK;
  }
  OT_CHECK(count == 1, OT_USAGE, "unexpected argument \"%s\" (orthant help)", words[1]);
  const ot_verb *const verb = ot_verb_find(words[0]);
  if (!verb) return unknown_verb(words[0]);
  ot_verb_print_help(verb);
  return OT_OK;
}

static ot_status run(int count, char *const *words) {
  if (count == 0) return help(0, words);
  if (strcmp(words[0], "--version") == 0) {
    printf("orthant %s\n", OT_VERSION);
    return OT_OK;
  }
  if (strcmp(words[0], "help") == 0) return help(count - 1, words + 1);
  if (strcmp(words[0], "-h") == 0 || strcmp(words[0], "--help") == 0) return help(0, words);
  const ot_verb *const verb = ot_verb_find(words[0]);
  if (!verb && words[0][0] == '-') {
    ot_fail(OT_USAGE, "unknown option %s before the verb", words[0]);
    return ot_fail_hint(OT_USAGE, "usage: orthant VERB [options]");
  }
  if (!verb) return unknown_verb(words[0]);
  return ot_verb_run(verb, count - 1, words + 1);
}

typedef struct command_line {
  int count;
  char *const *words;
  ot_status status;
} command_line;

static void *run_all(void *context) {
  command_line *const line = context;
  line->status = ot_output_finish(run(line->count, line->words));
  // The message is one of this thread.
  if (line->status != OT_OK && ot_fail_message()[0] != '\0') ot_output_failure(line->status);
  return NULL;
}

int main(int count, char **words) {
  command_line line = {.count = count - 1, .words = words + 1};
  ot_output_open_streams();
  ot_start_watch_end();
  ot_libraries_configure(words);
  ot_output_catch_bugs();
  signal(SIGPIPE, SIG_IGN);  // output files are completed, and training continues
  signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is an error of the write
  ot_host_call_on_stack(run_all, &line);
  ot_output_queue_drain();
  return (int)line.status;
}
