// SPDX-License-Identifier: Apache-2.0
#include "cli/train_curve.h"

#include <gtest/gtest.h>

#include <iterator>

namespace plexrl::cli {
namespace {

std::string step(int number, const std::string& fields) {
  return R"({"phase":"grpo","step":)" + std::to_string(number) + "," + fields + "}\n";
}

TEST(TrainCurve, TakesTheSeriesOfAllPhases) {
  const auto curve = TrainCurve::parse(
      R"({"phase":"sft","step":1,"loss":3.5})"
      "\n" +
      step(1, R"("reward":0.25,"kl":0.5)") + step(2, R"("reward":0.75)") +
      R"({"phase":"evaluation","step":2,"greedy":0.5,"sampled":0.4,"prompts":8})");
  ASSERT_TRUE(curve.has_value()) << curve.error().to_string();
  EXPECT_EQ(curve->series(kRewardColumn), (Series{{1, 0.25}, {2, 0.75}}));
  EXPECT_EQ(curve->series(kGreedyColumn), (Series{{2, 0.5}}));
  EXPECT_EQ(curve->ignored_lines(), 0U);
  const auto document = curve->to_json();
  EXPECT_EQ(document["steps"], 2);
  EXPECT_EQ(document["series"]["grpo/kl"], (nlohmann::json{{1, 0.5}}));
  EXPECT_FALSE(document["series"].contains("grpo/entropy"));
}

TEST(TrainCurve, AResumedRunSpeaksLast) {
  const auto curve = TrainCurve::parse(step(1, R"("reward":0.1)") + step(2, R"("reward":0.2)") +
                                       step(2, R"("reward":0.3)"));
  EXPECT_EQ(curve->series(kRewardColumn), (Series{{1, 0.1}, {2, 0.3}}));
}

TEST(TrainCurve, WhatIsNoRecordIsCountedAndLeftOut) {
  const std::string bad[] = {
      "garbage",
      "[1,2]",
      "null",
      std::string(100'000, '['),
      std::string("\0\x1b[31m\xff", 7),
      R"({"phase":"grpo","step":-1,"reward":1})",
      R"({"phase":"grpo","step":1e300,"reward":1})",
      R"({"phase":"grpo","step":18446744073709551615,"reward":1})",
      R"({"phase":["grpo"],"step":1,"reward":1})",
      R"({"phase":"grpo","step":1,"reward":1e999})",
      R"({"phase":"grpo","step":1,"note":")" + std::string(70'000, 'x') + R"(","reward":1})",
      R"({"phase":"grpo","step":2,"rew)",
  };
  std::string text = step(1, R"("reward":0.5)");
  for (const std::string& line : bad) text += line + "\n";
  const auto curve = TrainCurve::parse(text);
  ASSERT_TRUE(curve.has_value());
  EXPECT_EQ(curve->series(kRewardColumn), (Series{{1, 0.5}}));
  EXPECT_EQ(curve->ignored_lines(), std::size(bad));
}

TEST(TrainCurve, FieldsOfAnotherKindAreNotThere) {
  const auto curve =
      TrainCurve::parse(step(1, R"("reward":0.5,"kl":"<b>","entropy":null,"clip_fraction":1e300)"));
  ASSERT_TRUE(curve.has_value());
  EXPECT_EQ(curve->to_json()["series"].size(), 1U);
}

TEST(TrainCurve, AFileWithoutAStepIsRefused) {
  for (const char* text : {"", "\n\n", "nothing\n", "{}\n"})
    EXPECT_EQ(TrainCurve::parse(text).error().code(), Code::INVALID_ARGUMENT) << text;
  EXPECT_EQ(TrainCurve::read("/nonexistent/log").error().code(), Code::NOT_FOUND);
}

TEST(TrainCurve, BinsAreMeansOfRunsOfSteps) {
  Series series;
  for (std::uint64_t i = 1; i <= 10; ++i) series[i] = static_cast<double>(i);
  const std::vector<std::pair<double, double>> expected = {{2, 2}, {5, 5}, {8.5, 8.5}};
  EXPECT_EQ(binned(series, 3), expected);
  EXPECT_EQ(binned(series, 100).size(), 10U);
  EXPECT_TRUE(binned({}, 3).empty());
}

TEST(TrainCurve, TheDrawingRisesWithTheReward) {
  std::string text;
  for (int i = 1; i <= 200; ++i) text += step(i, R"("reward":)" + std::to_string(i / 200.0));
  const auto curve = TrainCurve::parse(text + "junk\n");
  const std::string drawn = render_curve(*curve);
  const auto top = drawn.find("0.99"), bottom = drawn.find("0.01");
  ASSERT_NE(top, std::string::npos);
  ASSERT_NE(bottom, std::string::npos);
  const auto column = [&](std::size_t from) {
    return drawn.find('*', from) - drawn.rfind('\n', from);
  };
  EXPECT_GT(column(top), column(bottom) + 50);
  EXPECT_NE(drawn.find("1 lines are no records"), std::string::npos);
  EXPECT_NE(drawn.find("SERIES"), std::string::npos);
}

TEST(TrainCurve, OneStepOrEqualRewardsOrExtremesCanBeDrawn) {
  for (const std::string& text :
       {step(1, R"("reward":0)"), step(5, R"("reward":1)") + step(9, R"("reward":1)"),
        step(0, R"("reward":-1e12)") + step(1'000'000, R"("reward":1e12)")}) {
    const auto curve = TrainCurve::parse(text);
    ASSERT_TRUE(curve.has_value());
    EXPECT_NE(render_curve(*curve).find('*'), std::string::npos) << text;
    EXPECT_EQ(curve_page(*curve, "t").find("nan"), std::string::npos) << text;
  }
}

TEST(TrainCurve, ThePageEscapesItsTitleAndLoadsNothing) {
  const auto curve = TrainCurve::parse(step(1, R"("reward":0.5,"kl":0.25)"));
  const std::string page = curve_page(*curve, "</title><script>alert(1)</script>\x1b&");
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_NE(page.find("&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;?&amp;"),
            std::string::npos);
  EXPECT_EQ(page.find("http://"), std::string::npos);
  EXPECT_EQ(page.find("https://"), std::string::npos);
  EXPECT_NE(page.find("KL from the base"), std::string::npos);
  EXPECT_NE(page.find("<polyline"), std::string::npos);
}

}  // namespace
}  // namespace plexrl::cli
