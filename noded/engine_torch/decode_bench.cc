// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/decode_bench.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <new>

#include "engine_torch/batch_decoder.h"
#include "engine_torch/compute_threads.h"
#include "engine_torch/counter_rng.h"
#include "engine_torch/model_dir.h"
#include "engine_torch/vector16.h"

namespace plexrl::model {
namespace {

constexpr std::uint32_t kRank = 8;
constexpr std::uint32_t kPromptTokens = 32;
constexpr std::uint32_t kNewTokens = 96;
constexpr std::size_t kStepsOfRound = 3;
constexpr std::size_t kMinRounds = 5;
constexpr std::size_t kMaxRounds = (kNewTokens - 2) / kStepsOfRound;
constexpr std::size_t kReadBlock = std::size_t{1} << 18;

using Bytes = std::span<const std::byte>;

// Zeroed memory, which malloc's is not and a vector's is not aligned like an arena.
class Memory {
 public:
  explicit Memory(std::uint64_t bytes)
      : data_(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{4096}))),
        bytes_(bytes) {
    std::fill_n(data_.get(), bytes, std::byte{});
  }
  [[nodiscard]] std::span<std::byte> bytes() const { return {data_.get(), bytes_}; }
  template <class T>
  [[nodiscard]] std::span<T> as(std::uint64_t count) const {
    return {reinterpret_cast<T*>(data_.get()), count};
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{4096}); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::uint64_t bytes_;
};

PLEXRL_SIMD std::int32_t read_block(const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kWide = 8;
  lanes::Ints seen[kWide] = {};
  const auto* at = reinterpret_cast<const lanes::Ints*>(from);
  const std::size_t vectors = bytes / sizeof(lanes::Ints);
  for (std::size_t i = 0; i + kWide <= vectors; i += kWide)
    for (std::size_t j = 0; j < kWide; ++j) seen[j] ^= at[i + j];
  for (std::size_t j = 1; j < kWide; ++j) seen[0] ^= seen[j];
  std::int32_t all = 0;
  for (int i = 0; i < lanes::kLanes; ++i) all ^= seen[0][i];
  return all;
}

// The compiler must not see that nobody wants the result.
volatile std::int32_t g_read = 0;

void read_all(std::span<const Bytes> parts) {
  std::vector<Bytes> blocks;
  for (const Bytes part : parts)
    for (std::size_t at = 0; at < part.size(); at += kReadBlock)
      blocks.push_back(part.subspan(at, std::min(kReadBlock, part.size() - at)));
  std::int32_t all = 0;
  const auto count = static_cast<std::int64_t>(blocks.size());
#pragma omp parallel for schedule(static) reduction(^ : all)
  for (std::int64_t i = 0; i < count; ++i) {
    const Bytes block = blocks[static_cast<std::size_t>(i)];
    all ^= read_block(block.data(), block.size());
  }
  g_read = all;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double seconds_since(TimePoint start) {
  return static_cast<double>((system_clock().now() - start).ns) / 1e9;
}

// The base, and adapters on it.
class Bench {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Bench>> open(const DecodeBenchOptions& options);
  [[nodiscard]] Result<DecodeSpeed> measure(std::size_t rows, std::size_t adapters);

 private:
  struct Asked {
    Memory cache;
    GenerateRequest request;
  };
  Bench(ModelLayout base, ModelLayout adapter, Duration time);
  void add_adapters(std::size_t count);
  [[nodiscard]] Status ask(ModelState& of, std::size_t rows, std::deque<Asked>& asked);
  [[nodiscard]] Status prefill(BatchDecoder& batch, const std::deque<Asked>& asked);
  [[nodiscard]] std::vector<Bytes> bytes_of_step(const std::deque<Asked>& asked,
                                                 std::size_t position) const;
  [[nodiscard]] Result<DecodeSpeed> take_turns(BatchDecoder& batch, const std::deque<Asked>& asked);

  ModelLayout base_layout_, adapter_layout_;
  Duration time_;
  Memory base_;
  ModelState base_state_;
  std::deque<Memory> adapter_memory_;
  std::deque<ModelState> adapters_;
};

Bench::Bench(ModelLayout base, ModelLayout adapter, Duration time)
    : base_layout_(std::move(base)),
      adapter_layout_(std::move(adapter)),
      time_(time),
      base_(base_layout_.full.bytes_as(base_layout_.type)) {
  base_state_.layout = &base_layout_;
  if (base_layout_.type == WeightType::kFloat32)
    base_state_.memory.base = base_.as<float>(base_layout_.full.elements);
  else
    base_state_.memory.base16 = base_.as<Bf16>(base_layout_.full.elements);
}

Result<std::unique_ptr<Bench>> Bench::open(const DecodeBenchOptions& options) {
  PLEXRL_ASSIGN(const ModelDir dir, open_model_dir(options.base_dir));
  if (dir.config.max_positions < kPromptTokens + kNewTokens)
    return error(Code::UNSUPPORTED, "bench: '%s' has %lld positions, %u are needed",
                 options.base_dir.c_str(), static_cast<long long>(dir.config.max_positions),
                 kPromptTokens + kNewTokens);
  PLEXRL_ASSIGN(auto base, make_model_layout(dir.config, wire::TrainMode::None, 0, options.type));
  PLEXRL_ASSIGN(auto adapter,
                make_model_layout(dir.config, wire::TrainMode::Lora, kRank, options.type));
  std::unique_ptr<Bench> bench(new Bench(std::move(base), std::move(adapter), options.time));
  const ArenaLayout& full = bench->base_layout_.full;
  PLEXRL_TRY(options.type == WeightType::kFloat32
                 ? load_base_weights(dir, full, bench->base_.as<float>(full.elements))
                 : load_base_weights16(dir, full, bench->base_.as<Bf16>(full.elements)));
  return bench;
}

// B is not zero, or the adapter would not be seen.
void Bench::add_adapters(std::size_t count) {
  const ArenaLayout& layout = adapter_layout_.trainable;
  while (adapters_.size() < count) {
    const std::span<float> weights =
        adapter_memory_.emplace_back(layout.bytes()).as<float>(layout.elements);
    initialise(layout, adapter_layout_.config.layers, adapters_.size() + 1, 0.0, weights);
    for (const TensorSlot& slot : layout.slots)
      if (slot.init == TensorInit::kZeros)
        std::fill_n(weights.begin() + static_cast<std::ptrdiff_t>(slot.offset), slot.elements(),
                    1e-4F);
    ModelState& state = adapters_.emplace_back(base_state_);
    state.layout = &adapter_layout_;
    state.memory.sampler = weights;
    state.sampler_version = 1;
  }
}

Status Bench::ask(ModelState& of, std::size_t rows, std::deque<Asked>& asked) {
  wire::GenerateArgsT args;
  args.version = of.sampler_version;
  args.samples_per_prompt = 1;
  args.max_new_tokens = kNewTokens;
  args.seed = asked.size();
  const auto vocab = static_cast<std::uint32_t>(base_layout_.config.vocab_size);
  for (std::size_t row = 0; row < rows; ++row) {
    args.prompts.push_back(std::make_unique<wire::PromptT>());
    for (std::uint32_t t = 0; t < kPromptTokens; ++t)
      args.prompts.back()->tokens.push_back(static_cast<std::int32_t>(
          philox(args.seed, {static_cast<std::uint32_t>(row), t, 0, 0})[0] % vocab));
  }
  PLEXRL_ASSIGN(const std::uint64_t bytes, kv_bytes(base_layout_.config, args));
  Memory cache(bytes);
  OpEnv env;
  env.state = &of;
  env.kv = cache.bytes();
  PLEXRL_ASSIGN(GenerateRequest request, GenerateRequest::make(env, args));
  asked.push_back({std::move(cache), std::move(request)});
  return {};
}

Status step(BatchDecoder& batch) {
  PLEXRL_ASSIGN(auto failures, batch.step());
  return failures.empty() ? Status() : std::move(failures.front().error);
}

Status Bench::prefill(BatchDecoder& batch, const std::deque<Asked>& asked) {
  const auto has_prompts = [](const Asked& a) { return a.request.has_prompts(); };
  do PLEXRL_TRY(step(batch));
  while (std::any_of(asked.begin(), asked.end(), has_prompts));
  return step(batch);
}

// An embedding that is not the head, too, is read by rows only. Caches are read to `position`.
std::vector<Bytes> Bench::bytes_of_step(const std::deque<Asked>& asked,
                                        std::size_t position) const {
  const ArenaLayout& full = base_layout_.full;
  const std::uint64_t all = full.bytes_as(base_layout_.type);
  const std::uint64_t skipped =
      base_layout_.config.tied_head ? 0 : all / full.elements * full.slots.at(1).offset;
  std::vector<Bytes> parts = {Bytes(base_.bytes()).subspan(skipped)};
  const std::uint64_t capacity = kPromptTokens + kNewTokens;
  for (const Asked& a : asked) {
    const std::span<float> adapter = a.request.state().memory.sampler;
    if (!adapter.empty()) parts.push_back(std::as_bytes(adapter));
    parts.push_back(
        Bytes(a.cache.bytes()).first(a.cache.bytes().size() / capacity * position / 64 * 64));
  }
  return parts;
}

Result<DecodeSpeed> Bench::take_turns(BatchDecoder& batch, const std::deque<Asked>& asked) {
  std::vector<double> steps, reads, shares;
  DecodeSpeed speed;
  const TimePoint start = system_clock().now();
  while (steps.size() < kMaxRounds &&
         (steps.size() < kMinRounds || (system_clock().now() - start).ns < time_.ns)) {
    TimePoint begin = system_clock().now();
    for (std::size_t i = 0; i < kStepsOfRound; ++i) PLEXRL_TRY(step(batch));
    steps.push_back(seconds_since(begin) / kStepsOfRound);
    const auto parts = bytes_of_step(asked, kPromptTokens + steps.size() * kStepsOfRound);
    begin = system_clock().now();
    read_all(parts);
    reads.push_back(seconds_since(begin));
    shares.push_back(reads.back() / steps.back());
    speed.bytes = 0;
    for (const Bytes part : parts) speed.bytes += part.size();
  }
  speed.rounds = steps.size();
  speed.tokens_per_s = 1.0 / median(steps);
  speed.roofline_tokens_per_s = 1.0 / median(reads);
  speed.roofline_share = median(shares);
  return speed;
}

Result<DecodeSpeed> Bench::measure(std::size_t rows, std::size_t adapters) {
  add_adapters(adapters);
  std::deque<Asked> asked;
  if (adapters == 0) PLEXRL_TRY(ask(base_state_, rows, asked));
  for (std::size_t i = 0; i < adapters; ++i) PLEXRL_TRY(ask(adapters_[i], rows / adapters, asked));
  BatchDecoder batch(base_state_, 0);
  for (Asked& a : asked) batch.join(a.request);
  PLEXRL_TRY(prefill(batch, asked));
  PLEXRL_ASSIGN(DecodeSpeed speed, take_turns(batch, asked));
  speed.rows = rows;
  speed.adapters = adapters;
  speed.tokens_per_s *= static_cast<double>(rows);
  speed.roofline_tokens_per_s *= static_cast<double>(rows);
  return speed;
}

}  // namespace

Result<std::vector<DecodeSpeed>> bench_decode(const DecodeBenchOptions& options) {
  apply_compute_threads();
  PLEXRL_ASSIGN(const auto bench, Bench::open(options));
  std::vector<DecodeSpeed> speeds;
  for (const std::size_t rows : options.rows)
    for (const std::size_t adapters : options.adapters) {
      if (adapters > rows || (adapters > 0 && rows % adapters != 0)) continue;
      PLEXRL_ASSIGN(const DecodeSpeed speed, bench->measure(rows, adapters));
      speeds.push_back(speed);
    }
  return speeds;
}

}  // namespace plexrl::model
