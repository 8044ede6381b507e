// SPDX-License-Identifier: Apache-2.0
#include "models/gguf_import.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "models/safetensors.h"
#include "small_gguf.h"
#include "small_model.h"
#include "tokenizer/tokenizer.h"

namespace plexrl::model {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kWidth = 8, kInner = 12, kHeads = 2, kHead = 4, kVocabulary = 6;

class ImportTest : public ::testing::Test {
 protected:
  ImportTest() {
    std::string name = "/tmp/plexrl-import.XXXXXX";
    dir_ = ::mkdtemp(name.data());
  }
  ~ImportTest() override { fs::remove_all(dir_); }

  static SmallGguf header(const std::string& arch, const std::string& pre = "qwen2") {
    SmallGguf file;
    file.string("general.architecture", arch);
    file.integer(arch + ".block_count", 1).integer(arch + ".embedding_length", kWidth);
    file.integer(arch + ".feed_forward_length", kInner).integer(arch + ".context_length", 64);
    file.integer(arch + ".attention.head_count", kHeads);
    file.integer(arch + ".attention.head_count_kv", 1);
    file.real(arch + ".attention.layer_norm_rms_epsilon", 1e-5F);
    file.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", pre);
    file.strings("tokenizer.ggml.tokens", {"<s>", "a", "b", "ab", "1", "<t>"});
    file.integers("tokenizer.ggml.token_type", {3, 1, 1, 1, 1, 4});
    file.strings("tokenizer.ggml.merges", {"a b"});
    file.integer("tokenizer.ggml.bos_token_id", 0).integer("tokenizer.ggml.eos_token_id", 0);
    file.string("tokenizer.chat_template", "{{ messages }}");
    return file;
  }
  static void add_tensors(SmallGguf* file) {
    file->floats("token_embd.weight", {kVocabulary, kWidth}, 1);
    file->floats("output_norm.weight", {kWidth}, 2);
    file->floats("blk.0.attn_norm.weight", {kWidth}, 3);
    file->floats("blk.0.attn_q.weight", {kHeads * kHead, kWidth}, 1);
    file->floats("blk.0.attn_k.weight", {kHead, kWidth}, 1);
    file->floats("blk.0.attn_v.weight", {kHead, kWidth}, 1);
    file->floats("blk.0.attn_output.weight", {kWidth, kHeads * kHead}, 1);
    file->floats("blk.0.ffn_norm.weight", {kWidth}, 1);
    file->floats("blk.0.ffn_gate.weight", {kInner, kWidth}, 1);
    file->floats("blk.0.ffn_up.weight", {kInner, kWidth}, 1);
    file->floats("blk.0.ffn_down.weight", {kWidth, kInner}, 1);
  }
  static SmallGguf llama() {
    SmallGguf file = header("llama");
    add_tensors(&file);
    return file;
  }
  Result<ImportedModel> import(const SmallGguf& file, const ImportProgress& progress = {}) {
    std::ofstream(dir_ + "/in.gguf", std::ios::binary) << file.bytes();
    const auto go_on = [](std::uint64_t, std::uint64_t) { return true; };
    return import_gguf(dir_ + "/in.gguf", out(), progress ? progress : go_on);
  }
  [[nodiscard]] std::string out() const { return dir_ + "/model"; }
  [[nodiscard]] nlohmann::json json_of(const std::string& name) const {
    std::ifstream file(out() + "/" + name);
    return nlohmann::json::parse(file);
  }
  std::vector<float> tensor(const std::string& name, const std::vector<std::int64_t>& shape) {
    const UniqueFd fd(::open((out() + "/model.safetensors").c_str(), O_RDONLY | O_CLOEXEC));
    const auto file = SafetensorsFile::open(fd.get()).value();
    std::size_t elements = 1;
    for (const std::int64_t size : shape) elements *= static_cast<std::size_t>(size);
    std::vector<float> values(elements);
    const Status status = file.read_f32(name, shape, values);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return values;
  }

  std::string dir_;
};

TEST_F(ImportTest, TheDirectoryIsThatOfTheModel) {
  const auto model = import(llama());
  ASSERT_TRUE(model.has_value()) << model.error().to_string();
  EXPECT_EQ(model->architecture, "llama");
  EXPECT_EQ(model->bytes, fs::file_size(out() + "/model.safetensors"));
  const auto config = json_of("config.json");
  EXPECT_EQ(config["architectures"], nlohmann::json({"LlamaForCausalLM"}));
  EXPECT_EQ(config["num_key_value_heads"], 1);
  EXPECT_EQ(config["vocab_size"], kVocabulary);
  EXPECT_EQ(config["head_dim"], kHead);
  EXPECT_EQ(config["tie_word_embeddings"], true);
  EXPECT_EQ(config["rms_norm_eps"].dump(), "1e-05") << "as it was written, not as float32 holds it";
  EXPECT_EQ(json_of("tokenizer_config.json")["eos_token"], "<s>");
  EXPECT_EQ(json_of("tokenizer_config.json")["chat_template"], "{{ messages }}");
  EXPECT_FALSE(fs::exists(out() + ".partial"));
  EXPECT_EQ(tensor("model.norm.weight", {kWidth})[3], 6.0F);
}

TEST_F(ImportTest, RowsOfQueryAndKeyGoBackToTheirHalves) {
  ASSERT_TRUE(import(llama()).has_value());
  const auto q = tensor("model.layers.0.self_attn.q_proj.weight", {kHeads * kHead, kWidth});
  std::vector<float> first;
  for (std::size_t row = 0; row < kHeads * kHead; ++row) first.push_back(q[row * kWidth] / kWidth);
  EXPECT_EQ(first, (std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_EQ(q[1], 1.0F) << "columns stay";
  const auto v = tensor("model.layers.0.self_attn.v_proj.weight", {kHead, kWidth});
  EXPECT_EQ(v[kWidth], static_cast<float>(kWidth)) << "values are not rotated";
}

TEST_F(ImportTest, QwenIsNotPermutedAndHasMoreTensors) {
  SmallGguf file = header("qwen3");
  file.integer("qwen3.attention.key_length", kHead);
  add_tensors(&file);
  file.floats("blk.0.attn_q_norm.weight", {kHead}, 1)
      .floats("blk.0.attn_k_norm.weight", {kHead}, 1);
  file.floats("output.weight", {kVocabulary, kWidth}, 1);
  const auto model = import(file);
  ASSERT_TRUE(model.has_value()) << model.error().to_string();
  const auto q = tensor("model.layers.0.self_attn.q_proj.weight", {kHeads * kHead, kWidth});
  EXPECT_EQ(q[kWidth], static_cast<float>(kWidth));
  EXPECT_EQ(json_of("config.json")["model_type"], "qwen3");
  EXPECT_EQ(json_of("config.json")["tie_word_embeddings"], false);
  (void)tensor("model.layers.0.self_attn.k_norm.weight", {kHead});
  (void)tensor("lm_head.weight", {kVocabulary, kWidth});
}

TEST_F(ImportTest, TheTokenizerIsReadable) {
  ASSERT_TRUE(import(llama()).has_value());
  std::ostringstream text;
  text << std::ifstream(out() + "/tokenizer.json").rdbuf();
  const auto tokenizer = tokenizer::Tokenizer::from_json(text.str()).value();
  EXPECT_EQ(tokenizer->encode("<s>ab<t>11").value(), (std::vector<std::int32_t>{0, 3, 5, 4, 4}));
  EXPECT_TRUE(tokenizer->is_special(0));
  EXPECT_FALSE(tokenizer->is_special(5));
}

TEST_F(ImportTest, WhatIsNotKnownIsNamed) {
  struct Wrong {
    SmallGguf file;
    Code code;
    const char* said;
  };
  std::vector<Wrong> cases;
  cases.push_back({header("mamba"), Code::UNSUPPORTED, "'mamba'"});
  cases.push_back({header("llama", "tekken"), Code::UNSUPPORTED, "'tekken'"});
  cases.push_back({header("llama"), Code::CORRUPT, "layer 0 of 1"});
  cases.push_back({llama().floats("rope_freqs.weight", {2}, 1), Code::UNSUPPORTED, "rope_freqs"});
  cases.push_back({llama().string("llama.rope.scaling.type", "yarn"), Code::UNSUPPORTED, "'yarn'"});
  cases.push_back({llama().integer("llama.rope.dimension_count", 2), Code::UNSUPPORTED, "rotated"});
  cases.push_back({llama().floats("output.weight", {2, 2}, 1), Code::CORRUPT, "another shape"});
  cases.push_back({SmallGguf(), Code::INVALID_ARGUMENT, "general.architecture"});
  for (const Wrong& wrong : cases) {
    const auto model = import(wrong.file);
    EXPECT_EQ(model.error().code(), wrong.code) << model.error().to_string();
    EXPECT_NE(model.error().text().find(wrong.said), std::string::npos) << model.error().text();
    EXPECT_FALSE(fs::exists(out()));
    EXPECT_FALSE(fs::exists(out() + ".partial"));
  }
}

TEST_F(ImportTest, AFifoIsNotWaitedFor) {
  const std::string fifo = testing::TempDir() + "plexrl_fifo_" + std::to_string(::getpid());
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto made = import_gguf(fifo, fifo + ".out", [](auto...) { return true; });
  ::unlink(fifo.c_str());
  EXPECT_EQ(made.error().code(), Code::INVALID_ARGUMENT);
}

TEST_F(ImportTest, NothingIsOverwrittenAndLeftoversAre) {
  fs::create_directory(out());
  EXPECT_EQ(import(llama()).error().code(), Code::EXISTS);
  fs::remove(out());
  fs::create_directory(out() + ".partial");
  std::ofstream(out() + ".partial/config.json") << "half";
  EXPECT_TRUE(import(llama()).has_value());
}

TEST_F(ImportTest, CanBeCancelledTellsHowFarItIsAndGoesOn) {
  std::vector<std::uint64_t> seen;
  const auto stop = [&](std::uint64_t done, std::uint64_t) {
    seen.push_back(done);
    return seen.size() < 3;
  };
  EXPECT_EQ(import(llama(), stop).error().code(), Code::CANCELLED);
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{48 * 4, 56 * 4, 120 * 4}));
  EXPECT_TRUE(fs::exists(out() + ".partial/model.safetensors"));
  EXPECT_FALSE(fs::exists(out() + ".partial/config.json"));
  // What is there but wrong does not stay.
  std::fstream(out() + ".partial/model.safetensors", std::ios::in | std::ios::out)
          .seekp(-8, std::ios::end)
      << "damaged!";
  ASSERT_TRUE(import(llama()).has_value());
  const std::string resumed = read_bytes(out() + "/model.safetensors");
  const std::string sums = read_bytes(out() + "/SHA256SUMS");
  fs::remove_all(out());
  ASSERT_TRUE(import(llama()).has_value());
  EXPECT_EQ(resumed, read_bytes(out() + "/model.safetensors"));
  EXPECT_EQ(sums, read_bytes(out() + "/SHA256SUMS"));
}

}  // namespace
}  // namespace plexrl::model
