// SPDX-License-Identifier: Apache-2.0
// Files of log-probabilities: each is read, paired with itself, and judged without a checkpoint.
#include <math.h>

#include "fuzz/fuzz.h"
#include "judge/judge_logprobs.h"
#include "judge/logprobs_pair.h"

static void check_pair(const ot_logprob_pair *pair) {
  fuzz_require(pair->count >= 1, "a pair has tokens");
  for (int64_t t = 0; t < pair->count; t++) {
    const ot_logprob_match *const m = &pair->matches[pair->match[t]];
    fuzz_require(t >= m->first && t < m->first + m->count, "a token is in its sequence");
    fuzz_require(pair->logprob[0][t] <= 0.01, "log-probabilities are not positive");
    fuzz_require(m->num_ids == 0 || (pair->place[t] >= 1 && pair->place[t] < m->num_ids),
                 "a token that is scored follows another one");
  }
}

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  const char *const path = fuzz_file("a.jsonl", data, size);
  const ot_judge_logprobs_request request = {.path = {path, path}, .threads = 1};
  ot_logprob_file file;
  ot_logprob_pair pair;
  ot_judge_report report;
  OT_TRY(ot_logprob_file_read(path, arena, &file));
  OT_TRY(ot_logprob_pair_build(&file, &file, arena, &pair));
  check_pair(&pair);
  OT_TRY(ot_judge_logprobs(&request, arena, &report));
  fuzz_require(report.num_findings == 0, "a file agrees with itself");
  return OT_OK;
}
