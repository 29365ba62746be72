// SPDX-License-Identifier: Apache-2.0
// Shares of time follow from a renewal process with a renewal at each checkpoint. The share of
// recovery is 1 - exp(-R/M), because the failure rate is constant; each counted interval has one
// stall; the remainder is lost.
#include "simulate/goodput.h"

#include <stddef.h>

#include "base/math.h"
#include "base/status.h"
#include "base/text.h"

// Published counts as device seconds per interruption. For sources that give nodes, a node has
// eight devices.
enum { DAY_S = 86400, NODE_DEVICES = 8 };

static const ot_failure_rate rates[] = {
    // 78 % of the unexpected ones had a confirmed or suspected hardware cause.
    {"llama3", 54.0 * DAY_S * 16384 / 419, 0, 0.78,
     "Llama 3 (arXiv:2407.21783, sec. 3.3.4): 419 unexpected interruptions of 16,384 H100 in 54 "
     "days"},
    {"llama3-all", 54.0 * DAY_S * 16384 / 466, 0, 0.78 * 419 / 466,
     "the same with the 47 that were planned"},
    {"rsc-1", 1000.0 * DAY_S *NODE_DEVICES / 6.50, 0, 1,
     "Meta RSC-1 (arXiv:2410.21680): 6.50 failures in 1000 node-days"},
    {"rsc-2", 1000.0 * DAY_S *NODE_DEVICES / 2.34, 0, 1,
     "Meta RSC-2 (arXiv:2410.21680): 2.34 failures in 1000 node-days"},
    {"opt-175b", 124.0 * NODE_DEVICES *DAY_S / 2, 0, 1,
     "OPT-175B (metaseq, projects/OPT/chronicles): two of 124 nodes a day"},
    {"bloom-176b", 384.0 * 7 * DAY_S, 0, 1,
     "BLOOM-176B (bigscience, tr11-176B-ml/chronicles): about one of 384 A100 a week"},
};

const ot_failure_rate *ot_failure_rate_at(int index) {
  return index >= 0 && index < OT_COUNT(rates) ? &rates[index] : NULL;
}

enum { NEWTON_STEPS = 64, MAX_SPARES = 1 << 24 };

// Llama 3 (arXiv:2407.21783, sec. 3.3.1): storage sustains 2 TB/s for 16,384 devices.
static const double default_storage = 2e12 / 16384;
// PCIe gen 4, 16 lanes: bandwidth to the host of the nominal 31.5 GB/s.
static const double default_snapshot = 25e9;
// Opening files, synchronising, renaming: one second is assumed.
static const double default_overhead_s = 1;
// Ten minutes from failure to training for a whole job (arXiv:2602.00277, before its remedies; with
// the rates of Llama 3 it gives the reported goodput of more than 90 %). The split is assumed.
static const double default_detect_s = 60, default_restart_s = 540;
// Repair of a node of eight: a day is assumed.
static const double default_repair_s = 86400;

ot_goodput_request ot_goodput_defaults(int devices, double checkpoint_bytes) {
  return (ot_goodput_request){
      .devices = devices,
      .rate = *ot_failure_rate_at(0),
      .checkpoint_bytes = checkpoint_bytes,
      .storage_bytes_per_s = default_storage * devices,
      .snapshot_bytes_per_s = default_snapshot,
      .overhead_s = default_overhead_s,
      .detect_s = default_detect_s,
      .restart_s = default_restart_s,
      .repair_s = default_repair_s,
      .devices_per_repair = 8,
      .availability = 0.999,
  };
}

// ---- check ----

static ot_status check_checkpoints(const ot_goodput_request *r) {
  OT_CHECK(r->checkpoint_bytes >= 0, OT_USAGE, "goodput: checkpoint_bytes=%g; allowed: at least 0",
           r->checkpoint_bytes);
  OT_CHECK(r->storage_bytes_per_s > 0, OT_USAGE,
           "goodput: storage_bytes_per_s=%g; allowed: above 0", r->storage_bytes_per_s);
  OT_CHECK(r->snapshot_bytes_per_s > 0, OT_USAGE,
           "goodput: snapshot_bytes_per_s=%g; allowed: above 0", r->snapshot_bytes_per_s);
  OT_CHECK(r->overhead_s >= 0, OT_USAGE, "goodput: overhead_s=%g; allowed: at least 0",
           r->overhead_s);
  OT_CHECK(r->checkpoint_bytes + r->overhead_s > 0, OT_USAGE,
           "goodput: a checkpoint of 0 bytes and 0 seconds; give checkpoint_bytes or overhead_s");
  OT_CHECK(r->write_slowdown >= 0 && r->write_slowdown < 1, OT_USAGE,
           "goodput: write_slowdown=%g; allowed: from 0 to below 1", r->write_slowdown);
  OT_CHECK(r->interval_s >= 0, OT_USAGE,
           "goodput: interval_s=%g; allowed: at least 0 (0: the best)", r->interval_s);
  return OT_OK;
}

ot_status ot_goodput_check(const ot_goodput_request *r) {
  OT_CHECK(r->devices >= 1, OT_USAGE, "goodput: devices=%d; allowed: at least 1", r->devices);
  OT_CHECK(r->rate.device_mtbf_s > 0 && r->rate.job_mtbf_s >= 0, OT_USAGE,
           "goodput: device_mtbf_s=%g, job_mtbf_s=%g; allowed: above 0, and at least 0",
           r->rate.device_mtbf_s, r->rate.job_mtbf_s);
  OT_CHECK(r->rate.hardware_share >= 0 && r->rate.hardware_share <= 1, OT_USAGE,
           "goodput: hardware_share=%g; allowed: 0 to 1", r->rate.hardware_share);
  OT_TRY(check_checkpoints(r));
  OT_CHECK(r->detect_s >= 0 && r->restart_s >= 0 && r->repair_s >= 0, OT_USAGE,
           "goodput: detect_s=%g, restart_s=%g, repair_s=%g; allowed: at least 0", r->detect_s,
           r->restart_s, r->repair_s);
  OT_CHECK(r->devices_per_repair >= 1, OT_USAGE,
           "goodput: devices_per_repair=%d; allowed: at least 1", r->devices_per_repair);
  OT_CHECK(r->availability >= 0 && r->availability < 1, OT_USAGE,
           "goodput: availability=%g; allowed: from 0 to below 1", r->availability);
  OT_CHECK(r->train_s >= 0, OT_USAGE, "goodput: train_s=%g; allowed: at least 0", r->train_s);
  return OT_OK;
}

// ---- cost of failures and checkpoints ----

static double mtbf(const ot_goodput_request *r) {
  double per_s = r->devices / r->rate.device_mtbf_s;
  if (r->rate.job_mtbf_s > 0) per_s += 1 / r->rate.job_mtbf_s;
  return 1 / per_s;
}

static void price_checkpoint(const ot_goodput_request *r, ot_goodput *g) {
  const double storage_s = r->checkpoint_bytes / r->storage_bytes_per_s;
  g->recovery_s = r->detect_s + r->restart_s + storage_s;
  if (!r->asynchronous) {
    g->stall_s = r->overhead_s + storage_s;
    return;
  }
  const double copy_s = r->checkpoint_bytes / r->devices / r->snapshot_bytes_per_s;
  g->stall_s = r->overhead_s + copy_s + r->write_slowdown * storage_s;
  g->write_s = storage_s;
}

// exp(x) - 1 without cancellation, x >= 0.
static double exp_minus_1(double x) {
  return x < 1e-5 ? x * (1 + x / 2 * (1 + x / 3)) : ot_exp(x) - 1;
}

// The root of 1 - x = exp(-x - d) in (0, 1), in units of M. The difference of both sides decreases
// and is concave, so Newton's method converges from the right without overshooting.
static double best_interval(double d) {
  double x = 1;
  for (int i = 0; i < NEWTON_STEPS; i++) {
    const double tail = ot_exp(-x - d);
    const double next = x + (1 - x - tail) / (1 - tail);
    if (!(next < x) || next <= 0) break;
    x = next;
  }
  return x;
}

static double young_s(double stall_s, double mtbf_s) { return ot_sqrt(2 * stall_s * mtbf_s); }

double ot_goodput_daly_s(double stall_s, double mtbf_s) {
  const double ratio = stall_s / (2 * mtbf_s);
  if (ratio >= 1) return mtbf_s;
  return young_s(stall_s, mtbf_s) * (1 + ot_sqrt(ratio) / 3 + ratio / 9) - stall_s;
}

static void choose_interval(const ot_goodput_request *r, ot_goodput *g) {
  const double m = g->mtbf_s, d = g->stall_s;
  g->young_s = young_s(d, m);
  g->daly_s = ot_goodput_daly_s(d, m);
  const double best_s = m * best_interval(d / m);
  const double least_s = g->write_s - d;
  g->best_s = best_s > least_s ? best_s : least_s;
  g->interval_s = r->interval_s > 0 ? r->interval_s : g->best_s;
}

static void share_out(ot_goodput *g) {
  const double m = g->mtbf_s, t = g->interval_s, d = g->stall_s;
  const double away_s = g->recovery_s + g->write_s;
  g->productive = t / m / (ot_exp(away_s / m) * exp_minus_1((t + d) / m));
  g->checkpoints = g->productive * d / t;
  g->recovery = 1 - ot_exp(-g->recovery_s / m);
  g->lost = 1 - g->productive - g->checkpoints - g->recovery;
  if (g->lost < 0) g->lost = 0;  // rounding, if nothing fails
  g->first_order = 1 - d / t - (t / 2 + away_s) / m;
}

// ---- spares ----

// The number of nodes in repair is Poisson distributed for any distribution of repair times (Palm
// 1943): the smallest count that is not exceeded during `availability` of the time.
static void count_spares(const ot_goodput_request *r, ot_goodput *g) {
  const double nodes = r->rate.hardware_share * r->devices / r->rate.device_mtbf_s * r->repair_s;
  g->devices_away = nodes * r->devices_per_repair;
  const double log_nodes = nodes > 0 ? ot_log(nodes) : 0;
  double log_term = -nodes, sum = ot_exp(log_term);
  int64_t count = 0;
  while (nodes > 0 && sum < r->availability && count < MAX_SPARES) {
    count++;
    log_term += log_nodes - ot_log((double)count);
    sum += ot_exp(log_term);
    // The rounded sum may never reach availability: stop when terms become negligible.
    if (count > nodes && ot_exp(log_term) < 1e-18) break;
  }
  g->spares = count * r->devices_per_repair;
  g->spares_suffice = sum < 1 ? sum : 1;
}

ot_status ot_goodput_build(const ot_goodput_request *request, ot_goodput *out) {
  OT_TRY(ot_goodput_check(request));
  ot_goodput g = {.mtbf_s = mtbf(request)};
  price_checkpoint(request, &g);
  choose_interval(request, &g);
  // As choose_interval has it: a sum could round to less.
  OT_CHECK(g.interval_s >= g.write_s - g.stall_s, OT_USAGE,
           "goodput: interval_s=%g, but writing a checkpoint takes %g s (try at least %g)",
           g.interval_s, g.write_s, g.write_s - g.stall_s);
  share_out(&g);
  count_spares(request, &g);
  if (request->train_s > 0) {
    g.elapsed_s = request->train_s / g.productive;
    g.interruptions = g.elapsed_s / g.mtbf_s;
  }
  *out = g;
  return OT_OK;
}
