// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cli/document.h"
#include "cli/jobs_command.h"
#include "cli/ops_command.h"
#include "cli/report_command.h"
#include "cli/status_command.h"

namespace plexrl::cli {
namespace {

using nlohmann::json;

TEST(Document, CellsOfEveryType) {
  const json object = {{"s", "text"}, {"i", 7}, {"b", true}, {"f", 1.5}, {"n", nullptr}};
  EXPECT_EQ(cell(object, "s"), "text");
  EXPECT_EQ(cell(object, "i"), "7");
  EXPECT_EQ(cell(object, "b"), "yes");
  EXPECT_EQ(cell(object, "n"), "");
  EXPECT_EQ(cell(object, "missing"), "");
  EXPECT_EQ(cell_seconds(object, "f"), "1.50 s");
  EXPECT_EQ(cell_bytes(object, "s"), "");
  EXPECT_EQ(cell(json("not an object"), "s"), "");
}

TEST(Render, StatusShowsMemoryAndEngines) {
  const json document = json::parse(R"({"node":"n1","pool":"rl","state":"ready","version":"0.1.0",
    "uptime_s":12.5,"policy":"round-robin","device":{"capacity_bytes":1048576,"resident_bytes":524288},
    "host":{"capacity_bytes":2097152,"reserved_bytes":0},"jobs_open":2,"connections":3,"ops_running":1,
    "ops_queued":4,"protocol_errors":0,
    "engines":[{"engine":1,"base":"demo","mode":"full","state":"up","pid":77,"restarts":0,"error":""}]})");
  const std::string text = render_status(document);
  EXPECT_NE(text.find("512.0 KiB resident of 1.0 MiB"), std::string::npos);
  EXPECT_NE(text.find("1 running, 4 queued"), std::string::npos);
  EXPECT_NE(text.find("demo"), std::string::npos);
}

TEST(Render, StatusSaysWhyALeaseIsNotStopped) {
  const json held = json::parse(R"({"lease":{"job_id":7,"state":"held","held_s":2.0,"processes":3,
    "trouble":""}})");
  EXPECT_NE(render_status(held).find("job 7, held"), std::string::npos);
  EXPECT_EQ(render_status(held).find("left"), std::string::npos);
  const json stuck = json::parse(R"({"lease":{"job_id":7,"state":"stopping","held_s":9.0,
    "processes":2,"trouble":"nobody answers"}})");
  EXPECT_NE(render_status(stuck).find("2 processes left: nobody answers"), std::string::npos);
  EXPECT_EQ(render_status(json::parse(R"({"lease":null})")).find("lease"), std::string::npos);
}

TEST(Render, JobsOneRowEach) {
  const json document = json::parse(R"({"jobs":[{"job_id":12,"user":"alice","state":"open",
    "train_mode":"full","share_percent":50,"ops_running":1,"ops_queued":2,"ops_done":30,"device_s":4.5,
    "wait_others_s":1.25,"slowdown_estimate":1.2,"models":[{"resident":true},{"resident":false}]}]})");
  const std::string text = render_jobs(document);
  EXPECT_NE(text.find("alice"), std::string::npos);
  EXPECT_NE(text.find("1/2"), std::string::npos);
  EXPECT_NE(text.find("1.20"), std::string::npos);
}

TEST(Render, OpsSayWhyTheyWait) {
  const json document = json::parse(R"({"ops":[{"op":5,"job_id":12,"user":"alice","kind":"generate",
    "seq":0,"state":"queued","age_s":0.5,"run_s":0,"why":"job 13 of bob has the device"}]})");
  EXPECT_NE(render_ops(document).find("job 13 of bob has the device"), std::string::npos);
}

TEST(Render, ReportListsKindsOfOps) {
  const json document = json::parse(R"({"job_id":12,"user":"alice","state":"closed","wall_s":100.0,
    "models":[{"model":3,"name":"policy","step":60}],
    "ops_by_kind":{"generate":{"count":30,"failed":0,"tokens":107520,"run_s":5.0,"queued_s":1.0}}})");
  const std::string text = render_report(document);
  EXPECT_NE(text.find("policy"), std::string::npos);
  EXPECT_NE(text.find("107520"), std::string::npos);
  EXPECT_NE(text.find("1 min 40 s"), std::string::npos);
}

TEST(Render, EmptyAndStrangeDocumentsDoNotFail) {
  for (const char* text :
       {"{}", R"({"jobs":7,"ops":"x","engines":{},"models":[1,"a"],"lease":{"trouble":7}})"}) {
    const json document = json::parse(text);
    EXPECT_FALSE(render_status(document).empty());
    EXPECT_FALSE(render_jobs(document).empty());
    EXPECT_FALSE(render_ops(document).empty());
    EXPECT_FALSE(render_report(document).empty());
  }
}

}  // namespace
}  // namespace plexrl::cli
