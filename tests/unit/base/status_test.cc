// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/result.h"
#include "plexrl/plexrl.h"

namespace plexrl {
namespace {

TEST(Status, OkByDefault) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.to_string(), "OK");
}

TEST(Status, DetailGrowsOutwardAndKeepsTheCode) {
  const Status status = error(Code::CORRUPT, "chunk %d: checksum", 12).within("segment optimizer");
  EXPECT_EQ(status.code(), Code::CORRUPT);
  EXPECT_EQ(status.to_string(), "CORRUPT: segment optimizer: chunk 12: checksum");
}

TEST(Status, WithinLeavesOkAlone) { EXPECT_TRUE(Status().within("context").ok()); }

TEST(Status, ScopeComesFromTheTable) {
  EXPECT_EQ(code_scope(Code::BUSY), Scope::kRetry);
  EXPECT_EQ(code_scope(Code::AUTH), Scope::kTenant);
  EXPECT_EQ(code_scope(Code::INTERNAL), Scope::kNode);
}

TEST(Status, NumbersFromAPeerThatAreNotInTheTableBecomeInternal) {
  EXPECT_EQ(code_from_wire(1), Code::BUSY);
  EXPECT_EQ(code_from_wire(4711), Code::INTERNAL);
  EXPECT_EQ(code_from_wire(-1), Code::INTERNAL);
}

TEST(Status, ErrnoTextIsAppended) {
  const Status status = errno_error(Code::IO, 28, "write '%s'", "x");
  EXPECT_EQ(status.text(), "write 'x': No space left on device");
}

TEST(Status, CEnumHasTheSameNumbers) {
#define PLEXRL_ERROR(name, value, scope, text) \
  EXPECT_EQ(static_cast<int>(PLEXRL_##name), static_cast<int>(Code::name));
#include "base/errors.def"
#undef PLEXRL_ERROR
}

Result<std::unique_ptr<int>> make(bool good) {
  if (!good) return error(Code::NOT_FOUND, "no number");
  return std::make_unique<int>(7);
}

Result<int> use(bool good) {
  PLEXRL_ASSIGN(const auto number, make(good));
  return *number;
}

TEST(Result, AssignPassesTheErrorOn) {
  EXPECT_EQ(use(true).value(), 7);
  EXPECT_EQ(use(false).error().code(), Code::NOT_FOUND);
}

TEST(ResultDeathTest, ValueOfAnErrorAborts) {
  EXPECT_DEATH((void)use(false).value(), "NOT_FOUND: no number");
}

}  // namespace
}  // namespace plexrl
