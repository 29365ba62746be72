// SPDX-License-Identifier: Apache-2.0
// stub
#include "report/run_page.h"
void ot_run_html(const ot_run_page *page, ot_text_builder *out) {
  (void)page;
  ot_text_put(out, "");
}
