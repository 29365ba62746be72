// SPDX-License-Identifier: Apache-2.0
// The keys of the section `distill:`.
#include "base/schema.h"
#include "describe/distill.h"

static const char *const objectives[] = {"none", "sampled", "top_k", "reverse_kl", NULL};
static const char *const sources[] = {"store", "live", "server", NULL};

// clang-format off
static const ot_key keys[] = {
    {"objective", OT_KEY_CHOICE, offsetof(ot_run_distill, objective), "none", .choices = objectives,
     .help = "what is learned from a teacher: draws from its distribution, its most probable "
             "tokens (biased), or its opinion of what the model writes"},
    {"from", OT_KEY_CHOICE, offsetof(ot_run_distill, from), "store", .choices = sources,
     .help = "stores of `orthant distill targets`, a teacher that runs in this job, or one of "
             "`orthant serve --teach`"},
    {"teacher", OT_KEY_PATH, offsetof(ot_run_distill, teacher), "null", .null_text = "",
     .help = "checkpoint, run or HF directory of the teacher"},
    {"server", OT_KEY_TEXT, offsetof(ot_run_distill, server), "null", .null_text = "",
     .help = "server: http://HOST:PORT; if teacher is given too, the server must have that one"},
    {"server_key", OT_KEY_PATH, offsetof(ot_run_distill, server_key), "null", .null_text = "",
     .help = "server: a file whose first line is the bearer key that it wants (its --api-key)"},
    {"server_timeout", OT_KEY_REAL, offsetof(ot_run_distill, server_timeout), "300", 0, 1e6,
     .unit = "s", .help = "server: without an answer for that long, the run ends"},
    {"draws", OT_KEY_INTEGER, offsetof(ot_run_distill, draws), "50", 1, 127,
     .help = "sampled: draws of each token"},
    {"targets", OT_KEY_INTEGER, offsetof(ot_run_distill, targets), "24", 1, 256,
     .help = "most targets of a token; rarer ones are merged, without bias"},
    {"alpha", OT_KEY_REAL, offsetof(ot_run_distill, alpha), "1", 0, 1,
     .help = "weight of the teacher; the data's next token has the rest"},
    {"prompt_tokens", OT_KEY_INTEGER, offsetof(ot_run_distill, prompt_tokens), "16", 1, 1 << 24,
     .unit = "tokens", .help = "reverse_kl: data's tokens before those that the model writes"},
    {"teacher_ranks", OT_KEY_INT, offsetof(ot_run_distill, teacher_ranks), "0", 0, 1 << 16,
     .help = "live, server: ranks that run the teacher only, a step ahead of the others, in "
             "addition to those of `parallel`; 0: the ranks with the head do"},
};
const ot_schema ot_distill_schema = {
    "distill section", keys, OT_COUNT(keys), .size = sizeof(ot_run_distill)};
