// SPDX-License-Identifier: Apache-2.0
#include "models/hf_import.h"

#include <sys/file.h>
#include <sys/stat.h>

#include "models/checksums.h"
#include "small_model.h"

namespace plexrl::model {
namespace {

namespace fs = std::filesystem;

class HfImportTest : public ::testing::Test {
 protected:
  Result<ImportedFiles> import(bool link = false) {
    return import_hf({dir_ / "in", dir_ / "out", link}, progress_,
                     [](const std::string&) { return Status(); });
  }
  // The import ends at its `calls`th block.
  void stop_after(int calls) {
    progress_ = [calls, seen = 0](std::uint64_t, std::uint64_t) mutable { return ++seen < calls; };
  }
  [[nodiscard]] bool same(const std::string& name) const {
    return read_bytes(dir_ / ("in/" + name)) == read_bytes(dir_ / ("out/" + name));
  }
  TemporaryDirectory dir_;
  FileProgress progress_ = [](std::uint64_t, std::uint64_t) { return true; };
};

TEST_F(HfImportTest, BringsShardsAndTheirChecksums) {
  write_small_model(dir_ / "in", DType::kBF16, true);
  write_bytes(dir_ / "in/tokenizer.json", "{}");
  write_bytes(dir_ / "in/chat_template.jinja", "{{ messages }}");
  write_bytes(dir_ / "in/pytorch_model.bin", "pickle");
  const auto result = import();
  ASSERT_TRUE(result.has_value()) << result.error().to_string();
  EXPECT_EQ(result->files.size(), 7U);
  EXPECT_EQ(result->files.back(), "config.json");
  EXPECT_EQ(result->left_out, std::vector<std::string>{"pytorch_model.bin"});
  EXPECT_EQ(result->resumed_bytes, 0U);
  const auto sums = read_checksums(dir_ / "out");
  ASSERT_TRUE(sums.has_value()) << sums.error().to_string();
  EXPECT_EQ(sums->size(), 7U);
  for (const auto& [name, sum] : *sums) {
    EXPECT_TRUE(same(name)) << name;
    EXPECT_EQ(*file_sha256(dir_ / ("in/" + name), [](std::uint64_t) { return true; }), sum);
  }
  EXPECT_EQ(sums->at("tokenizer.json"),
            "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
  EXPECT_FALSE(fs::exists(dir_ / "out.partial"));
  EXPECT_FALSE(fs::exists(dir_ / "out/plexrl-import.json"));
}

// At every place where it can be stopped: nothing that looks whole, and the next import ends well.
TEST_F(HfImportTest, GoesOnFromWhereverItWasStopped) {
  write_small_model(dir_ / "in", DType::kF32, true);
  write_bytes(dir_ / "in/vocab.json", std::string(5U << 20, 'v'));
  int stops = 0;
  for (int calls = 1;; ++calls) {
    stop_after(calls);
    if (import().has_value()) break;
    ++stops;
    EXPECT_FALSE(fs::exists(dir_ / "out"));
    ASSERT_TRUE(fs::exists(dir_ / "out.partial"));
    progress_ = [](std::uint64_t, std::uint64_t) { return true; };
    const auto result = import();
    ASSERT_TRUE(result.has_value()) << result.error().to_string();
    EXPECT_GT(result->resumed_bytes, 0U);
    for (const std::string& name : result->files) EXPECT_TRUE(same(name)) << name;
    fs::remove_all(dir_ / "out");
  }
  EXPECT_GE(stops, 8);
}

TEST_F(HfImportTest, ConfigComesLast) {
  write_small_model(dir_ / "in");
  for (int calls = 1; calls < 4; ++calls) {
    stop_after(calls);
    EXPECT_EQ(import().error().code(), Code::CANCELLED);
    EXPECT_FALSE(fs::exists(dir_ / "out.partial/config.json"));
    EXPECT_EQ(fs::exists(dir_ / "out.partial/model.safetensors"), calls == 3);
    fs::remove_all(dir_ / "out.partial");
  }
}

TEST_F(HfImportTest, WhatIsThereCountsOnlyWhereItIsTheSame) {
  write_small_model(dir_ / "in");
  write_bytes(dir_ / "in/vocab.json", "12345");
  stop_after(3);
  EXPECT_EQ(import().error().code(), Code::CANCELLED);
  // What a power cut left of a file that was not synced, and one that was finished and has changed.
  const std::string part = dir_ / "out.partial/model.safetensors.part";
  std::string text = read_bytes(part);
  ASSERT_GT(text.size(), 500U);
  std::fill(text.begin() + 100, text.begin() + 500, '\0');
  write_bytes(part, text);
  ASSERT_TRUE(fs::exists(dir_ / "out.partial/vocab.json"));
  write_bytes(dir_ / "in/vocab.json", "123456");
  write_bytes(dir_ / "out.partial/stranger.json", "{}");
  progress_ = [](std::uint64_t, std::uint64_t) { return true; };
  const auto result = import();
  ASSERT_TRUE(result.has_value()) << result.error().to_string();
  for (const std::string& name : result->files) EXPECT_TRUE(same(name)) << name;
  EXPECT_FALSE(fs::exists(dir_ / "out/stranger.json"));
}

TEST_F(HfImportTest, AnotherSourceStartsAnew) {
  write_small_model(dir_ / "in");
  stop_after(3);
  EXPECT_FALSE(import().has_value());
  fs::rename(dir_ / "in", dir_ / "first");
  write_small_model(dir_ / "in", DType::kF16, true);
  progress_ = [](std::uint64_t, std::uint64_t) { return true; };
  ASSERT_TRUE(import().has_value());
  EXPECT_FALSE(fs::exists(dir_ / "out/model.safetensors"));
}

TEST_F(HfImportTest, LinksToTheWeights) {
  write_small_model(dir_ / "in");
  ASSERT_TRUE(import(true).has_value());
  EXPECT_EQ(fs::hard_link_count(dir_ / "out/model.safetensors"), 2U);
  EXPECT_EQ(fs::hard_link_count(dir_ / "out/config.json"), 1U);
}

TEST_F(HfImportTest, Refusals) {
  EXPECT_EQ(import().error().code(), Code::NOT_FOUND);
  write_small_model(dir_ / "in");
  fs::create_directory(dir_ / "out");
  EXPECT_EQ(import().error().code(), Code::EXISTS);
  fs::remove(dir_ / "out");
  fs::create_directory(dir_ / "out.partial");
  {
    const UniqueFd held(::open((dir_ / "out.partial").c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
    EXPECT_EQ(import().error().code(), Code::BUSY);
  }
  fs::remove(dir_ / "in/config.json");
  ASSERT_EQ(::mkfifo((dir_ / "in/config.json").c_str(), 0600), 0);
  EXPECT_EQ(import().error().code(), Code::INVALID_ARGUMENT);
  EXPECT_FALSE(fs::exists(dir_ / "out"));
}

// `check` has the last word, and nothing gets the name before.
TEST_F(HfImportTest, WhatTheCheckSaysCounts) {
  write_small_model(dir_ / "in");
  std::string seen;
  const auto result =
      import_hf({dir_ / "in", dir_ / "out", false}, progress_, [&](const auto& dir) {
        seen = dir;
        return fs::exists(dir_ / "out") ? Status() : error(Code::UNSUPPORTED, "no");
      });
  EXPECT_EQ(result.error().code(), Code::UNSUPPORTED);
  EXPECT_EQ(seen, dir_ / "out.partial");
}

}  // namespace
}  // namespace plexrl::model
