// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_decode.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "cli/bench/temporary_folder.h"

namespace plexrl::cli {
namespace {

// In place of plexrl-engine: makes an empty directory for a model, and one row that has its own
// arguments in it.
class BenchDecode : public testing::Test {
 protected:
  void write_engine(const std::string& bench) {
    options_.engine = folder_.path() + "/engine";
    std::ofstream(options_.engine)
        << "#!/bin/sh\n[ \"$1\" = --bench-decode ] || exec mkdir \"$2\"\n"
        << bench << "\n";
    ASSERT_EQ(::chmod(options_.engine.c_str(), 0755), 0);
  }
  TemporaryFolder folder_ = TemporaryFolder::make().value();
  BenchDecodeOptions options_;
};

TEST_F(BenchDecode, AddsWhatWasMeasuredToTheEnginesRows) {
  write_engine(R"(printf '[{"rows":1,"words":"%s"}]' "$3 $4 $5 $6 $7 $8 $9" > "$2")");
  options_.models = {"tiny", folder_.path() + "/"};
  options_.dtypes = {"bfloat16"};
  options_.threads = 2;
  options_.seconds = 0.25;
  const auto rows = bench_decode(options_);
  ASSERT_TRUE(rows) << rows.error().to_string();
  ASSERT_EQ(rows->size(), 2U);
  EXPECT_EQ((*rows)[0]["model"], "tiny");
  EXPECT_EQ((*rows)[1]["model"], std::filesystem::path(folder_.path()).filename().string());
  for (const auto& row : *rows) {
    EXPECT_EQ(row["bench"], "decode");
    EXPECT_EQ(row["dtype"], "bfloat16");
    EXPECT_EQ(row["threads"], 2);
    EXPECT_EQ(row["rows"], 1);
    const auto words = row["words"].get<std::string>();
    EXPECT_EQ(words.find("--base-dir "), 0U);
    EXPECT_NE(words.find(" --dtype bfloat16 --threads 2 --milliseconds"), std::string::npos);
  }
}

TEST_F(BenchDecode, BothTypesByDefault) {
  write_engine(R"(echo '[{}]' > "$2")");
  options_.models = {"tiny"};
  const auto rows = bench_decode(options_);
  ASSERT_TRUE(rows) << rows.error().to_string();
  ASSERT_EQ(rows->size(), 2U);
  EXPECT_EQ((*rows)[0]["dtype"], "float32");
  EXPECT_EQ((*rows)[1]["dtype"], "bfloat16");
}

TEST_F(BenchDecode, SaysWhatIsWrong) {
  write_engine("echo no luck >&2; exit 1");
  options_.models = {"tiny"};
  auto rows = bench_decode(options_);
  ASSERT_FALSE(rows);
  EXPECT_NE(rows.error().text().find("no luck"), std::string::npos);
  write_engine("echo '{' > \"$2\"");
  EXPECT_NE(bench_decode(options_).error().text().find("wrote no rows"), std::string::npos);
  options_.models = {"smollm2-135m-of-nobody"};
  rows = bench_decode(options_);
  EXPECT_EQ(rows.error().code(), Code::NOT_FOUND);
  EXPECT_NE(rows.error().text().find("make models"), std::string::npos);
}

}  // namespace
}  // namespace plexrl::cli
