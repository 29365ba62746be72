// SPDX-License-Identifier: Apache-2.0
// Predicts the same rows repeatedly with changed constants; tools/fit_clusters.py is the client.
#pragma once

#include "published_price.h"

// Reads lines from stdin, {PRESET: {"path.of.key": number, ...}, ...}. Answers each with one line
// {"seconds":{id: seconds of a step},"memory":{id: GB},"exposed":{id: share of the step}} for the
// rows predicted with these constants in place of the presets'. Ends at the end of stdin.
ot_status ot_published_serve(const char *clusters, bool unnamed, const ot_published_rows *rows);
