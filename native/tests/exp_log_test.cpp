#include "../src/sampling/exp_log.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "areas.h"

namespace headway::test {

void test_exp_log(Checks& checks) {
  checks.run("exp_log: exp is within 2 ulp of the exact value", [&] {
    double worst = 0.0;
    for (float x = 0.0F; x > -87.0F; x -= 0.00137F) {
      const float got = exp_nonpositive4(Float4{x, x, x, x})[2];
      const double exact = std::exp(double{x});
      worst = std::max(worst, std::abs(double{got} - exact) / (exact * 0x1p-23));
    }
    CHECK(worst < 2.0);
  });

  checks.run("exp_log: exp at the ends of its range", [&] {
    const float infinity = std::numeric_limits<float>::infinity();
    const Float4 got = exp_nonpositive4(Float4{0.0F, -infinity, -87.5F, -std::numeric_limits<float>::max()});
    CHECK_EQ(got[0], 1.0F);
    CHECK_EQ(got[1], 0.0F);
    CHECK_EQ(got[2], 0.0F);
    CHECK_EQ(got[3], 0.0F);
    const float smallest = exp_nonpositive4(splat4(-87.0F))[0];
    CHECK(smallest >= std::numeric_limits<float>::min());  // never subnormal
  });

  checks.run("exp_log: a lane's result does not depend on its neighbours", [&] {
    const Float4 together = exp_nonpositive4(Float4{-1.5F, -80.0F, -0.001F, -33.0F});
    for (const auto& [lane, x] : {std::pair{0, -1.5F}, {1, -80.0F}, {2, -0.001F}, {3, -33.0F}}) {
      CHECK_EQ(together[lane], exp_nonpositive4(splat4(x))[0]);
    }
  });

  checks.run("exp_log: log is within 2 ulp of the exact value", [&] {
    double worst = 0.0;
    for (double x = 1e-6; x < 2e6; x *= 1.00037) {
      const auto exact = std::log(static_cast<long double>(x));
      const auto error = static_cast<double>(std::abs(log_positive(x) - exact));
      const double ulp = std::max(std::abs(static_cast<double>(exact)), 0.01) * 0x1p-52;
      worst = std::max(worst, error / ulp);
    }
    CHECK(worst < 2.0);
    CHECK_EQ(log_positive(1.0), 0.0);
  });
}

}  // namespace headway::test
