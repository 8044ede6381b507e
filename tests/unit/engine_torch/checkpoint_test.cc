// SPDX-License-Identifier: Apache-2.0
// Safetensors, checkpoints and model directories, hostile files included.
#include "engine_torch/checkpoint.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/unique_fd.h"
#include "engine_torch/model_dir.h"
#include "held_model.h"
#include "models/safetensors.h"

namespace {
int synced = 0;      // calls of fsync
int sync_error = 0;  // what it fails with
}  // namespace

// In the place of the C library's, for the whole program.
extern "C" int fsync(int /*fd*/) {
  ++synced;
  if (sync_error == 0) return 0;
  errno = sync_error;
  return -1;
}

namespace plexrl::model {
namespace {

using nlohmann::json;
using wire::TrainMode;

UniqueFd memory_file(const std::string& bytes = "") {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  return fd;
}

std::string with_header(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + std::string(data, '\0');
}

Status open_error(const std::string& header, std::size_t data) {
  const UniqueFd fd = memory_file(with_header(header, data));
  return SafetensorsFile::open(fd.get()).error();
}

TEST(Safetensors, WriteAndReadBack) {
  const float values[] = {1, 2, 3, 4, 5, 6};
  const std::uint64_t step = 77;
  const TensorToWrite tensors[] = {{"a", DType::kF32, {2, 3}, values, sizeof values},
                                   {"step", DType::kU64, {1}, &step, sizeof step}};
  const UniqueFd fd = memory_file(std::string(5000, 'x'));  // longer than what we write
  const auto size = write_safetensors(fd.get(), tensors, {{"format", "pt"}});
  ASSERT_TRUE(size);
  EXPECT_EQ(::lseek(fd.get(), 0, SEEK_END), static_cast<off_t>(*size));
  const auto file = SafetensorsFile::open(fd.get());
  ASSERT_TRUE(file) << file.error().to_string();
  EXPECT_EQ(file->tensors().at("a").begin % 8, 0U);
  EXPECT_EQ(file->metadata().at("format"), "pt");
  float back[6];
  const std::int64_t shape[] = {2, 3};
  ASSERT_TRUE(file->read_f32("a", shape, back).ok());
  EXPECT_EQ(std::memcmp(back, values, sizeof back), 0);
  EXPECT_EQ(*file->read_u64("step"), 77U);
}

TEST(Safetensors, HalfPrecisionIsWidened) {
  const std::uint16_t bf16[] = {0x3F80, 0xC000, 0x7F80};
  const std::uint16_t f16[] = {0x3C00, 0x0001, 0xFC00};
  const TensorToWrite tensors[] = {{"b", DType::kBF16, {3}, bf16, 6},
                                   {"h", DType::kF16, {3}, f16, 6}};
  const UniqueFd fd = memory_file();
  ASSERT_TRUE(write_safetensors(fd.get(), tensors, {}));
  const auto file = SafetensorsFile::open(fd.get());
  float out[3];
  const std::int64_t shape[] = {3};
  ASSERT_TRUE(file->read_f32("b", shape, out).ok());
  EXPECT_EQ(std::vector<float>(out, out + 3), (std::vector<float>{1.0F, -2.0F, INFINITY}));
  ASSERT_TRUE(file->read_f32("h", shape, out).ok());
  EXPECT_EQ(std::vector<float>(out, out + 3), (std::vector<float>{1.0F, 0x1p-24F, -INFINITY}));
}

TEST(Safetensors, HostileHeaders) {
  struct Row {
    const char* header;
    std::size_t data;
    Code code;
    const char* word;
  };
  const Row rows[] = {
      {"not json", 0, Code::CORRUPT, "JSON"},
      {"[1]", 0, Code::CORRUPT, "JSON"},
      {R"({"a":5})", 0, Code::CORRUPT, "'a'"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4, Code::CORRUPT, "outside"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, Code::CORRUPT, "outside"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, Code::CORRUPT, "disagree"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, Code::CORRUPT, "shape"},
      {R"({"a":{"dtype":"F32","shape":[281474976710656,281474976710656],"data_offsets":[0,8]}})", 8,
       Code::CORRUPT, "shape"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]}})", 8,
       Code::CORRUPT, "shape"},
      {R"({"a":{"dtype":"F32","shape":"x","data_offsets":[0,8]}})", 8, Code::CORRUPT, "shape"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8, Code::CORRUPT, "data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}})", 8,
       Code::CORRUPT, "data_offsets"},
      {R"({"a":{"dtype":"I4","shape":[2],"data_offsets":[0,8]}})", 8, Code::UNSUPPORTED, "I4"},
      {R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8, Code::CORRUPT, "dtype"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
       16, Code::CORRUPT, "twice"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       12, Code::CORRUPT, "overlap"},
      {R"({"a\nb":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, Code::CORRUPT,
       "printable"}};
  for (const Row& row : rows) {
    const Status status = open_error(row.header, row.data);
    EXPECT_EQ(status.code(), row.code) << row.header;
    EXPECT_NE(status.text().find(row.word), std::string::npos) << status.text();
  }
}

TEST(Safetensors, HeaderLengthsAreBounded) {
  for (const std::uint64_t length : {std::uint64_t{100}, std::uint64_t{1} << 40, UINT64_MAX}) {
    std::string bytes(64, ' ');
    std::memcpy(bytes.data(), &length, sizeof length);
    const UniqueFd fd = memory_file(bytes);
    EXPECT_EQ(SafetensorsFile::open(fd.get()).error().code(), Code::CORRUPT);
  }
  EXPECT_EQ(SafetensorsFile::open(memory_file("abc").get()).error().code(), Code::CORRUPT);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd read_end(ends[0]), write_end(ends[1]);
  EXPECT_EQ(SafetensorsFile::open(read_end.get()).error().code(), Code::INVALID_ARGUMENT);
}

TEST(Safetensors, DeeplyNestedHeaderIsRefusedNotFatal) {
  EXPECT_EQ(open_error(std::string(1 << 20, '['), 0).code(), Code::CORRUPT);
  EXPECT_EQ(
      open_error("{\"a\":" + std::string(1 << 18, '[') + std::string(1 << 18, ']') + "}", 0).code(),
      Code::CORRUPT);
}

// A valid file with bytes changed at random: an error or a file whose every tensor can be read.
TEST(Safetensors, RandomDamageIsNeverFatal) {
  const std::vector<float> values(16, 1.0F);
  const TensorToWrite tensors[] = {{"first", DType::kF32, {2, 4}, values.data(), 32},
                                   {"second", DType::kBF16, {3}, values.data(), 6}};
  const UniqueFd fd = memory_file();
  const auto size = write_safetensors(fd.get(), tensors, {{"format", "pt"}});
  ASSERT_TRUE(size);
  std::string good(*size, '\0');
  ASSERT_EQ(::pread(fd.get(), good.data(), good.size(), 0), static_cast<ssize_t>(good.size()));
  std::mt19937 random(17);
  int opened = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bad = good;
    for (int i = 0; i < 1 + round % 4; ++i)
      bad[random() % bad.size()] = "0123456789[]{}\":,FBx \xff"[random() % 23];
    ASSERT_EQ(::pwrite(fd.get(), bad.data(), bad.size(), 0), static_cast<ssize_t>(bad.size()));
    const auto file = SafetensorsFile::open(fd.get());
    if (!file) continue;
    ++opened;
    for (const auto& [name, tensor] : file->tensors()) {
      ASSERT_LE(tensor.begin + tensor.bytes, good.size());
      if (tensor.dtype == DType::kU64) continue;
      std::vector<float> out(tensor.bytes / dtype_bytes(tensor.dtype));
      EXPECT_TRUE(file->read_f32(name, tensor.shape, out).ok());
    }
  }
  EXPECT_GT(opened, 100);
}

TEST(Safetensors, FileThatShrinksIsAnError) {
  const std::vector<float> values(1000);
  const TensorToWrite tensors[] = {{"a", DType::kF32, {1000}, values.data(), 4000}};
  const UniqueFd fd = memory_file();
  const auto size = write_safetensors(fd.get(), tensors, {});
  const auto file = SafetensorsFile::open(fd.get());
  ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(*size - 1)), 0);
  std::vector<float> out(1000);
  const std::int64_t shape[] = {1000};
  EXPECT_EQ(file->read_f32("a", shape, out).code(), Code::CORRUPT);
}

void fill(HeldModel& model) {
  model.shake(0.1);
  for (std::size_t i = 0; i < model.layout.trainable.slots.size(); ++i) {
    const TensorSlot& slot = model.layout.trainable.slots[i];
    model.m.span()[slot.offset] = static_cast<float>(i) + 0.5F;
    model.v.span()[slot.offset] = static_cast<float>(i) + 0.25F;
  }
  model.state.step = 12;
}

class Checkpoints : public testing::TestWithParam<TrainMode> {
 protected:
  static ModelLayout layout() {
    return layout_of(tiny_config(), GetParam(), GetParam() == TrainMode::Lora ? 3 : 0);
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, Checkpoints, testing::Values(TrainMode::Full, TrainMode::Lora));

TEST_P(Checkpoints, RoundTripIsBitExact) {
  HeldModel model(layout());
  fill(model);
  const UniqueFd fd = memory_file();
  const auto saved = save_checkpoint(fd.get(), model.state, wire::FileFormat::Checkpoint);
  ASSERT_TRUE(saved) << saved.error().to_string();
  HeldModel other(layout(), 1000);
  other.state.gradients_pending = true;
  other.gradients.span()[3] = 1;
  const Status status = load_checkpoint(fd.get(), other.state, true);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(other.weights.copy(), model.weights.copy());
  EXPECT_EQ(other.m.copy(), model.m.copy());
  EXPECT_EQ(other.v.copy(), model.v.copy());
  EXPECT_EQ(other.state.step, 12U);
  EXPECT_FALSE(other.state.gradients_pending);
  EXPECT_EQ(other.gradients.span()[3], 0.0F);
  EXPECT_EQ(*state_sha256(other.state), saved->sha256);
}

TEST_P(Checkpoints, WithoutOptimizerStartsAfresh) {
  HeldModel model(layout());
  fill(model);
  const UniqueFd fd = memory_file();
  ASSERT_TRUE(save_checkpoint(fd.get(), model.state, wire::FileFormat::Weights));
  EXPECT_EQ(load_checkpoint(fd.get(), model.state, true).code(), Code::NOT_FOUND);
  EXPECT_EQ(model.state.step, 12U);
  ASSERT_TRUE(load_checkpoint(fd.get(), model.state, false).ok());
  EXPECT_EQ(model.state.step, 0U);
  for (const float x : model.m.span()) ASSERT_EQ(x, 0.0F);
}

TEST_P(Checkpoints, DamagedFilesChangeNothing) {
  HeldModel model(layout());
  fill(model);
  const UniqueFd fd = memory_file();
  const auto saved = save_checkpoint(fd.get(), model.state, wire::FileFormat::Checkpoint);
  const std::string before = *state_sha256(model.state);
  ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(saved->bytes - 8)), 0);
  EXPECT_EQ(load_checkpoint(fd.get(), model.state, true).code(), Code::CORRUPT);
  ASSERT_EQ(::ftruncate(fd.get(), 20), 0);
  EXPECT_EQ(load_checkpoint(fd.get(), model.state, true).code(), Code::CORRUPT);
  EXPECT_EQ(*state_sha256(model.state), before);
}

TEST(Checkpoint, OfAnotherShapeRankOrModeIsRefusedByName) {
  HeldModel model(layout_of(tiny_config(), TrainMode::Lora, 3));
  ModelConfig wide = tiny_config();
  wide.intermediate_size = 40;
  for (ModelLayout layout :
       {layout_of(wide, TrainMode::Lora, 3), layout_of(tiny_config(), TrainMode::Lora, 4),
        layout_of(tiny_config(), TrainMode::Full)}) {
    HeldModel other(std::move(layout));
    const UniqueFd fd = memory_file();
    ASSERT_TRUE(save_checkpoint(fd.get(), other.state, wire::FileFormat::Checkpoint));
    const Status status = load_checkpoint(fd.get(), model.state, true);
    EXPECT_EQ(status.code(), Code::INVALID_ARGUMENT) << status.to_string();
  }
}

TEST(Checkpoint, ForeignTensorsAreRefused) {
  HeldModel model(layout_of(tiny_config(), TrainMode::Lora, 3));
  std::vector<TensorToWrite> tensors;
  for (const TensorSlot& slot : model.layout.trainable.slots)
    tensors.push_back({slot.name,
                       DType::kF32,
                       {slot.rows, slot.cols},
                       model.weights.span().data() + slot.offset,
                       slot.elements() * 4});
  const float extra = 1;
  tensors.push_back({"base_model.model.lm_head.lora_A.weight", DType::kF32, {1}, &extra, 4});
  const UniqueFd fd = memory_file();
  ASSERT_TRUE(write_safetensors(fd.get(), tensors, {}));
  const Status status = load_checkpoint(fd.get(), model.state, false);
  EXPECT_EQ(status.code(), Code::INVALID_ARGUMENT);
  EXPECT_NE(status.text().find("lm_head"), std::string::npos);
}

TEST(Checkpoint, HashCoversWeightsMomentsAndStep) {
  HeldModel model(layout_of(tiny_config(), TrainMode::Full));
  const auto hash = [&] { return *state_sha256(model.state); };
  std::string last = hash();
  EXPECT_EQ(last.size(), 64U);
  const auto changes = [&](auto&& change) {
    change();
    const std::string now = hash();
    EXPECT_NE(now, last);
    last = now;
  };
  changes([&] { model.weights.span()[0] += 1; });
  changes([&] { model.m.span()[1] += 1; });
  changes([&] { model.v.span()[2] += 1; });
  changes([&] { ++model.state.step; });
  model.gradients.span()[0] = 5;
  EXPECT_EQ(hash(), last);
}

TEST(Checkpoint, OpsSaveAndLoadThroughAFile) {
  HeldModel model(layout_of(tiny_config(), TrainMode::Full));
  fill(model);
  const UniqueFd fd = memory_file();
  wire::SaveArgsT save;
  save.target = wire::SaveTarget::ClientFd;
  const auto saved = run_op(model, args_union(save), fd.get());
  ASSERT_TRUE(saved) << saved.error().to_string();
  wire::LoadArgsT load;
  load.target = wire::SaveTarget::ClientFd;
  HeldModel other(layout_of(tiny_config(), TrainMode::Full), 1);
  const auto loaded = run_op(other, args_union(load), fd.get());
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ(loaded->AsLoadResult()->sha256, saved->AsSaveResult()->sha256);
  EXPECT_EQ(loaded->AsLoadResult()->step, 12U);
  EXPECT_EQ(run_op(model, args_union(save)).error().code(), Code::INVALID_ARGUMENT);  // no fd
  EXPECT_EQ(run_op(model, args_union(load)).error().code(), Code::INVALID_ARGUMENT);
}

TEST(Checkpoint, AFileOfTheStoreIsOnDiskWhenTheSaveHasEnded) {
  HeldModel model(layout_of(tiny_config(), TrainMode::Full));
  wire::SaveArgsT save;
  save.target = wire::SaveTarget::Store;
  const UniqueFd fd = memory_file();
  synced = 0;
  ASSERT_TRUE(run_op(model, args_union(save), fd.get()));
  EXPECT_EQ(synced, 1);
  sync_error = ENOSPC;
  const auto saved = run_op(model, args_union(save), fd.get());
  sync_error = 0;
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code(), Code::IO);
  // A client's fd may be anything, and what becomes of it is the client's matter.
  save.target = wire::SaveTarget::ClientFd;
  ASSERT_TRUE(run_op(model, args_union(save), fd.get()));
  EXPECT_EQ(synced, 2);
}

class Directory : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/plexrl-model-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    path = name;
  }
  void TearDown() override { std::filesystem::remove_all(path); }
  void write(const char* file, const std::string& text) const {
    std::ofstream(path + "/" + file) << text;
  }
  std::string path;
  const std::string tokenizer = R"({"type":"char","alphabet":"01","vocab_size":19})";
};

TEST_F(Directory, InitOpenAndLoad) {
  const std::string config = format_model_config(tiny_config());
  const Status status = init_model_dir(path, config, tokenizer, 5);
  ASSERT_TRUE(status.ok()) << status.to_string();
  const auto dir = open_model_dir(path);
  ASSERT_TRUE(dir) << dir.error().to_string();
  EXPECT_EQ(dir->config, tiny_config());
  EXPECT_EQ(dir->tokenizer, tokenizer);
  const ModelLayout layout = layout_of(tiny_config(), TrainMode::None);
  const Arena weights(layout.full.elements);
  const Status loaded = load_base_weights(*dir, layout.full, weights.span());
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  const Arena want(layout.full.elements);
  initialise(layout.full, 2, 5, 0.02 * std::sqrt(768.0 / 24) * 0.7, want.span());
  EXPECT_EQ(weights.copy(), want.copy());
  EXPECT_EQ(init_model_dir(path, config, tokenizer, 5).code(), Code::EXISTS);
  write("tokenizer.json", R"({"model":{"vocab":{"a":0}}})");
  const json described = json::parse(open_model_dir(path)->tokenizer);
  EXPECT_EQ(described["vocab_size"], tiny_config().vocab_size);
  EXPECT_EQ(described["tokenizer"]["model"]["vocab"]["a"], 0);
}

TEST_F(Directory, ShardsByIndex) {
  const ModelLayout layout = layout_of(tiny_config(), TrainMode::None);
  const Arena weights(layout.full.elements);
  initialise(layout.full, 2, 1, 0.1, weights.span());
  json map;
  std::vector<TensorToWrite> parts[2];
  for (std::size_t i = 0; i < layout.full.slots.size(); ++i) {
    const TensorSlot& slot = layout.full.slots[i];
    const std::vector<std::int64_t> shape = slot.vector
                                                ? std::vector<std::int64_t>{slot.cols}
                                                : std::vector<std::int64_t>{slot.rows, slot.cols};
    parts[i % 2].push_back(
        {slot.name, DType::kF32, shape, weights.span().data() + slot.offset, slot.elements() * 4});
    map[slot.name] = i % 2 == 0 ? "a.safetensors" : "b.safetensors";
  }
  for (int p = 0; p < 2; ++p) {
    const UniqueFd fd(
        ::open((path + (p == 0 ? "/a" : "/b") + ".safetensors").c_str(), O_RDWR | O_CREAT, 0600));
    ASSERT_TRUE(write_safetensors(fd.get(), parts[p], {}));
  }
  write("config.json", format_model_config(tiny_config()));
  write("model.safetensors.index.json", json{{"weight_map", map}}.dump());
  const Arena out(layout.full.elements);
  const Status status = load_base_weights(*open_model_dir(path), layout.full, out.span());
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(out.copy(), weights.copy());
  map.begin().value() = "../../etc/passwd";
  write("model.safetensors.index.json", json{{"weight_map", map}}.dump());
  EXPECT_EQ(load_base_weights(*open_model_dir(path), layout.full, out.span()).code(),
            Code::CORRUPT);
}

TEST_F(Directory, MissingAndBrokenFiles) {
  EXPECT_EQ(open_model_dir(path).error().code(), Code::NOT_FOUND);
  write("config.json", format_model_config(tiny_config()));
  EXPECT_TRUE(open_model_dir(path));
  const ModelLayout layout = layout_of(tiny_config(), TrainMode::None);
  const Arena out(layout.full.elements);
  EXPECT_EQ(load_base_weights(*open_model_dir(path), layout.full, out.span()).code(),
            Code::NOT_FOUND);
  write("plexrl_tokenizer.json", "{");
  EXPECT_EQ(open_model_dir(path).error().code(), Code::CORRUPT);
  write("tokenizer.json", "[1");
  EXPECT_EQ(open_model_dir(path).error().code(), Code::CORRUPT);
  write("config.json", std::string(2 << 20, ' '));
  EXPECT_EQ(open_model_dir(path).error().code(), Code::TOO_LARGE);
}

TEST(Initialise, SameSeedSameBitsAndSaneSpread) {
  const ModelLayout layout = layout_of(demo_config(), TrainMode::Lora, 8);
  const Arena a(layout.trainable.elements), b(layout.trainable.elements);
  initialise(layout.trainable, 3, 9, 0.0, a.span());
  initialise(layout.trainable, 3, 9, 0.0, b.span());
  EXPECT_EQ(a.copy(), b.copy());
  initialise(layout.trainable, 3, 10, 0.0, b.span());
  EXPECT_NE(a.copy(), b.copy());
  const TensorSlot& first = layout.trainable.slots[0];
  double squares = 0;
  for (const float x : a.span().subspan(first.offset, first.elements()))
    squares += static_cast<double>(x) * static_cast<double>(x);
  EXPECT_NEAR(squares / static_cast<double>(first.elements()), 1.0 / 128, 0.002);
  const TensorSlot& second = layout.trainable.slots[1];
  for (const float x : a.span().subspan(second.offset, second.elements())) ASSERT_EQ(x, 0.0F);
}

}  // namespace
}  // namespace plexrl::model
