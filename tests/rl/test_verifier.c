// SPDX-License-Identifier: Apache-2.0
// run: any machine. A reward's program: its answers, and what happens to one that hangs, ends,
// writes too much or no JSON, starts others, or has no right to more memory.
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/clock.h"
#include "rl/verifier.h"
#include "support/scratch.h"

// Each response says what to do with it.
static const char script[] =
    "#!/usr/bin/env bash\n"
    "answer() { printf '{\"id\": %s, \"reward\": %s}\\n' \"$1\" \"$2\"; }\n"
    "while IFS= read -r line 2>/dev/null; do\n"
    "  id=${line#*:}; id=${id%%,*}\n"
    "  case $line in\n"
    "    *'\"response\":\"good\"'*) answer \"$id\" 0.75 ;;\n"
    "    *'\"response\":\"hang\"'*) sleep 1000 & echo $! >\"$1\"; wait ;;\n"
    "    *'\"response\":\"end\"'*) exit 3 ;;\n"
    "    *'\"response\":\"daemon\"'*) setsid sleep 1000 >/dev/null 2>&1 & echo $! >\"$1\"\n"
    "      answer \"$id\" 1 ;;\n"
    "    *'\"response\":\"talk\"'*) head -c 3000000 /dev/zero >&2; answer \"$id\" 1 ;;\n"
    "    *'\"response\":\"flood\"'*) head -c 200000 /dev/zero | tr '\\0' x ;;\n"
    "    *'\"response\":\"twice\"'*) printf '{\"id\": %s, \"reward\": 1}\\n{}\\n' \"$id\" ;;\n"
    "    *'\"response\":\"other\"'*) answer 999999 1 ;;\n"
    "    *'\"response\":\"nan\"'*) answer \"$id\" NaN ;;\n"
    "    *'\"response\":\"huge\"'*) answer \"$id\" -1e308 ;;\n"
    "    *'\"response\":\"limit\"'*) answer \"$id\" \"$(ulimit -v)\" ;;\n"
    "    *'\\n\\\"; rm'*) answer \"$id\" 2 ;;\n"
    "    *) echo what ;;\n"
    "  esac\n"
    "done\n";

static char directory[SCRATCH_BYTES], path[512], note[512];

static int write_script(void **state) {
  (void)state;
  scratch_create(directory);
  snprintf(path, sizeof path, "%s/judge.sh", directory);
  snprintf(note, sizeof note, "%s/pid", directory);
  FILE *const file = fopen(path, "w");
  if (!file) return -1;
  fputs(script, file);
  fclose(file);
  return chmod(path, 0755);
}

static int remove_script(void **state) {
  (void)state;
  scratch_destroy(directory);
  return 0;
}

static ot_verifier *open_verifier(double timeout_s) {
  static const char *words[3];
  words[0] = path;
  words[1] = note;
  ot_verifier *verifier = NULL;
  const ot_verifier_request request = {
      .words = words, .timeout_s = timeout_s, .memory_bytes = INT64_C(1) << 30, .cpu_seconds = 20};
  assert_int_equal(ot_verifier_create(&request, &verifier), OT_OK);
  return verifier;
}

static bool judge(ot_verifier *verifier, const char *response, double *reward, const char **why) {
  static int64_t id;
  bool judged;
  const ot_verifier_case one = {.id = id++,
                                .prompt = {"2+2", 3},
                                .response = {response, (int64_t)strlen(response)},
                                .answer = {"4", 1}};
  assert_int_equal(ot_verifier_judge(verifier, &one, reward, &judged, why), OT_OK);
  return judged;
}

static void answers_are_rewards(void **state) {
  (void)state;
  ot_verifier *verifier = open_verifier(20);
  double reward = 0;
  const char *why;
  for (int i = 0; i < 20; i++) {
    reward = 0;
    assert_true(judge(verifier, "good", &reward, &why) && reward == 0.75);
  }
  assert_true(judge(verifier, "a\n\"; rm -rf /", &reward, &why) && reward == 2);
  assert_true(judge(verifier, "limit", &reward, &why) && reward == 1 << 20);
  ot_verifier_destroy(&verifier);
  assert_null(verifier);
}

static void bad_answers_cost_one_response(void **state) {
  (void)state;
  static const char *const bad[][2] = {{"end", "it ended"},
                                       {"flood", "too long"},
                                       {"other", "without this id"},
                                       {"nan", "no JSON"},
                                       {"huge", "a reward beyond 1e15"},
                                       {"anything", "no JSON"}};
  ot_verifier *verifier = open_verifier(20);
  for (int i = 0; i < (int)(sizeof bad / sizeof bad[0]); i++) {
    double reward = 0;
    const char *why;
    assert_false(judge(verifier, bad[i][0], &reward, &why));
    if (!strstr(why, bad[i][1])) fail_msg("%s: %s", bad[i][0], why);
    assert_true(reward == 0);
    assert_true(judge(verifier, "good", &reward, &why) && reward == 0.75);
  }
  ot_verifier_destroy(&verifier);
}

// What it writes unasked is no answer to the next response.
static void a_second_line_costs_the_process(void **state) {
  (void)state;
  ot_verifier *verifier = open_verifier(20);
  double reward = 0;
  const char *why;
  (void)judge(verifier, "twice", &reward, &why);
  usleep(50000);
  reward = 0;
  assert_true(judge(verifier, "good", &reward, &why) && reward == 0.75);
  ot_verifier_destroy(&verifier);
}

static pid_t noted_process(void) {
  int process = 0;
  FILE *const file = fopen(note, "r");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%d", &process), 1);
  fclose(file);
  return process;
}

static bool runs(pid_t process) {
  char name[64], state = 'Z';
  snprintf(name, sizeof name, "/proc/%d/stat", (int)process);
  FILE *const file = fopen(name, "r");
  if (!file) return false;
  const int found = fscanf(file, "%*d (%*[^)]) %c", &state);
  fclose(file);
  return found == 1 && state != 'Z';
}

static void a_hanging_program_is_killed_with_its_children(void **state) {
  (void)state;
  ot_verifier *verifier = open_verifier(0.5);
  double reward = 0;
  const char *why;
  const double start_s = ot_clock_s();
  assert_false(judge(verifier, "hang", &reward, &why));
  assert_true(ot_clock_s() - start_s >= 0.5);
  assert_non_null(strstr(why, "in time"));
  const pid_t child = noted_process();
  for (int i = 0; i < 200 && runs(child); i++) usleep(10000);
  assert_false(runs(child));
  ot_verifier_destroy(&verifier);
}

static void a_daemon_that_it_starts_ends_with_it(void **state) {
  (void)state;
  ot_verifier *verifier = open_verifier(20);
  double reward = 0;
  const char *why;
  assert_true(judge(verifier, "daemon", &reward, &why));
  const pid_t child = noted_process();
  assert_true(runs(child));
  ot_verifier_destroy(&verifier);
  assert_false(runs(child));
}

static void a_daemon_that_it_starts_ends_with_a_killed_run(void **state) {
  (void)state;
  const pid_t run = fork();
  assert_true(run >= 0);
  if (run == 0) {
    double reward = 0;
    const char *why;
    (void)judge(open_verifier(20), "daemon", &reward, &why);
    kill(getpid(), SIGKILL);
  }
  assert_int_equal(waitpid(run, NULL, 0), run);
  const pid_t child = noted_process();
  for (int i = 0; i < 300 && runs(child); i++) usleep(10000);
  assert_false(runs(child));
}

static void its_messages_are_bounded(void **state) {
  (void)state;
  const char *const log = scratch_path(directory, "log");
  const int before = dup(STDERR_FILENO), file = open(log, O_RDWR | O_CREAT | O_TRUNC, 0666);
  double reward = 0;
  const char *why;
  dup2(file, STDERR_FILENO);
  ot_verifier *verifier = open_verifier(20);
  for (int i = 0; i < 3; i++) assert_true(judge(verifier, "talk", &reward, &why));
  ot_verifier_destroy(&verifier);
  dup2(before, STDERR_FILENO);
  close(before);
  const off_t bytes = lseek(file, 0, SEEK_END);
  close(file);
  assert_in_range(bytes, 1 << 20, (1 << 20) + 200);
}

static void what_cannot_start_is_refused(void **state) {
  (void)state;
  ot_verifier *verifier = NULL;
  ot_verifier_request request = {.words = (const char *[]){"judge.sh", NULL}, .timeout_s = 1};
  assert_int_equal(ot_verifier_create(&request, &verifier), OT_USAGE);
  assert_message_has("try ./judge.sh");
  request.words = (const char *[]){"./no/such/program", NULL};
  assert_int_equal(ot_verifier_create(&request, &verifier), OT_ENVIRONMENT);
  assert_message_has("No such file");
  assert_null(verifier);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(answers_are_rewards),
      cmocka_unit_test(bad_answers_cost_one_response),
      cmocka_unit_test(a_second_line_costs_the_process),
      cmocka_unit_test(a_hanging_program_is_killed_with_its_children),
      cmocka_unit_test(a_daemon_that_it_starts_ends_with_it),
      cmocka_unit_test(a_daemon_that_it_starts_ends_with_a_killed_run),
      cmocka_unit_test(its_messages_are_bounded),
      cmocka_unit_test(what_cannot_start_is_refused),
  };
  return cmocka_run_group_tests(tests, write_script, remove_script);
}
