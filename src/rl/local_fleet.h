// SPDX-License-Identifier: Apache-2.0
// Generators in the process of the trainer, for clocks on which they take turns: simulated and
// replayed. Private to rl/.
#pragma once

#include "rl/rl_state.h"

// Creates the generators of the fleet, with the trainer's weights.
ot_status ot_rl_local_create(ot_rl_state *state);
void ot_rl_local_destroy(ot_rl_state *state);

// What they and the trainer do.
const ot_rl_actions *ot_rl_local_actions(const ot_rl_state *state);
