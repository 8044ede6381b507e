// SPDX-License-Identifier: Apache-2.0
#include "sim/distribution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace plexrl::sim {
namespace {

using Kind = Distribution::Kind;

TEST(Distribution, NormalQuantilesAreThoseOfTheTables) {
  EXPECT_NEAR(normal_upper_quantile(0.5), 0, 1e-6);
  EXPECT_NEAR(normal_upper_quantile(0.025), 1.959964, 1e-5);
  EXPECT_NEAR(normal_upper_quantile(0.01), 2.326348, 1e-5);
  EXPECT_NEAR(normal_upper_quantile(1e-9), 5.997807, 1e-4);
  EXPECT_NEAR(normal_upper_quantile(0.975), -1.959964, 1e-5);
}

TEST(Distribution, LognormalHasTheRatioOfTheSource) {
  // p99 / median 10 (facts on lengths) is sigma 0.99.
  const Distribution lengths{Kind::kLognormal, 100, 0.99};
  EXPECT_NEAR(lengths.quantile(0.99) / lengths.quantile(0.5), 10, 0.1);
  EXPECT_NEAR(lengths.mean(), 100 * std::exp(0.99 * 0.99 / 2), 2);
}

TEST(Distribution, LongestIsTheLongestOfMany) {
  const Distribution one{Kind::kLognormal, 1, 0.99};
  Distribution longest = one;
  longest.kind = Kind::kLongest;
  longest.samples = 50;
  double sum = 0;
  constexpr int kBatches = 4000;
  for (int batch = 0; batch < kBatches; ++batch) {
    Draws draws(7, static_cast<std::uint64_t>(batch), DrawFor::kStep);
    double top = 0;
    for (int i = 0; i < 50; ++i) top = std::max(top, one.draw(draws));
    sum += top;
  }
  EXPECT_NEAR(longest.mean() / (sum / kBatches), 1, 0.02);
}

TEST(Distribution, CapsAndScales) {
  Distribution capped{Kind::kLongest, 100, 1};
  capped.samples = 1000;
  capped.max = 500;
  capped.scale = 2;
  EXPECT_DOUBLE_EQ(capped.quantile(0.99), 1000);
  EXPECT_LE(capped.mean(), 1000);
  EXPECT_DOUBLE_EQ(Distribution::constant(3).mean(), 3);
  Distribution uniform{Kind::kUniform};
  uniform.min = 2;
  uniform.max = 4;
  EXPECT_NEAR(uniform.mean(), 3, 1e-9);
  EXPECT_NEAR((Distribution{Kind::kExponential, 5}.mean()), 5, 0.05);
}

TEST(Distribution, RefusesNonsense) {
  EXPECT_TRUE(Distribution{}.check().ok());
  EXPECT_FALSE(Distribution::constant(-1).check().ok());
  EXPECT_FALSE(Distribution::constant(std::nan("")).check().ok());
  EXPECT_FALSE((Distribution{Kind::kLognormal, 1, 6}).check().ok());
  Distribution wrong{Kind::kUniform};
  wrong.min = 1;
  EXPECT_FALSE(wrong.check().ok());
  Distribution none{Kind::kLongest, 1, 1};
  none.samples = 0;
  EXPECT_FALSE(none.check().ok());
}

TEST(Draws, BelongToTheirKey) {
  Draws a(1, 2, DrawFor::kStep, 3), b(1, 2, DrawFor::kStep, 3), c(1, 2, DrawFor::kStep, 4);
  const double first = a.uniform();
  EXPECT_EQ(first, b.uniform());
  EXPECT_NE(first, c.uniform());
  EXPECT_NE(first, a.uniform());
  double sum = 0;
  for (int i = 0; i < 20000; ++i) {
    const double u = a.uniform();
    ASSERT_GT(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 20000, 0.5, 0.01);
}

}  // namespace
}  // namespace plexrl::sim
