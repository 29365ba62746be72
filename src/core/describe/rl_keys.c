// SPDX-License-Identifier: Apache-2.0
// The keys of the section `rl:`.
#include "base/schema.h"
#include "describe/rl.h"

static const char *const updates[] = {"in_flight", "synchronous", NULL};
static const char *const clocks[] = {"simulated", "real", NULL};
static const char *const rewards[] = {"exact_match", "edit_similarity", "answer_logprob", "command",
                                      NULL};
static const char *const objectives[] = {"reinforce", "tis", "cispo", "grpo", "gspo", "mis", NULL};
static const char *const averages[] = {"tokens", "sequences", NULL};
static const char *const caches[] = {"keep", "recompute", NULL};

// clang-format off
static const ot_key cost_keys[] = {
    {"decode_step", OT_KEY_REAL, offsetof(ot_rl_costs, decode_s), "1", 0, OT_NO_MAXIMUM,
     .above_minimum = true, .unit = "seconds", .help = "a decode step of a generator"},
    {"row", OT_KEY_REAL, offsetof(ot_rl_costs, row_s), "0.02", 0, OT_NO_MAXIMUM, .unit = "seconds",
     .help = "in addition, each token that the step computes"},
    {"train_token", OT_KEY_REAL, offsetof(ot_rl_costs, train_token_s), "0.1", 0, OT_NO_MAXIMUM,
     .unit = "seconds", .help = "training on a generated token, of one worker"},
    {"publish", OT_KEY_REAL, offsetof(ot_rl_costs, publish_s), "0.5", 0, OT_NO_MAXIMUM,
     .unit = "seconds", .help = "pause of trainer and generators for new weights"},
};
static const ot_schema costs = {
    "rl.costs section", cost_keys, OT_COUNT(cost_keys), .size = sizeof(ot_rl_costs)};

static const ot_key rl_keys[] = {
    {"prompts", OT_KEY_PATH, offsetof(ot_run_rl, prompts), "null", .null_text = "",
     .help = "file of JSON lines {\"prompt\", \"answer\"}, for `orthant rl`"},
    {"validation", OT_KEY_PATH, offsetof(ot_run_rl, validation), "null", .null_text = "",
     .help = "the same, for validation"},
    {"validation_every", OT_KEY_INTEGER, offsetof(ot_run_rl, validation_every), "0",
     0, OT_NO_MAXIMUM, .unit = "updates",
     .help = "updates between validations; 0: before the first and after the last"},
    {"validation_samples", OT_KEY_INTEGER, offsetof(ot_run_rl, validation_samples), "1",
     1, 1 << 20, .help = "responses to each prompt of the validation"},
    {"reward", OT_KEY_CHOICE, offsetof(ot_run_rl, reward), "exact_match", .choices = rewards,
     .help = "of a response: is it the answer, how similar, how probable it makes the answer, or "
             "what a program says"},
    {"command", OT_KEY_TEXT, offsetof(ot_run_rl, command), "", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(ot_run_rl, num_command),
     .help = "path and arguments of the program, which reads and writes JSON lines"},
    {"command_seconds", OT_KEY_REAL, offsetof(ot_run_rl, command_seconds), "10", 0, 86400,
     .above_minimum = true, .unit = "seconds", .help = "after which a response has no reward"},
    {"command_memory", OT_KEY_INTEGER, offsetof(ot_run_rl, command_memory), "2GiB",
     0, OT_NO_MAXIMUM, .unit = "bytes",
     .help = "address space of each of its processes; 0: no limit"},
    {"length_power", OT_KEY_REAL, offsetof(ot_run_rl, length_power), "1", 0, 1,
     .help = "answer_logprob: the answer's length to this power divides it"},
    {"answer_weight", OT_KEY_REAL, offsetof(ot_run_rl, answer_weight), "0", 0, OT_NO_MAXIMUM,
     .help = "answer_logprob: weight of the answer's own cross-entropy"},
    {"objective", OT_KEY_CHOICE, offsetof(ot_run_rl, objective), "tis", .choices = objectives,
     .help = "how the ratio of the policies weighs a token"},
    {"average", OT_KEY_CHOICE, offsetof(ot_run_rl, average), "tokens", .choices = averages,
     .help = "what the sum over tokens is divided by"},
    {"cap", OT_KEY_REAL, offsetof(ot_run_rl, cap), "null", 0, OT_NO_MAXIMUM, .null_text = "-1",
     .above_minimum = true, .help = "largest ratio: tis [2], cispo [5]"},
    {"low", OT_KEY_REAL, offsetof(ot_run_rl, low), "null", 0, 1, .null_text = "-1",
     .help = "below 1: grpo [0.2], gspo [3e-4]; mis: smallest ratio [0.5]"},
    {"high", OT_KEY_REAL, offsetof(ot_run_rl, high), "null", 0, OT_NO_MAXIMUM, .null_text = "-1",
     .help = "above 1: grpo [0.28], gspo [4e-4]; mis: largest ratio [2]"},
    {"group", OT_KEY_INT, offsetof(ot_run_rl, group), "8", 1, 1 << 16,
     .unit = "sequences", .help = "samples of a prompt, which are compared"},
    {"batch", OT_KEY_INT, offsetof(ot_run_rl, batch), "64", 1, 1 << 20, .unit = "sequences",
     .help = "sequences of an update, whole groups"},
    {"max_tokens", OT_KEY_INTEGER, offsetof(ot_run_rl, max_tokens), "128", 1, 1 << 24,
     .unit = "tokens", .help = "generated tokens of a sequence at most"},
    {"updates", OT_KEY_CHOICE, offsetof(ot_run_rl, updates), "in_flight", .choices = updates,
     .help = "generators take new weights between two steps, or after all sequences of a batch"},
    {"clock", OT_KEY_CHOICE, offsetof(ot_run_rl, clock), "simulated", .choices = clocks,
     .help = "simulated: by prices, the same bits under any load; real: generators are processes"},
    {"launch", OT_KEY_TEXT, offsetof(ot_run_rl, launch), "", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(ot_run_rl, num_launch),
     .help = "words before the command of a generator on the real clock, such as [ssh, node{}, "
             "'{command}']; {} is its number, {command} the command for a shell"},
    {"restarts", OT_KEY_INT, offsetof(ot_run_rl, restarts), "3", 0, 1 << 20, .unit = "times",
     .help = "that a generator of the real clock is started again when it has ended"},
    {"workers", OT_KEY_INT, offsetof(ot_run_rl, workers), "8", 1, 1 << 16,
     .help = "of the simulated clock, generators and trainers together"},
    {"generators", OT_KEY_INT, offsetof(ot_run_rl, generators), "null", 1, 1 << 16,
     .null_text = "0", .help = "of these; null: chosen by forecast. Real clock: processes"},
    {"slots", OT_KEY_INT, offsetof(ot_run_rl, slots), "16", 1, 4096,
     .unit = "sequences", .help = "that a generator decodes at once"},
    {"queue", OT_KEY_INT, offsetof(ot_run_rl, queue), "null", 1, 1 << 24, .null_text = "0",
     .unit = "sequences",
     .help = "generators start no sequence while that many wait; null: twice the batch"},
    {"max_lag", OT_KEY_INT, offsetof(ot_run_rl, max_lag), "8", 0, 1 << 20, .unit = "updates",
     .help = "a sequence with an older token is dropped; 0: no bound"},
    {"cache", OT_KEY_CHOICE, offsetof(ot_run_rl, recompute), "keep", .choices = caches,
     .help = "of running sequences, when their generator takes new weights"},
    {"costs", OT_KEY_OBJECT, offsetof(ot_run_rl, costs), .object = &costs,
     .help = "prices of the simulated clock"},
    {"length_mean", OT_KEY_REAL, offsetof(ot_run_rl, length_mean), "0", 0, OT_NO_MAXIMUM,
     .unit = "tokens", .help = "expected of responses, for forecasts; 0: a quarter of max_tokens"},
    {"length_cv2", OT_KEY_REAL, offsetof(ot_run_rl, length_cv2), "1", 0, 1000,
     .help = "their variance over the squared mean"},
};
const ot_schema ot_rl_schema = {
    "rl section", rl_keys, OT_COUNT(rl_keys), .size = sizeof(ot_run_rl)};
// clang-format on
