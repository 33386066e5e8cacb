// Runs the native tests: `headway_tests [part of a case's name]`.
#include "areas.h"

int main(int argc, char** argv) {
  using namespace headway::test;
  Checks checks(argc > 1 ? argv[1] : "");
  test_rng(checks);
  test_exp_log(checks);
  test_sampling_row(checks);
  test_sampling_filters(checks);
  test_sampling_draw(checks);
  test_tensor_types(checks);
  test_worker_pool(checks);
  test_formats(checks);
  test_kernels(checks);
  test_attention(checks);
  test_forward(checks);
  test_invariance(checks);
  test_allocations(checks);
  test_limits(checks);
  return checks.finish();
}
