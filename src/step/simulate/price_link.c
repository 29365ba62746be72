// SPDX-License-Identifier: Apache-2.0
// Bandwidth: nccl-tests tables (stas00/ml-engineering, 8 x A100, 8 x H200, 4 x 8 x B200). Hop
// latency: NCCL, src/graph/tuning.cc. Both are stored in the cluster's levels.
#include "simulate/price_link.h"

#include "base/extremes.h"
#include "base/math.h"

// All-reduce of 16 GB, ring against switch: 367 / 482 GB/s on 8 x H200, 682 / 846 on 8 x B200.
static const double SWITCH_SHARE = 0.78;
enum { LEAST_SWITCHED = 5 };  // members: fewer use a ring

// A ring enters and leaves a node through the same NIC. The sending device is attached to that NIC
// if it also received there, or if all devices of the node are in the ring; else bytes go through
// the host (NVIDIA, "Doubling all2all Performance with NCCL 2.12", on PXN). A round figure.
static const double SHARE_THROUGH_HOST = 0.5;

// The part of a collective on one level.
typedef struct hop {
  double inside, joined;  // group members within one place; within this level
  double places;          // groups of the next inner level in this level
  const ot_link_level *level;
} hop;

// Bandwidth of a device on a level of `places` for a group with `members` of them. In a full mesh
// it has as many links as there are other members.
static double rate_of(const ot_link_level *level, double members, double places) {
  const double rate = level->bytes_per_s * (level->efficiency > 0 ? level->efficiency : 1);
  return level->mesh && places > 1 ? rate * (members - 1) / (places - 1) : rate;
}

// Members of the group among `size` devices: at least the rank itself.
static double members_in(const ot_group_shape *shape, int size) {
  const int members = size / shape->stride;
  const int most = shape->near > 0 ? shape->near : shape->size;
  return members < 1 ? 1 : ot_smaller(members, most);
}

static bool is_switched(const ot_simulation *simulation, const ot_collective *c, const hop *h) {
  return c->op == OT_OP_ALL_REDUCE && h->level->reduces && simulation->style->switch_reductions &&
         h->joined >= LEAST_SWITCHED;
}

static double steps_of(const ot_simulation *simulation, const ot_collective *c, const hop *h) {
  const double ratio = h->joined / h->inside;
  // Every sender is one hop away from its receiver.
  if (c->op == OT_OP_SHIFT || c->op == OT_OP_ALL_TO_ALL) return 1;
  if (c->op != OT_OP_ALL_REDUCE || is_switched(simulation, c, h)) return ratio - 1;
  return ot_smaller(2 * (ratio - 1), 4 * ot_log2(ratio));
}

static bool goes_through_host(const ot_simulation *simulation, const ot_collective *c,
                              const hop *h) {
  if (c->op == OT_OP_SHIFT || c->op == OT_OP_ALL_TO_ALL) return false;
  const double node = simulation->cluster->level[0].size;
  return !simulation->style->relays && h->inside > 1 && h->inside < node;
}

static double bytes_s(const ot_simulation *simulation, const ot_collective *c, const hop *h) {
  const double n = c->shape.size;
  const double rate = rate_of(h->level, h->joined / h->inside, h->places) *
                      (goes_through_host(simulation, c, h) ? SHARE_THROUGH_HOST : 1);
  switch (c->op) {
    case OT_OP_SHIFT:
      return c->bytes / rate;
    case OT_OP_ALL_TO_ALL:
      return (n - h->inside) / n * c->bytes / rate;
    case OT_OP_ALL_REDUCE:
      return (is_switched(simulation, c, h) ? SWITCH_SHARE : 1) * 2 * (n - 1) / n * c->bytes /
             (h->inside * rate);
    default:
      return (n - 1) / n * c->bytes / (h->inside * rate);
  }
}

double ot_link_collective_s(const ot_simulation *simulation, const ot_collective *collective) {
  const ot_cluster *const cluster = simulation->cluster;
  hop h = {.joined = 1};
  double latency_s = 0, slowest_s = 0;
  for (int i = 0; i < cluster->num_levels && h.joined < collective->shape.size; i++) {
    h.level = &cluster->level[i];
    h.inside = h.joined;
    h.places = (double)h.level->size / (i > 0 ? cluster->level[i - 1].size : 1);
    h.joined = i + 1 == cluster->num_levels ? collective->shape.size
                                            : members_in(&collective->shape, h.level->size);
    if (h.joined == h.inside) continue;
    latency_s += steps_of(simulation, collective, &h) * h.level->latency_s;
    slowest_s = ot_larger(slowest_s, bytes_s(simulation, collective, &h));
  }
  const double root = ot_sqrt(latency_s) + ot_sqrt(slowest_s);
  return root * root;
}

// DeepSeek-AI 2024, DeepSeek-V3, sec. 3.2.2: 20 of 132 processors communicate; Isaev et al. 2023
// (calculon): 15 % of the processors with NVLink, 2 % with InfiniBand. A round figure between both.
static const double LOAD_BY_TIME = 0.25;

double ot_link_load_s(const ot_simulation *simulation, const ot_collective *collective,
                      double device_s) {
  const ot_link_level *const inner = &simulation->cluster->level[0];
  const double n = collective->shape.size;
  const double passes = collective->op == OT_OP_ALL_REDUCE ? 2 : 1;
  const double sent = collective->op == OT_OP_SHIFT ? 1 : passes * (n - 1) / n;
  const double busy_s = sent * collective->bytes / rate_of(inner, 2, 2);
  return LOAD_BY_TIME * device_s + (1 - LOAD_BY_TIME) * ot_smaller(device_s, busy_s);
}

double ot_link_message_s(const ot_link_level *level, double bytes) {
  return level->latency_s + bytes / rate_of(level, 2, level->size);
}
