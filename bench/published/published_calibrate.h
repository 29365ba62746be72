// SPDX-License-Identifier: Apache-2.0
// What a few measured steps of a source improve: some of its rows calibrate (plan/calibrate.h), the
// others are predicted.
#pragma once

#include "published_groups.h"

// Figures of `group` after each of DRAWS seeded draws of `rows` calibrating rows from every source
// that has more; over the other rows of all draws. To the first order: calibrated rates change the
// time of computation and of exposed communication in proportion.
ot_published_figures ot_published_calibrated(const ot_published_prices *prices,
                                             ot_published_group group, int rows, ot_arena *arena);
