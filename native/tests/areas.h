// The areas of the native tests, one file each; main.cpp runs them in this order.
#pragma once

#include "check.h"

namespace headway::test {

void test_rng(Checks& checks);
void test_exp_log(Checks& checks);
void test_sampling_row(Checks& checks);
void test_sampling_filters(Checks& checks);
void test_sampling_draw(Checks& checks);
void test_formats(Checks& checks);
void test_kernels(Checks& checks);
void test_attention(Checks& checks);
void test_forward(Checks& checks);
void test_invariance(Checks& checks);
void test_allocations(Checks& checks);
void test_limits(Checks& checks);
void test_tensor_types(Checks& checks);
void test_worker_pool(Checks& checks);

}  // namespace headway::test
