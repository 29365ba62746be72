// SPDX-License-Identifier: Apache-2.0
// Ignored signals stay ignored over exec, so they are set back.
#include "host/child_setup.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/status.h"

void ot_child_setup(int last_signal) {
  static const int defaults[] = {SIGPIPE, SIGXFSZ, SIGTERM, SIGINT, SIGUSR1};
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, last_signal, 0, 0, 0);
  for (int i = 0; i < OT_COUNT(defaults); i++) signal(defaults[i], SIG_DFL);
}
