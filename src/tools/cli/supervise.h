// SPDX-License-Identifier: Apache-2.0
// `orthant train --supervise`: starts the run as a child process, watches it, and starts it again
// after failures (launch/restart_policy.h).
#pragma once

#include "cli/options.h"
#include "files/config_file.h"

// Supervises the run that `config` describes, named by argument 0 of `options`, on --ranks threads
// or with the launcher after `--`. Returns the exit code of its last process. Blocks.
ot_status ot_supervise(const ot_options *options, const ot_config *config);
