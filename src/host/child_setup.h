// SPDX-License-Identifier: Apache-2.0
// What every process that this one starts needs before its program runs.
#pragma once

// In the new process, after fork; only calls that are safe there. It leads a process group of its
// own, gets `last_signal` when its parent dies, and has the default actions of the signals that
// this program ignores or handles.
void ot_child_setup(int last_signal);
