// SPDX-License-Identifier: Apache-2.0
#include "client/hook_client.h"

#include "../../fakes/fake_service.h"
#include "client/query.h"

namespace plexrl::client {
namespace {

TimePoint in_ms(std::int64_t ms) { return system_clock().now() + Duration{ms * kMillisecond.ns}; }

TEST(HookClient, OpenAttachClose) {
  const fakes::FakeService service;
  EXPECT_TRUE(open_job(service.socket(), 12, 1000, 1001, "pool=p", in_ms(10'000)).ok());
  EXPECT_EQ(service.opened().job_id, 12U);
  EXPECT_EQ(service.opened().grant, "pool=p");
  const auto task = attach_task(service.socket(), 12, 1000, ::getpid(), in_ms(10'000));
  ASSERT_TRUE(task.has_value());
  EXPECT_EQ(task->token, "secret");
  EXPECT_TRUE(close_job(service.socket(), 12, in_ms(10'000)).ok());  // the fake knows no job
}

TEST(HookClient, NobodyListening) {
  fakes::FakeService service;
  service.stop();
  EXPECT_EQ(open_job(service.socket(), 1, 1, 1, "", in_ms(50)).code(), Code::UNAVAILABLE);
  EXPECT_EQ(close_job(service.socket(), 1, in_ms(50)).code(), Code::UNAVAILABLE);
}

TEST(HookClient, AttachWaitsForTheServiceUntilItsDeadline) {
  fakes::FakeService service;
  service.stop();
  const TimePoint start = system_clock().now();
  EXPECT_EQ(attach_task(service.socket(), 1, 1, 1, in_ms(120)).error().code(), Code::UNAVAILABLE);
  EXPECT_GE((system_clock().now() - start).ns, 50 * kMillisecond.ns);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(80));
    service.start();
  });
  EXPECT_TRUE(attach_task(service.socket(), 1, 1, 1, in_ms(2000)).has_value());
  later.join();
}

TEST(HookClient, AServiceThatDoesNotAnswerTimesOut) {
  char name[] = "/tmp/plexrl-mute-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  const std::string path = std::string(name) + "/s";
  const auto listener = wire::listen_unix(path, 0600);
  ASSERT_TRUE(listener.has_value());
  EXPECT_EQ(open_job(path, 1, 1, 1, "", in_ms(40)).code(), Code::TIMEOUT);
  std::filesystem::remove_all(name);
}

TEST(Query, OneDocument) {
  const fakes::FakeService service;
  const auto json = query({service.socket(), "", "test"}, wire::QueryKind::Jobs, 3, in_ms(10'000));
  ASSERT_TRUE(json.has_value());
  EXPECT_EQ(*json, "{\"job\":3}");
}

TEST(Query, KindsByName) {
  EXPECT_EQ(parse_query_kind("metrics"), wire::QueryKind::Metrics);
  EXPECT_FALSE(parse_query_kind("Metrics").has_value());
}

TEST(Administer, TheServicesRefusalIsTheStatus) {
  const fakes::FakeService service;
  EXPECT_EQ(
      administer({service.socket(), "", "test"}, wire::AdminVerb::Drain, 0, in_ms(10'000)).code(),
      Code::UNSUPPORTED);
}

TEST(HookClient, ATaskGetsThePairsOfItsClients) {
  const TaskEnvironment task{"/run/s", "abc", "http://127.0.0.1:585"};
  const EnvPairs own = {{"PLEXRL_SOCKET", "/run/s"}, {"PLEXRL_TOKEN", "abc"}};
  EXPECT_EQ(variables_of(task, {}).value(), own);
  EnvPairs both = own;
  both.insert(both.end(), {{"PLEXRL_BASE_URL", "http://127.0.0.1:585"},
                           {"TINKER_BASE_URL", "http://127.0.0.1:585"},
                           {"TINKER_API_KEY", "tml-abc"},
                           {"OPENAI_BASE_URL", "http://127.0.0.1:585/v1"},
                           {"OPENAI_API_KEY", "abc"}});
  EXPECT_EQ(variables_of(task, {"tinker", "openai"}).value(), both);
  EXPECT_EQ(variables_of({"/run/s", "abc"}, {"tinker"}).error().code(), Code::UNAVAILABLE);
}

}  // namespace
}  // namespace plexrl::client
