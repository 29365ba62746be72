// SPDX-License-Identifier: Apache-2.0
// Prices the same rows again and again with other constants: what tools/fit_clusters.py talks to.
#pragma once

#include "published_price.h"

// Reads one line after the other from stdin, {PRESET: {"path.of.key": number, ...}, ...}, and
// answers each with one line {"seconds":{id: seconds of a step},"memory":{id: GB}} of the rows that
// are priced with these constants in place of the presets'. Ends at the end of stdin.
ot_status ot_published_serve(const char *clusters, const ot_published_rows *rows);
