// SPDX-License-Identifier: Apache-2.0
// Published counts, turned into seconds of a device for each interruption. Where a source gives
// nodes, one has eight devices.
#include "simulate/failure_rate.h"

#include <stddef.h>

#include "base/status.h"
#include "base/text.h"

enum { HOUR_S = 3600, DAY_S = 86400, NODE_DEVICES = 8 };

static const ot_failure_rate rates[] = {
    // 78 % of the unexpected ones had hardware as their confirmed or suspected cause.
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

const ot_failure_rate *ot_failure_rate_find(const char *name) {
  for (int i = 0; i < OT_COUNT(rates); i++) {
    if (ot_text_equal(rates[i].name, name)) return &rates[i];
  }
  return NULL;
}

const ot_failure_rate *ot_failure_rate_at(int index) {
  return index >= 0 && index < OT_COUNT(rates) ? &rates[index] : NULL;
}
