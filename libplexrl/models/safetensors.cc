// SPDX-License-Identifier: Apache-2.0
#include "models/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "models/half.h"
#include "models/read_at.h"
#include "models/write_file.h"

namespace plexrl::model {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

constexpr std::size_t kMaxName = 256;
constexpr std::size_t kMaxDims = 8;
constexpr std::size_t kConvertElements = 1 << 18;  // converted at a time
constexpr const char* kMetadata = "__metadata__";

struct DTypeRow {
  DType type;
  std::string_view name;
  std::size_t bytes;
};
constexpr DTypeRow kDTypes[] = {{DType::kF32, "F32", 4},
                                {DType::kF16, "F16", 2},
                                {DType::kBF16, "BF16", 2},
                                {DType::kU64, "U64", 8}};

// Whether the file has these bytes there. What cannot be read is not equal.
bool equal_at(int fd, const void* data, std::uint64_t bytes, std::uint64_t offset) {
  std::vector<std::byte> part(std::min<std::uint64_t>(bytes, 1 << 20));
  for (std::uint64_t at = 0; at < bytes; at += part.size()) {
    const std::uint64_t count = std::min<std::uint64_t>(part.size(), bytes - at);
    if (!read_at(fd, part.data(), count, offset + at, "").ok() ||
        std::memcmp(part.data(), static_cast<const std::byte*>(data) + at, count) != 0)
      return false;
  }
  return true;
}

float widen(DType type, std::uint16_t value) {
  return type == DType::kF16 ? from_half(value) : from_bfloat16(value);
}

bool printable(const std::string& name) {
  return !name.empty() && name.size() <= kMaxName &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

// What the header says, while it is parsed. JSON objects silently keep one of two equal keys, so
// names are looked at here; and a header of the largest size may describe far more values than
// memory should be spent on, so from the first value too many nothing is kept any more.
class HeaderWatch {
 public:
  bool operator()(int depth, json::parse_event_t event, const json& value) {
    if (!status_.ok()) return false;
    if (event == json::parse_event_t::key && depth == 1) {
      const auto& name = value.get_ref<const std::string&>();
      values_ = name == kMetadata ? kMaxMetadata : kMaxValues;
      if (!names_.insert(name).second)
        status_ = error(Code::CORRUPT, "safetensors: tensor '%s' occurs twice",
                        name.substr(0, kMaxName).c_str());
      if (names_.size() > kMaxTensors)
        status_ = error(Code::TOO_LARGE, "safetensors: more than %zu tensors", kMaxTensors);
    } else if (values_-- == 0) {
      status_ = error(Code::CORRUPT, "safetensors: the header holds more than tensors need");
    }
    return status_.ok();
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  static constexpr std::size_t kMaxValues = 64;  // of one tensor: 3 keys, 8 dimensions, 2 offsets
  static constexpr std::size_t kMaxMetadata = 8192;
  static constexpr std::size_t kMaxTensors = 1 << 17;
  std::set<std::string> names_;
  std::size_t values_ = kMaxValues;
  Status status_;
};

Result<json> parse_header(const std::string& text) {
  HeaderWatch watch;
  json header = json::parse(
      text,
      [&watch](int depth, json::parse_event_t event, json& value) {
        return watch(depth, event, value);
      },
      false);
  PLEXRL_TRY(watch.status());
  if (header.is_discarded() || !header.is_object())
    return error(Code::CORRUPT, "safetensors: the header is not a JSON object");
  return header;
}

bool all_counts(const json& list) {
  return std::all_of(list.begin(), list.end(), [](const json& v) {
    return v.is_number_unsigned() && v.get<std::uint64_t>() <= (1ULL << 48);
  });
}

Result<DType> parse_dtype(const std::string& name, const json& entry) {
  if (!entry.contains("dtype") || !entry["dtype"].is_string())
    return error(Code::CORRUPT, "tensor '%s': no dtype", name.c_str());
  const std::string text = entry["dtype"].get<std::string>();
  for (const DTypeRow& row : kDTypes)
    if (row.name == text) return row.type;
  return error(Code::UNSUPPORTED, "tensor '%s': dtype %s, only F32, F16, BF16 and U64 are read",
               name.c_str(), text.substr(0, 16).c_str());
}

// `data_at`: where the data starts in the file; `data_bytes`: how much there is.
Result<StoredTensor> parse_tensor(const std::string& name, const json& entry, std::uint64_t data_at,
                                  std::uint64_t data_bytes) {
  const auto broken = [&](const char* why) {
    return error(Code::CORRUPT, "tensor '%s': %s", name.c_str(), why);
  };
  if (!entry.is_object()) return broken("its entry is not an object");
  StoredTensor tensor;
  PLEXRL_ASSIGN(tensor.dtype, parse_dtype(name, entry));
  const json shape = entry.value("shape", json());
  const json offsets = entry.value("data_offsets", json());
  if (!shape.is_array() || shape.size() > kMaxDims || !all_counts(shape))
    return broken("bad shape");
  if (!offsets.is_array() || offsets.size() != 2 || !all_counts(offsets))
    return broken("bad data_offsets");
  const auto begin = offsets[0].get<std::uint64_t>();
  const auto end = offsets[1].get<std::uint64_t>();
  if (begin > end || end > data_bytes) return broken("its data lies outside the file (truncated?)");
  std::uint64_t bytes = dtype_bytes(tensor.dtype);
  for (const json& dim : shape) {
    tensor.shape.push_back(dim.get<std::int64_t>());
    if (__builtin_mul_overflow(bytes, dim.get<std::uint64_t>(), &bytes)) return broken("bad shape");
  }
  if (bytes != end - begin) return broken("shape and data_offsets disagree");
  tensor.begin = data_at + begin;
  tensor.bytes = bytes;
  return tensor;
}

Status check_overlap(const std::map<std::string, StoredTensor>& tensors) {
  std::vector<std::pair<std::uint64_t, std::map<std::string, StoredTensor>::const_iterator>> order;
  for (auto it = tensors.begin(); it != tensors.end(); ++it)
    if (it->second.bytes > 0) order.emplace_back(it->second.begin, it);
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (order[i - 1].first + order[i - 1].second->second.bytes > order[i].first)
      return error(Code::CORRUPT, "tensors '%s' and '%s' overlap",
                   order[i - 1].second->first.c_str(), order[i].second->first.c_str());
  return {};
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t dim : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

std::string header_text(std::span<const TensorSpec> tensors,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::uint64_t at = 0;
  for (const TensorSpec& tensor : tensors) {
    header[tensor.name] = {{"dtype", dtype_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {at, at + tensor.bytes}}};
    at += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

std::string_view dtype_name(DType type) noexcept {
  return kDTypes[static_cast<std::size_t>(type)].name;
}
std::size_t dtype_bytes(DType type) noexcept {
  return kDTypes[static_cast<std::size_t>(type)].bytes;
}

Result<OpenSafetensors> open_safetensors(const std::string& path, const std::string& called) {
  OpenSafetensors opened;
  opened.fd.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened.fd)
    return errno_error(errno == ENOENT ? Code::NOT_FOUND : Code::IO, errno, "open '%s'",
                       path.c_str());
  auto file = SafetensorsFile::open(opened.fd.get());
  if (!file.has_value()) return file.error().within(called);
  opened.file = std::move(*file);
  return opened;
}

Result<SafetensorsFile> SafetensorsFile::open(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return errno_error(Code::IO, errno, "safetensors: stat");
  if (!S_ISREG(info.st_mode))
    return error(Code::INVALID_ARGUMENT, "safetensors: not a regular file");
  const auto size = static_cast<std::uint64_t>(info.st_size);
  std::uint64_t length = 0;
  if (size < sizeof length) return error(Code::CORRUPT, "safetensors: shorter than its header");
  PLEXRL_TRY(read_at(fd, &length, sizeof length, 0, "safetensors"));
  if (length > size - sizeof length || length > kMaxSafetensorsHeader)
    return error(Code::CORRUPT, "safetensors: header of %llu bytes in a file of %llu",
                 static_cast<unsigned long long>(length), static_cast<unsigned long long>(size));
  std::string text(length, '\0');
  PLEXRL_TRY(read_at(fd, text.data(), length, sizeof length, "safetensors"));
  PLEXRL_ASSIGN(const json header, parse_header(text));
  SafetensorsFile file;
  file.fd_ = fd;
  file.size_ = size;
  file.data_at_ = sizeof length + length;
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadata) {
      if (!entry.is_object())
        return error(Code::CORRUPT, "safetensors: __metadata__ is not an object");
      for (const auto& [key, value] : entry.items())
        if (value.is_string()) file.metadata_[key] = value.get<std::string>();
      continue;
    }
    if (!printable(name))
      return error(Code::CORRUPT, "safetensors: a tensor's name is not printable");
    PLEXRL_ASSIGN(file.tensors_[name],
                  parse_tensor(name, entry, file.data_at_, size - file.data_at_));
  }
  PLEXRL_TRY(check_overlap(file.tensors_));
  return file;
}

Status SafetensorsFile::check_cover() const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;  // begin, bytes
  for (const auto& [name, tensor] : tensors_) ranges.emplace_back(tensor.begin, tensor.bytes);
  std::sort(ranges.begin(), ranges.end());
  std::uint64_t at = data_at_;
  for (const auto& [begin, bytes] : ranges) {
    if (begin != at)
      return error(Code::CORRUPT, "safetensors: byte %llu of the data belongs to no tensor",
                   static_cast<unsigned long long>(at - data_at_));
    at += bytes;
  }
  if (at == size_) return {};
  return error(Code::CORRUPT, "safetensors: %llu bytes behind the last tensor",
               static_cast<unsigned long long>(size_ - at));
}

Status SafetensorsFile::check(const std::string& name, std::span<const std::int64_t> shape) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) return error(Code::NOT_FOUND, "tensor '%s' is missing", name.c_str());
  const StoredTensor& tensor = it->second;
  if (!std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end()))
    return error(Code::INVALID_ARGUMENT, "tensor '%s' has shape %s, the model needs %s",
                 name.c_str(), shape_text(tensor.shape).c_str(), shape_text(shape).c_str());
  if (tensor.dtype == DType::kU64)
    return error(Code::INVALID_ARGUMENT, "tensor '%s' holds integers, the model needs floats",
                 name.c_str());
  return {};
}

Status SafetensorsFile::read_f32(const std::string& name, std::span<const std::int64_t> shape,
                                 std::span<float> out) const {
  PLEXRL_TRY(check(name, shape));
  const StoredTensor& tensor = tensors_.at(name);
  const std::string what = "tensor '" + name + "'";
  PLEXRL_CHECK(out.size() * dtype_bytes(tensor.dtype) == tensor.bytes,
               "read_f32: wrong output size");
  if (tensor.dtype == DType::kF32)
    return read_at(fd_, out.data(), tensor.bytes, tensor.begin, what);
  std::vector<std::uint16_t> part(std::min(out.size(), kConvertElements));
  for (std::size_t at = 0; at < out.size(); at += part.size()) {
    const std::size_t count = std::min(part.size(), out.size() - at);
    PLEXRL_TRY(read_at(fd_, part.data(), count * 2, tensor.begin + at * 2, what));
    for (std::size_t i = 0; i < count; ++i) out[at + i] = widen(tensor.dtype, part[i]);
  }
  return {};
}

Result<std::uint64_t> SafetensorsFile::read_u64(const std::string& name) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) return error(Code::NOT_FOUND, "tensor '%s' is missing", name.c_str());
  if (it->second.dtype != DType::kU64 || it->second.bytes != sizeof(std::uint64_t))
    return error(Code::INVALID_ARGUMENT, "tensor '%s' is not one U64", name.c_str());
  std::uint64_t value = 0;
  PLEXRL_TRY(read_at(fd_, &value, sizeof value, it->second.begin, "tensor '" + name + "'"));
  return value;
}

Result<SafetensorsWriter> SafetensorsWriter::begin(
    int fd, std::vector<TensorSpec> tensors, const std::map<std::string, std::string>& metadata,
    bool keep_equal) {
  const std::string header = header_text(tensors, metadata);
  const std::uint64_t length = header.size();
  PLEXRL_TRY(write_at(fd, &length, sizeof length, 0, "safetensors"));
  PLEXRL_TRY(write_at(fd, header.data(), length, sizeof length, "safetensors"));
  return SafetensorsWriter(fd, std::move(tensors), sizeof length + length, keep_equal);
}

Status SafetensorsWriter::append(const void* data, std::uint64_t bytes) {
  PLEXRL_CHECK(next_ < tensors_.size() && bytes == tensors_[next_].bytes,
               "tensors are written in their order, each as large as it was said");
  if (!keep_equal_ || !equal_at(fd_, data, bytes, at_))
    PLEXRL_TRY(write_at(fd_, data, bytes, at_, "tensor '" + tensors_[next_].name + "'"));
  at_ += bytes;
  ++next_;
  return {};
}

Result<std::uint64_t> SafetensorsWriter::finish() {
  PLEXRL_CHECK(next_ == tensors_.size(), "a tensor was not written");
  if (::ftruncate(fd_, static_cast<off_t>(at_)) != 0)
    return errno_error(Code::IO, errno, "safetensors: truncate");
  return at_;
}

Result<std::uint64_t> write_safetensors(int fd, std::span<const TensorToWrite> tensors,
                                        const std::map<std::string, std::string>& metadata) {
  std::vector<TensorSpec> specs;
  for (const TensorToWrite& tensor : tensors)
    specs.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
  PLEXRL_ASSIGN(auto writer, SafetensorsWriter::begin(fd, std::move(specs), metadata));
  for (const TensorToWrite& tensor : tensors) PLEXRL_TRY(writer.append(tensor.data, tensor.bytes));
  return writer.finish();
}

}  // namespace plexrl::model
