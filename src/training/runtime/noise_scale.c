// SPDX-License-Identifier: Apache-2.0
// The estimates, then their inputs. With shares w_k of the targets (all 1/K when small batches are
// equal) a small batch's part of the gradient, w_k g_k, has the expected square w_k^2 |G|^2 + w_k
// tr(Sigma)/B; summed over k and solved with E|g_B|^2 = |G|^2 + tr(Sigma)/B.
#include "runtime/noise_scale.h"

#include <math.h>

#include "base/math.h"
#include "schedule/reduce.h"

// The weight of a step halves within 69 steps.
static const double DECAY = 0.99;

void ot_noise_average_add(ot_noise_average *average, const ot_noise_sample *sample) {
  const double rest = 1 - sample->share_squares;
  if (!(rest > 0)) return;
  const double gradient = (sample->whole_squares - sample->local_squares) / rest;
  const double noise =
      (sample->local_squares - sample->share_squares * sample->whole_squares) / rest;
  const double variance = noise * sample->targets;
  if (!isfinite(gradient) || !isfinite(variance)) return;
  average->steps++;
  // Dividing a moving average by 1 - DECAY^steps removes its bias towards zero.
  const double weight = (1 - DECAY) / (1 - ot_pow(DECAY, (double)average->steps));
  average->gradient_squares += weight * (gradient - average->gradient_squares);
  average->variance += weight * (variance - average->variance);
}

double ot_noise_average_tokens(const ot_noise_average *average) {
  if (!(average->gradient_squares > 0) || !(average->variance > 0)) return NAN;
  return average->variance / average->gradient_squares;
}

// ---- of a step ----

// Sums of the parts noted before the reduction over ranks; `squares` [parts * slots].
static double noted_squares(const ot_graph *graph, const double *squares, int slots) {
  double sum = 0;
  int64_t part = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    for (int k = 0; k < p->num_parts; k++, part++) {
      if (!ot_reduce_adds_local_squares(graph, p, k)) continue;
      for (int s = 0; s < slots; s++) sum += squares[part * slots + s];
    }
  }
  return sum;
}

bool ot_noise_is_known(const ot_schedule *schedule) {
  return schedule->group[OT_GROUP_SHARD].size >= 2 &&
         schedule->group[OT_GROUP_CONTEXT_SUM].size <= 1;
}

bool ot_noise_sample_read(const ot_runtime *runtime, const ot_step_transfer *results,
                          ot_noise_sample *sample) {
  const ot_schedule *const schedule = ot_runtime_schedule(runtime);
  if (!ot_noise_is_known(schedule)) return false;
  const double targets = ot_step_transfer_scalar(results, OT_SCALAR_TARGETS);
  if (!(targets > 0)) return false;
  *sample = (ot_noise_sample){
      .whole_squares = noted_squares(ot_runtime_any_graph(runtime),
                                     ot_step_transfer_squares(results), schedule->slots_per_part),
      .local_squares = ot_step_transfer_scalar(results, OT_SCALAR_LOCAL_SQUARES),
      .targets = targets,
      .share_squares =
          ot_step_transfer_scalar(results, OT_SCALAR_TARGET_SQUARES) / (targets * targets),
  };
  return true;
}

double ot_noise_target_squares(const ot_run *run, const ot_noise_targets *targets) {
  if (run->parallel.accumulate == OT_ACCUMULATE_SHARDED) return targets->squares;
  return (double)targets->sum * (double)targets->sum;
}
