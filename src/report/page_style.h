// SPDX-License-Identifier: Apache-2.0
// The style of a plan's page: colours for light and dark, wide and narrow screens, and print. The
// colours of terms keep apart for the colour-blind.
#pragma once

extern const char *const ot_page_style[];  // parts of the style sheet, null after the last
