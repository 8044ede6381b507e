// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace plexrl::runtime {
namespace {

class FakeUsers final : public device::DeviceUsers {
 public:
  Result<std::set<pid_t>> pids() override {
    ++calls;
    if (broken) return error(Code::IO, "no answer");
    return now;
  }
  std::set<pid_t> now;
  bool broken = false;
  int calls = 0;
};

class DeviceWatchTest : public ::testing::Test {
 protected:
  void look(std::set<pid_t> allowed = {}) {
    at_ = watch_.tick(at_, [&] { return allowed; });
  }
  FakeUsers users_;
  DeviceWatch watch_{&users_};
  TimePoint at_{1};
};

TEST_F(DeviceWatchTest, EnginesAndTheHolderAreNoStrangers) {
  users_.now = {10, 11};
  for (int i = 0; i < 3; ++i) look({10, 11, 12});
  EXPECT_TRUE(watch_.strangers().empty());
  EXPECT_EQ(watch_.found(), 0U);
}

TEST_F(DeviceWatchTest, OneThatStaysIsReportedOnce) {
  users_.now = {::getpid()};
  look();
  EXPECT_TRUE(watch_.strangers().empty()) << "it may be letting go";
  look();
  ASSERT_EQ(watch_.strangers().size(), 1U);
  EXPECT_EQ(watch_.strangers().at(::getpid()), ::getuid());
  for (int i = 0; i < 3; ++i) look();
  EXPECT_EQ(watch_.found(), 1U);
  users_.now.clear();
  look();
  EXPECT_TRUE(watch_.strangers().empty());
}

TEST_F(DeviceWatchTest, ADriverThatDoesNotAnswerChangesNothing) {
  users_.now = {::getpid()};
  look();
  look();
  users_.broken = true;
  look();
  EXPECT_EQ(watch_.strangers().size(), 1U);
}

TEST_F(DeviceWatchTest, LooksOnlyWhenItIsTime) {
  (void)watch_.tick(TimePoint{1}, [] { return std::set<pid_t>{}; });
  (void)watch_.tick(TimePoint{2}, [] { return std::set<pid_t>{}; });
  EXPECT_EQ(users_.calls, 1);
}

TEST(DeviceWatch, WithoutADriverThereIsNothingToDo) {
  DeviceWatch watch(nullptr);
  EXPECT_EQ(watch.tick(TimePoint{1}, [] { return std::set<pid_t>{}; }).ns, 0);
}

TEST(NvmlUsers, AMissingLibraryIsAClearError) {
  const auto users = device::open_nvml_users("libnvidia-ml-that-nobody-has.so.1");
  ASSERT_FALSE(users);
  EXPECT_EQ(users.error().code(), Code::UNSUPPORTED);
}

}  // namespace
}  // namespace plexrl::runtime
