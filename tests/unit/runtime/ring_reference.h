// SPDX-License-Identifier: Apache-2.0
// Reference: a model that nothing ever disturbs. It applies the training ops that a client was told
// of, in their order, and says what each of them and each sampling op had to answer. It knows
// nothing of plexrld.
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "device/device_backend.h"
#include "engine/fake_engine.h"
#include "engine/fake_model.h"

namespace plexrl::runtime {

using Bytes = std::vector<std::uint8_t>;

inline Bytes bytes_of(const wire::OpValueUnion& value) {
  flatbuffers::FlatBufferBuilder builder;
  if (value.value == nullptr) return {};
  (void)value.Pack(builder);
  const std::uint8_t* const data = builder.GetCurrentBufferPointer();
  Bytes bytes(data, data + builder.GetSize());
  bytes.push_back(static_cast<std::uint8_t>(value.type));
  return bytes;
}

class Reference {
 public:
  Reference(wire::TrainMode mode, std::uint64_t seed, const engine::FakeEngineOptions& options)
      : pool_(make_pool()), maths_(pool_, options.vocab_size) {
    model_.mode = mode;
    model_.seed = seed;
    std::uint32_t chunk = 0;
    for (const auto& segment : engine::fake_description(options, mode).segments) {
      model_.segments[segment->kind] = {segment->bytes, {chunk++}};
      maths_.initialise(model_, segment->kind);
    }
    remember();
  }

  // What the training op answers. `name`: of a save to the store or a load from it, else empty.
  [[nodiscard]] Result<wire::OpValueUnion> apply(std::uint64_t seq, const wire::OpArgsUnion& args,
                                                 const std::string& name) {
    wire::EngineRunOpT op;
    op.op = op.seq = seq;
    op.args = args;
    const auto* save = args.AsSaveArgs();
    const bool publishes = save != nullptr && save->target == wire::SaveTarget::Sampler;
    if (publishes) op.version_out = seq;
    model_.applied_seq = 0;
    if (args.AsLoadArgs() != nullptr && files_.count(name) == 0)
      return error(Code::NOT_FOUND, "no checkpoint of that name");
    auto value = maths_.run(model_, op, name.empty() ? -1 : file(name));
    if (!value) return value;
    if (publishes) published_[seq] = contents(wire::SegmentKind::SamplerWeights);
    if (args.AsOptimStepArgs() != nullptr || args.AsLoadArgs() != nullptr) remember();
    return value;
  }
  // What a sampling op answers that names `version`, whatever came after it.
  [[nodiscard]] Result<wire::OpValueUnion> sample(std::uint64_t version,
                                                  const wire::OpArgsUnion& args) {
    if (version != 0 && published_.count(version) == 0)
      return error(Code::NOT_FOUND, "it was never published");
    if (version != 0) put(wire::SegmentKind::SamplerWeights, published_.at(version));
    model_.version = version;
    wire::EngineRunOpT op;
    op.args = args;
    return maths_.run(model_, op);
  }
  // The state is that of after `step` again, without gradients. False: there was none.
  [[nodiscard]] bool rewind(std::uint64_t step) {
    const auto found = steps_.find(step);
    if (found == steps_.end()) return false;
    for (const auto& [kind, bytes] : found->second) put(kind, bytes);
    put(wire::SegmentKind::Gradients,
        std::vector<std::byte>(model_.segments.at(wire::SegmentKind::Gradients).bytes));
    model_.step = step;
    model_.gradients_pending = false;
    return true;
  }
  [[nodiscard]] std::uint64_t step() const { return model_.step; }

 private:
  using Contents = std::vector<std::byte>;
  static constexpr std::size_t kChunk = 4096;
  static constexpr std::size_t kChunks = 8;

  static engine::FakePool make_pool() {
    return engine::FakePool::open(device::create_cpu_pool("reference", kChunk, kChunks).value(),
                                  kChunk, kChunks)
        .value();
  }
  [[nodiscard]] Contents contents(wire::SegmentKind kind) const {
    const auto& segment = model_.segments.at(kind);
    const auto chunk = pool_.chunk(segment.device[0]);
    return {chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(segment.bytes)};
  }
  void put(wire::SegmentKind kind, const Contents& bytes) {
    std::memcpy(pool_.chunk(model_.segments.at(kind).device[0]).data(), bytes.data(), bytes.size());
  }
  void remember() {
    auto& state = steps_[model_.step];
    for (const auto kind :
         {wire::SegmentKind::Weights, wire::SegmentKind::AdamM, wire::SegmentKind::AdamV})
      state[kind] = contents(kind);
  }
  int file(const std::string& name) {
    UniqueFd& fd = files_[name];
    if (!fd) fd.reset(::memfd_create("checkpoint", MFD_CLOEXEC));
    return fd.get();
  }

  engine::FakePool pool_;
  engine::FakeMaths maths_;
  engine::FakeModel model_;
  std::map<std::uint64_t, std::map<wire::SegmentKind, Contents>> steps_;
  std::map<std::uint64_t, Contents> published_;
  std::map<std::string, UniqueFd> files_;
};

}  // namespace plexrl::runtime
