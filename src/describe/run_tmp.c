#include "describe/run.h"
ot_recompute ot_run_recompute(const ot_run *run, int layer) { return run->parallel.recompute[run->parallel.num_recompute > 1 ? layer : 0]; }
int64_t ot_run_global_batch(const ot_run *run, int64_t step, int64_t tokens) { (void)step; (void)tokens; return run->batch.global_batch_size; }
