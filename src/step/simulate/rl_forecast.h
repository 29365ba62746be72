// SPDX-License-Identifier: Apache-2.0
// How fast a fleet learns and how old its data are: in closed form, and by playing the flow
// (rl_flow.h) with lengths alone. Both describe answers by a sample of their lengths. Pure.
//
// N workers, of which N_g generate in H slots each; K sequences run at once on average over all
// time, that in which generators wait included; B make an update, l is
// the mean length, tau the time of a decode step, t the trainer's time of a token, T the time of an
// update. With weights in flight:
//
//   generation  N_g H / tau(H)      training  (N - N_g) / t      tokens/s: the smaller one
//   lag of a token           K (1 + CV^2) / (2B) + rho + sigma + Q/B + w
//   lag of a first token     K/B                 + rho + sigma + Q/B + w_first
//   largest lag              (L_max tau + wait) / T, rounded up, + 1 + Q/B, rounded up
//
// in updates, with rho and sigma the shares of T that training and publishing take, Q the sequences
// that stay in the queue when a batch is taken, and w the time that a token (w_first: a
// sequence) waits for the other samples of its prompt. By Little's law K = l B / T * tau; a random
// token has E[L^2] / (2 l) steps of its sequence left. Synchronous: each worker decodes its share
// to the end, so T = E[steps until all have ended] tau + B l t / N + publishing.
#pragma once

#include "simulate/rl_flow.h"

typedef struct ot_rl_lengths {
  const int32_t *tokens;  // [count] generated tokens of a sample of answers, >= 1
  int64_t count;          // >= 1
  int64_t prompt_tokens;  // of each prompt, >= 1
  bool by_prompt;         // samples of a prompt are equally long
  bool in_order;          // sequence i has tokens[i % count]; else each draws one
  uint64_t seed;          // of the draws
} ot_rl_lengths;

// `count` lengths >= 1 with this mean and CV^2, lognormal (CV^2 0: all equal), at most `largest`.
// in `arena`.
ot_rl_lengths ot_rl_lengths_lognormal(double mean, double cv2, int64_t largest, int64_t count,
                                      ot_arena *arena);

double ot_rl_lengths_mean(const ot_rl_lengths *lengths);
double ot_rl_lengths_cv2(const ot_rl_lengths *lengths);
int64_t ot_rl_lengths_largest(const ot_rl_lengths *lengths);

typedef struct ot_rl_forecast {
  double tokens_per_s, updates_per_s;
  double generated_per_s, trained_per_s;  // tokens that each side could do; synchronous: together
  double generators_busy, trainers_busy;  // shares of the time
  double running;                         // sequences in a decode step of all, on average
  double idle;                            // share of the time in which generators have none
  double step_s;                          // of a decode step, on average
  double rho, sigma;                      // shares of an update
  double left;                            // Q, sequences
  double wait, first_wait;                // of a token, and of a sequence, for its group; updates
  double lag, first_lag;                  // mean, in updates
  int64_t lag_p99;                        // of the play only, else -1
  int64_t lag_max;                        // of the play; closed form: the bound
} ot_rl_forecast;

// Values that the closed form lacks, from a simulation or a run; zeros: none.
typedef struct ot_rl_stock {
  double running;  // 0: all slots, or as many as the trainers keep busy
  double idle;
  double left;
  double wait, first_wait;
} ot_rl_stock;

// The closed form. The fleet is valid; `arena` for scratch.
void ot_rl_forecast_build(const ot_rl_fleet *fleet, const ot_rl_lengths *lengths,
                          const ot_rl_stock *stock, ot_arena *arena, ot_rl_forecast *out);

// Plays `updates` updates after `warmup`. OT_USAGE for an invalid fleet.
typedef struct ot_rl_play {
  const ot_rl_fleet *fleet;
  const ot_rl_lengths *lengths;
  int64_t updates, warmup;
  const ot_rl_failure *failures;  // [num_failures]
  int num_failures;
} ot_rl_play;
ot_status ot_rl_play_run(const ot_rl_play *play, ot_arena *arena, ot_rl_record *record);

// The figures of a record.
void ot_rl_record_forecast(const ot_rl_fleet *fleet, const ot_rl_record *record,
                           ot_rl_forecast *out);
