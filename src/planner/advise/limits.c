// SPDX-License-Identifier: Apache-2.0
// Evaluates the formulas of limits.h on the levels of a cluster.
#include "advise/limits.h"

#include "base/math.h"

ot_token_floor ot_token_floor_of(const ot_gather_traffic *t, double bytes_per_s) {
  const double pull = t->parameters * t->flops_per_s / (t->forward_flops * bytes_per_s);
  const double backward = (t->regathered ? t->gather_bytes : 0) + t->reduce_bytes;
  return (ot_token_floor){t->gather_bytes * pull, backward * pull / 2};
}

static double higher(double a, double b) { return a > b ? a : b; }

// Bandwidth that long messages attain.
static double attained_bytes_per_s(const ot_link_level *level) {
  return level->bytes_per_s * (level->efficiency > 0 ? level->efficiency : 1);
}

// Incoming bandwidth of a device that shares the links of its group below `level` with that group.
static double incoming_bytes_per_s(const ot_cluster *cluster, int level, bool flat) {
  const int links = level > 0 && !flat ? cluster->level[level - 1].size : 1;
  return links * attained_bytes_per_s(&cluster->level[level]);
}

// Token floor of a gather among devices connected by `level`: the highest over the levels below it.
static ot_token_floor floor_up_to(const ot_gather_traffic *traffic, const ot_cluster *cluster,
                                  int level, bool flat) {
  ot_token_floor most = {0};
  for (int i = 0; i <= level; i++) {
    const double rate = incoming_bytes_per_s(cluster, i, flat);
    const ot_token_floor here = ot_token_floor_of(traffic, rate);
    most.forward = higher(most.forward, here.forward);
    most.backward = higher(most.backward, here.backward);
  }
  return most;
}

double ot_crossover_devices(const ot_gather_traffic *traffic, const ot_cluster *cluster,
                            double tokens, bool flat) {
  const int last = cluster->num_levels - 1;
  for (int i = last; i >= 0; i--) {
    const ot_token_floor floor = floor_up_to(traffic, cluster, i, flat);
    const double devices = tokens / higher(floor.forward, floor.backward);
    const double size = cluster->level[i].size;
    // Devices within the level below do not use this one.
    if (i > 0 && devices <= cluster->level[i - 1].size) continue;
    // The outermost links have no limit, except those inside one machine.
    const bool ends = i < last || last == 0;
    return ends && devices > size ? size : higher(devices, 1);
  }
  return 1;
}

static int meeting_level(const ot_cluster *cluster, int devices) {
  for (int i = 0; i < cluster->num_levels; i++) {
    if (cluster->level[i].size >= devices) return i;
  }
  return cluster->num_levels - 1;
}

ot_sharded_step ot_sharded_step_of(const ot_gather_traffic *traffic, const ot_cluster *cluster,
                                   double tokens, int devices, bool flat) {
  const double each = tokens / devices;
  const double forward_s = each * traffic->forward_flops / traffic->flops_per_s;
  ot_token_floor floor = {0};
  if (devices > 1) floor = floor_up_to(traffic, cluster, meeting_level(cluster, devices), flat);
  return (ot_sharded_step){.forward_s = forward_s,
                           .backward_s = 2 * forward_s,
                           .gather_s = forward_s * floor.forward / each,
                           .reduce_s = 2 * forward_s * floor.backward / each};
}

// Zhang et al. 2024 (arXiv 2410.21676), fit for fixed model size: 22.91 D^0.47 sequences of 512
// tokens, D in millions of tokens. It depends on the length of the run, not on the model's size.
double ot_critical_batch_tokens(double tokens) {
  return tokens > 0 ? 512 * 22.91 * ot_pow(tokens * 1e-6, 0.47) : 0;
}

ot_gather_traffic ot_limits_traffic(const ot_limits_request *request) {
  const ot_recipe *const recipe = &request->job->recipe;
  return (ot_gather_traffic){.flops_per_s = request->flops_per_s,
                             .forward_flops = request->totals->forward_flops_per_token,
                             .parameters = (double)request->totals->parameters,
                             .gather_bytes = recipe->gather_bytes,
                             .reduce_bytes = recipe->reduce_bytes,
                             .regathered = true};
}

// Replicated weights: their gradients are all-reduced once, twice their bytes in each direction.
static ot_gather_traffic replicated_traffic(const ot_gather_traffic *gathered) {
  ot_gather_traffic t = *gathered;
  t.gather_bytes = 0;
  t.regathered = false;
  t.reduce_bytes = 2 * gathered->reduce_bytes;
  return t;
}

// An MLP block multiplies by F/t columns per C columns sent and received (scaling-book): t <= F BW
// / C with two bytes per element.
static double tensor_ways(const ot_limits_request *request) {
  const ot_job *const job = request->job;
  if (job->cluster->num_levels == 0) return 1;
  const double F = (double)job->model->intermediate_size;
  const double rate = attained_bytes_per_s(&job->cluster->level[0]);
  return F * 2 * rate / (request->flops_per_s * job->recipe.activation_bytes);
}

void ot_limits_build(const ot_limits_request *request, ot_limits *out) {
  const ot_job *const job = request->job;
  const ot_cluster *const cluster = job->cluster;
  const double measured = request->critical_batch_tokens;
  const double critical = measured > 0 ? measured : ot_critical_batch_tokens(job->tokens);
  const double tokens = (double)job->global_batch_size * (double)job->sequence_length;
  const ot_gather_traffic traffic = ot_limits_traffic(request);
  const ot_gather_traffic replicated = replicated_traffic(&traffic);
  const double floor = critical / (double)job->sequence_length;
  *out = (ot_limits){.flops_per_s = request->flops_per_s,
                     .step_flops_per_s = request->step_flops_per_s,
                     .critical_batch_tokens = critical,
                     .batch_floor_devices = (int64_t)floor};
  if (ot_cluster_is_mixed(cluster)) return;  // the others are limits of one kind of device
  *out = (ot_limits){
      .flops_per_s = request->flops_per_s,
      .step_flops_per_s = request->step_flops_per_s,
      .critical_batch_tokens = critical,
      .batch_floor_devices = (int64_t)floor,
      .crossover_devices = (int64_t)ot_crossover_devices(&traffic, cluster, tokens, false),
      .crossover_flat_devices = (int64_t)ot_crossover_devices(&traffic, cluster, tokens, true),
      .crossover_critical_devices =
          (int64_t)ot_crossover_devices(&traffic, cluster, critical, false),
      .crossover_replicated_devices =
          (int64_t)ot_crossover_devices(&replicated, cluster, tokens, false),
      .tensor_ways = tensor_ways(request),
  };
  if (cluster->num_levels > 0 && job->devices > 1) {
    out->floor = floor_up_to(&traffic, cluster, meeting_level(cluster, job->devices), false);
  }
}
