// SPDX-License-Identifier: Apache-2.0
#include "cli/model_files.h"

#include "slurm/host_memory.h"
#include "unit/models/small_model.h"

namespace plexrl::cli {
namespace {

namespace fs = std::filesystem;
using model::DType;
using model::read_bytes;
using model::write_bytes;

class ModelFilesTest : public testing::Test {
 protected:
  void make(DType dtype = DType::kF32, bool shards = false) {
    model::write_small_model(dir(), dtype, shards);
    entry_.name = "demo";
    entry_.path = dir();
    entry_.hidden_size = 8;
    entry_.layers = 2;
    entry_.intermediate_size = 12;
    entry_.parameters = check_model_dir(dir()).parameters;
  }
  [[nodiscard]] std::string dir() const { return temporary_ / "model"; }
  [[nodiscard]] std::string file(const std::string& name) const { return dir() + "/" + name; }
  std::string only_problem() {
    const ModelCheck check = check_model(entry_);
    EXPECT_EQ(check.problems.size(), 1U);
    return check.problems.empty() ? "" : check.problems[0];
  }
  void edit_config(const char* key, const nlohmann::json& value) {
    auto config = model::small_config();
    config[key] = value;
    write_bytes(file("config.json"), config.dump());
  }

  model::TemporaryDirectory temporary_;
  config::ModelEntry entry_;
};

TEST_F(ModelFilesTest, GoodModels) {
  for (const bool shards : {false, true})
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      fs::remove_all(dir());
      make(dtype, shards);
      const ModelCheck check = check_model(entry_);
      EXPECT_TRUE(check.problems.empty()) << check.problems.front();
      EXPECT_EQ(check.dtype, model::dtype_name(dtype));
      EXPECT_EQ(check.parameters, 6U * 8 + 2 * (8 + 64 + 32 + 32 + 64 + 8 + 3 * 96) + 8);
    }
}

TEST_F(ModelFilesTest, ATruncatedFileIsNamed) {
  make(DType::kF32, true);
  const std::string shard = file("model-00002-of-00002.safetensors");
  fs::resize_file(shard, fs::file_size(shard) - 1);
  EXPECT_NE(only_problem().find("model-00002-of-00002.safetensors: "), std::string::npos);
  EXPECT_NE(only_problem().find("truncated"), std::string::npos);
}

TEST_F(ModelFilesTest, BytesBehindTheTensorsAreReported) {
  make();
  write_bytes(file("model.safetensors"), read_bytes(file("model.safetensors")) + "more");
  EXPECT_NE(only_problem().find("4 bytes behind"), std::string::npos);
}

TEST_F(ModelFilesTest, AnUnknownArchitectureIsOneSentence) {
  make();
  write_bytes(file("config.json"),
              R"({"model_type":"mamba","architectures":["MambaForCausalLM"]})");
  EXPECT_NE(only_problem().find("mamba"), std::string::npos);
  EXPECT_EQ(status_of(check_model(entry_)).code(), Code::UNSUPPORTED);
}

TEST_F(ModelFilesTest, ATensorOfAnotherShapeIsNamed) {
  make();
  edit_config("vocab_size", 7);
  EXPECT_NE(check_model_dir(dir()).problems.back().find("model.embed_tokens.weight"),
            std::string::npos);
}

// The head of a tied model is not looked at; any other tensor means another model.
TEST_F(ModelFilesTest, TensorsThatNobodyAskedFor) {
  make();
  auto tensors = model::base_tensors(check_model_dir(dir()).config);
  auto weights = model::numbers_for(tensors, 1);
  tensors.push_back({"lm_head.weight", 6, 8, false, 0, model::TensorInit::kZeros});
  weights["lm_head.weight"] = model::small_numbers(48, 3);
  model::write_tensor_file(file("model.safetensors"), tensors, weights, DType::kF32, {});
  const ModelCheck check = check_model(entry_);
  EXPECT_TRUE(check.problems.empty()) << check.problems.front();
  tensors.push_back(
      {"model.layers.0.self_attn.q_proj.bias", 1, 8, true, 0, model::TensorInit::kZeros});
  weights["model.layers.0.self_attn.q_proj.bias"] = model::small_numbers(8, 3);
  model::write_tensor_file(file("model.safetensors"), tensors, weights, DType::kF32, {});
  EXPECT_NE(only_problem().find("q_proj.bias"), std::string::npos);
}

TEST_F(ModelFilesTest, AnIndexMayNotLeaveTheDirectory) {
  make(DType::kF32, true);
  write_bytes(file("model.safetensors.index.json"), R"({"weight_map":{"a":"../one.safetensors"}})");
  EXPECT_NE(only_problem().find("plain file name"), std::string::npos);
}

TEST_F(ModelFilesTest, DisagreementWithTheSiteFileIsReported) {
  make();
  entry_.hidden_size = 5;
  entry_.layers = 3;
  EXPECT_EQ(check_model(entry_).problems.size(), 2U);
  entry_.hidden_size = 8;
  entry_.layers = 2;
  ++entry_.parameters;
  EXPECT_NE(only_problem().find(std::to_string(entry_.parameters - 1) + " parameters"),
            std::string::npos);
}

TEST_F(ModelFilesTest, AMissingDirectoryReportsEverything) {
  entry_.path = dir() + "/none";
  EXPECT_EQ(check_model(entry_).problems.size(), 3U);
}

// What the engine describes, by the rule of the state manager: committed segments twice, gradients
// once.
std::uint64_t reserved_bytes(const config::ModelEntry& entry, wire::TrainMode mode,
                             std::uint32_t rank) {
  const auto config = model::parse_model_config(model::read_bytes(entry.path + "/config.json"));
  const auto type =
      entry.dtype == "bfloat16" ? model::WeightType::kBFloat16 : model::WeightType::kFloat32;
  std::uint64_t bytes = 0;
  for (const auto& size :
       model::segment_sizes(model::make_model_layout(*config, mode, rank, type).value()))
    bytes += (size.committed ? 2 : 1) * size.bytes;
  return bytes;
}

TEST_F(ModelFilesTest, AGrantCoversTheSegmentsThatTheEngineDescribes) {
  make();
  std::map<std::string, std::uint64_t> full;
  for (const char* dtype : {"float32", "bfloat16"}) {
    entry_.dtype = dtype;
    const std::uint64_t need = reserved_bytes(entry_, wire::TrainMode::Full, 0);
    full[dtype] = slurm::model_host_bytes(entry_, "full", 0, 4096);
    EXPECT_GE(full[dtype], need);
    EXPECT_LE(full[dtype], need + 9 * (4096 + 4 * 64 * (9 * 2 + 3)));  // gaps, whole chunks
    EXPECT_GE(slurm::model_host_bytes(entry_, "lora", 4, 4096),
              reserved_bytes(entry_, wire::TrainMode::Lora, 4));
  }
  EXPECT_LT(full["bfloat16"], full["float32"]);
}

}  // namespace
}  // namespace plexrl::cli
