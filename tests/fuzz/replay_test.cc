// SPDX-License-Identifier: Apache-2.0
// Replays the corpus of the fuzz targets, and every input with its bytes damaged in turn.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "targets.h"

namespace plexrl::fuzz {
namespace {

using Target = void (*)(std::span<const std::uint8_t>);

std::vector<std::uint8_t> read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int replay(const char* corpus, Target target) {
  int inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::string(PLEXRL_SRCDIR "/tests/fuzz/corpus/") + corpus)) {
    const std::vector<std::uint8_t> bytes = read_bytes(entry.path());
    target(bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      std::vector<std::uint8_t> damaged = bytes;
      damaged[i] ^= 0xff;
      target(damaged);
      damaged.resize(i);
      target(damaged);
    }
    ++inputs;
  }
  return inputs;
}

TEST(FuzzCorpus, Frame) { EXPECT_GE(replay("frame", fuzz_frame), 5); }
TEST(FuzzCorpus, Message) { EXPECT_GE(replay("message", fuzz_message), 5); }
TEST(FuzzCorpus, Gguf) { EXPECT_GE(replay("gguf", fuzz_gguf), 1); }
TEST(FuzzCorpus, Safetensors) { EXPECT_GE(replay("safetensors", fuzz_safetensors), 5); }
TEST(FuzzCorpus, Chat) { EXPECT_GE(replay("chat", fuzz_chat), 3); }
TEST(FuzzCorpus, HttpBody) { EXPECT_GE(replay("http_body", fuzz_http_body), 5); }
TEST(FuzzCorpus, Tinker) { EXPECT_GE(replay("tinker", fuzz_tinker), 7); }
TEST(FuzzCorpus, Tokenizer) { EXPECT_GE(replay("tokenizer", fuzz_tokenizer), 3); }
TEST(FuzzCorpus, EngineMessage) { EXPECT_GE(replay("engine_message", fuzz_engine_message), 3); }

}  // namespace
}  // namespace plexrl::fuzz
