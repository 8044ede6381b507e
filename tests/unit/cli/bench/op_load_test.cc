// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/op_load.h"

#include "../../../fakes/fake_service.h"
#include "cli/bench/bench_daemon.h"
#include "cli/bench/bench_op.h"
#include "cli/bench/raw_echo.h"

namespace plexrl::cli {
namespace {

using fakes::FakeService;
using fakes::Verdict;

TimePoint soon() { return system_clock().now() + Duration{2 * kSecond.ns}; }

std::uint64_t make_model(const FakeService& service) {
  auto connection = client::RpcClient::connect({service.socket(), "", "test"}, soon());
  wire::CreateModelT create;
  create.name = "m";
  return connection->call<wire::ModelInfoT>(create, soon())->model;
}

TEST(Percentile, NearestRank) {
  std::vector<double> values = {5, 1, 4, 2, 3};
  EXPECT_DOUBLE_EQ(percentile(values, 50), 3);
  EXPECT_DOUBLE_EQ(percentile(values, 99), 5);
  EXPECT_DOUBLE_EQ(percentile(values, 1), 1);
  std::vector<double> none;
  EXPECT_DOUBLE_EQ(percentile(none, 50), 0);
}

TEST(Medians, ARatioIsThatOfPairs) {
  EXPECT_DOUBLE_EQ(median_gbps(2'000'000'000, {4, 1, 2}), 1);
  // Everything was slow in the second round, and the ratio is that of the others.
  EXPECT_DOUBLE_EQ(median_ratio({1, 30, 2}, {2, 60, 4}), 0.5);
  EXPECT_DOUBLE_EQ(median_ratio({}, {}), 0);
}

TEST(OpLoad, ClosedLoopMeasuresEveryConnection) {
  const FakeService service;
  auto load = OpLoad::connect({service.socket(), "", "test"}, 4, make_model(service), soon());
  ASSERT_TRUE(load.has_value());
  const auto result = load->closed(2, Duration{100 * kMillisecond.ns});
  ASSERT_TRUE(result.has_value()) << result.error().to_string();
  EXPECT_GT(result->ops_per_s, 0);
  EXPECT_GT(result->p50_us, 0);
  EXPECT_GE(result->p99_us, result->p50_us);
}

TEST(OpLoad, OpenLoopSendsTheStatedNumber) {
  const FakeService service;
  auto load = OpLoad::connect({service.socket(), "", "test"}, 3, make_model(service), soon());
  ASSERT_TRUE(load.has_value());
  const auto result = load->open(200, Duration{250 * kMillisecond.ns});
  ASSERT_TRUE(result.has_value()) << result.error().to_string();
  EXPECT_EQ(service.submitted().size(), 50U);
}

// What falls due while the service is silent has waited since then, though it cannot be sent in
// time.
TEST(OpLoad, OpenLoopCountsFromWhenARequestWasDue) {
  FakeService service;
  const std::uint64_t model = make_model(service);
  service.script([](const auto&, std::size_t nth) {
    if (nth == 10) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return Verdict::kAnswer;
  });
  auto load = OpLoad::connect({service.socket(), "", "test"}, 1, model, soon());
  ASSERT_TRUE(load.has_value());
  const auto result = load->open(200, Duration{250 * kMillisecond.ns});
  ASSERT_TRUE(result.has_value()) << result.error().to_string();
  EXPECT_GT(result->p50_us, 50'000);
}

TEST(OpLoad, ARefusalIsReportedNotCounted) {
  FakeService service;
  const std::uint64_t model = make_model(service);
  service.script([](const auto&, std::size_t) { return Verdict::kBusy; });
  auto load = OpLoad::connect({service.socket(), "", "test"}, 1, model, soon());
  EXPECT_EQ(load->closed(1, Duration{50 * kMillisecond.ns}).error().code(), Code::BUSY);
}

std::vector<std::unique_ptr<LoadLink>> raw_links(RawEcho& echo, const ExchangeSizes& sizes) {
  std::vector<std::unique_ptr<LoadLink>> links;
  for (UniqueFd& socket : echo.take_sockets())
    links.push_back(make_raw_link(std::move(socket), sizes));
  return links;
}

TEST(RawEcho, AnswersEveryRequestWithTheSizeOfAReply) {
  const ExchangeSizes sizes{160, 200};
  auto echo = RawEcho::start(2, sizes);
  ASSERT_TRUE(echo.has_value()) << echo.error().to_string();
  const auto links = raw_links(*echo, sizes);
  ASSERT_EQ(links.size(), 2U);
  std::vector<std::uint64_t> answered;
  for (const std::uint64_t id : {1, 2, 3}) ASSERT_TRUE(links[1]->send(id).ok());
  while (answered.size() < 3) ASSERT_TRUE(links[1]->receive(answered).ok());
  EXPECT_EQ(answered, (std::vector<std::uint64_t>{1, 2, 3}));
  ASSERT_TRUE(links[0]->receive(answered).ok());
  EXPECT_EQ(answered.size(), 3U);
}

TEST(RawEcho, CarriesBothKindsOfLoad) {
  const ExchangeSizes sizes{160, 200};
  auto echo = RawEcho::start(4, sizes);
  ASSERT_TRUE(echo.has_value());
  auto load = OpLoad::create(raw_links(*echo, sizes));
  ASSERT_TRUE(load.has_value());
  for (const auto& result : {load->closed(16, Duration{50 * kMillisecond.ns}),
                             load->open(500, Duration{50 * kMillisecond.ns})}) {
    ASSERT_TRUE(result.has_value()) << result.error().to_string();
    EXPECT_GT(result->ops_per_s, 0);
    EXPECT_GT(result->p50_us, 0);
  }
}

TEST(RawEcho, SenselessSizesAreRefused) {
  EXPECT_EQ(RawEcho::start(1, {0, 10}).error().code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(RawEcho::start(1, {10, 0}).error().code(), Code::INVALID_ARGUMENT);
}

TEST(MeasureOp, RowsAreFlatAndComplete) {
  const FakeService service;
  BenchOpOptions options;
  options.clients = 2;
  options.repeats = 1;
  options.seconds = 0.05;
  options.open_rate = 100;
  options.saturation_depth = 2;
  const auto rows = measure_op({service.socket(), "", "test"}, make_model(service), options);
  ASSERT_TRUE(rows.has_value()) << rows.error().to_string();
  ASSERT_EQ(rows->size(), 3U);
  for (const auto& row : *rows)
    for (const char* key : {"clients", "p50_us", "p99_us", "ops_per_s", "saturation_ops_per_s",
                            "raw_p50_us", "raw_p99_us", "raw_ops_per_s"})
      EXPECT_TRUE(row.at(key).is_number()) << key;
}

TEST(MeasureOp, SenselessOptionsAreRefused) {
  BenchOpOptions options;
  options.clients = 0;
  EXPECT_EQ(measure_op({"/nowhere", "", "test"}, 1, options).error().code(),
            Code::INVALID_ARGUMENT);
}

TEST(BenchDaemon, AProgramThatIsNotThereLeavesNothingBehind) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, as the benchmark does";
  char dir[] = "/tmp/plexrl-nobench-XXXXXX";
  ASSERT_NE(::mkdtemp(dir), nullptr);
  ::setenv("TMPDIR", dir, 1);
  EXPECT_EQ(BenchDaemon::start("/nonexistent/plexrld").error().code(), Code::NOT_FOUND);
  ::unsetenv("TMPDIR");
  EXPECT_TRUE(std::filesystem::is_empty(dir));
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace plexrl::cli
