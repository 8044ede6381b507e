// SPDX-License-Identifier: Apache-2.0
#include "models/gguf_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>

#include "models/read_at.h"

namespace plexrl::model {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read as little-endian");

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
// Beyond belief for a model; a vocabulary has some 100,000 tokens, a large model some 2,000
// tensors.
constexpr std::uint64_t kMaxKeys = 1U << 16;
constexpr std::uint64_t kMaxTensors = 1U << 16;
constexpr std::uint64_t kMaxItems = 1U << 22;
constexpr std::uint64_t kMaxName = 256;
constexpr std::uint64_t kMaxText = 16U << 20;
constexpr std::uint64_t kMaxHeader = 256U << 20;
constexpr std::uint32_t kMaxDims = 4;
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 48;

unsigned long long number(std::uint64_t value) { return value; }

enum class Kind : std::uint32_t {
  kU8 = 0,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kText,
  kArray,
  kU64,
  kI64,
  kF64
};

// The header from its beginning; what it says of its own lengths is not believed.
class HeaderReader {
 public:
  HeaderReader(int fd, std::uint64_t size) : fd_(fd), size_(size) {}

  Status raw(void* to, std::uint64_t bytes) {
    if (bytes > size_ - at_) return error(Code::CORRUPT, "the file ends early (truncated)");
    if (at_ + bytes > kMaxHeader) return error(Code::TOO_LARGE, "a header above 256 MiB");
    auto* out = static_cast<std::byte*>(to);
    while (bytes > 0) {
      if (next_ == buffer_.size()) PLEXRL_TRY(fill());
      const auto part = std::min<std::uint64_t>(bytes, buffer_.size() - next_);
      std::memcpy(out, buffer_.data() + next_, part);
      out += part;
      next_ += part;
      at_ += part;
      bytes -= part;
    }
    return {};
  }
  template <class T>
  Result<T> plain() {
    T value{};
    PLEXRL_TRY(raw(&value, sizeof value));
    return value;
  }
  Result<std::string> text(std::uint64_t most) {
    PLEXRL_ASSIGN(const auto bytes, plain<std::uint64_t>());
    if (bytes > most)
      return error(Code::CORRUPT, "a string of %llu bytes, at most %llu", number(bytes),
                   number(most));
    if (bytes > size_ - at_) return error(Code::CORRUPT, "the file ends early (truncated)");
    std::string value(bytes, '\0');
    PLEXRL_TRY(raw(value.data(), bytes));
    return value;
  }
  [[nodiscard]] std::uint64_t at() const { return at_; }
  // No more than these many items of `bytes` each can follow.
  [[nodiscard]] bool room_for(std::uint64_t items, std::uint64_t bytes) const {
    return items <= (size_ - at_) / bytes;
  }

 private:
  Status fill() {
    buffer_.resize(std::min<std::uint64_t>(1U << 20, size_ - at_));
    next_ = 0;
    return read_at(fd_, buffer_.data(), buffer_.size(), at_, "header");
  }

  int fd_;
  std::uint64_t size_;
  std::uint64_t at_ = 0;  // of the file
  std::vector<std::byte> buffer_;
  std::size_t next_ = 0;  // in the buffer
};

template <class To, class From>
Result<GgufValue> as(HeaderReader& reader) {
  PLEXRL_ASSIGN(const From value, reader.plain<From>());
  return GgufValue(static_cast<To>(value));
}

Result<GgufValue> read_u64(HeaderReader& reader) {
  PLEXRL_ASSIGN(const auto value, reader.plain<std::uint64_t>());
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return error(Code::CORRUPT, "the number %llu is beyond belief", number(value));
  return GgufValue(static_cast<std::int64_t>(value));
}

Result<GgufValue> read_scalar(HeaderReader& reader, std::uint32_t kind) {
  switch (static_cast<Kind>(kind)) {
    case Kind::kU8:
      return as<std::int64_t, std::uint8_t>(reader);
    case Kind::kI8:
      return as<std::int64_t, std::int8_t>(reader);
    case Kind::kU16:
      return as<std::int64_t, std::uint16_t>(reader);
    case Kind::kI16:
      return as<std::int64_t, std::int16_t>(reader);
    case Kind::kU32:
      return as<std::int64_t, std::uint32_t>(reader);
    case Kind::kI32:
      return as<std::int64_t, std::int32_t>(reader);
    case Kind::kF32:
      return as<double, float>(reader);
    case Kind::kBool:
      return as<bool, std::uint8_t>(reader);
    case Kind::kU64:
      return read_u64(reader);
    case Kind::kI64:
      return as<std::int64_t, std::int64_t>(reader);
    case Kind::kF64:
      return as<double, double>(reader);
    case Kind::kText: {
      PLEXRL_ASSIGN(auto value, reader.text(kMaxText));
      return GgufValue(std::move(value));
    }
    case Kind::kArray:
      break;
  }
  return error(Code::CORRUPT, "a value of kind %u", kind);
}

// Integers and booleans, reals or strings; arrays in arrays are not used by models.
Result<GgufValue> read_array(HeaderReader& reader) {
  PLEXRL_ASSIGN(const auto kind, reader.plain<std::uint32_t>());
  PLEXRL_ASSIGN(const auto count, reader.plain<std::uint64_t>());
  if (count > kMaxItems || !reader.room_for(count, 1))
    return error(Code::CORRUPT, "an array of %llu items", number(count));
  std::vector<std::int64_t> integers;
  std::vector<double> reals;
  std::vector<std::string> texts;
  for (std::uint64_t i = 0; i < count; ++i) {
    PLEXRL_ASSIGN(auto item, read_scalar(reader, kind));
    if (auto* const text = std::get_if<std::string>(&item))
      texts.push_back(std::move(*text));
    else if (const auto* const real = std::get_if<double>(&item))
      reals.push_back(*real);
    else if (const auto* const flag = std::get_if<bool>(&item))
      integers.push_back(*flag ? 1 : 0);
    else
      integers.push_back(std::get<std::int64_t>(item));
  }
  if (static_cast<Kind>(kind) == Kind::kText) return GgufValue(std::move(texts));
  if (!reals.empty()) return GgufValue(std::move(reals));
  return GgufValue(std::move(integers));
}

Result<GgufTensor> read_tensor(HeaderReader& reader) {
  GgufTensor tensor;
  PLEXRL_ASSIGN(const auto dims, reader.plain<std::uint32_t>());
  if (dims == 0 || dims > kMaxDims) return error(Code::CORRUPT, "%u dimensions", dims);
  std::uint64_t elements = 1;
  for (std::uint32_t i = 0; i < dims; ++i) {
    PLEXRL_ASSIGN(const auto size, reader.plain<std::uint64_t>());
    if (size == 0 || size > kMaxElements / elements)
      return error(Code::CORRUPT, "its shape is not sensible");
    elements *= size;
    tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(size));
  }
  PLEXRL_ASSIGN(const auto type, reader.plain<std::uint32_t>());
  PLEXRL_ASSIGN(tensor.type, gguf_type(type));
  PLEXRL_ASSIGN(tensor.begin, reader.plain<std::uint64_t>());
  const GgufBlock& block = block_of(tensor.type);
  if (static_cast<std::uint64_t>(tensor.shape.back()) % block.elements != 0)
    return error(Code::CORRUPT, "rows of %lld elements are no whole blocks of %s",
                 static_cast<long long>(tensor.shape.back()), std::string(block.name).c_str());
  tensor.bytes = elements / block.elements * block.bytes;
  return tensor;
}

Result<std::uint64_t> alignment_of(const std::map<std::string, GgufValue>& metadata) {
  const auto found = metadata.find("general.alignment");
  if (found == metadata.end()) return std::uint64_t{32};
  const auto* const value = std::get_if<std::int64_t>(&found->second);
  if (value == nullptr || *value < 1 || *value > (1 << 20) || (*value & (*value - 1)) != 0)
    return error(Code::CORRUPT, "general.alignment is no power of two up to 1 MiB");
  return static_cast<std::uint64_t>(*value);
}

struct Counts {
  std::uint64_t tensors = 0, keys = 0;
};

Result<Counts> read_counts(HeaderReader& reader) {
  PLEXRL_ASSIGN(const auto magic, reader.plain<std::uint32_t>());
  if (magic != kMagic) return error(Code::INVALID_ARGUMENT, "it is not a GGUF file");
  PLEXRL_ASSIGN(const auto version, reader.plain<std::uint32_t>());
  if (version != 2 && version != 3)
    return error(Code::UNSUPPORTED, "version %u, or big-endian; read are versions 2 and 3",
                 version);
  Counts counts;
  PLEXRL_ASSIGN(counts.tensors, reader.plain<std::uint64_t>());
  PLEXRL_ASSIGN(counts.keys, reader.plain<std::uint64_t>());
  if (counts.tensors > kMaxTensors || counts.keys > kMaxKeys)
    return error(Code::CORRUPT, "%llu tensors and %llu keys", number(counts.tensors),
                 number(counts.keys));
  return counts;
}

Status read_metadata(HeaderReader& reader, std::uint64_t keys,
                     std::map<std::string, GgufValue>* metadata) {
  for (std::uint64_t i = 0; i < keys; ++i) {
    PLEXRL_ASSIGN(const auto key, reader.text(kMaxName));
    PLEXRL_ASSIGN(const auto kind, reader.plain<std::uint32_t>());
    auto value =
        static_cast<Kind>(kind) == Kind::kArray ? read_array(reader) : read_scalar(reader, kind);
    if (!value) return value.error().within("key " + std::to_string(i));
    if (!metadata->emplace(key, *std::move(value)).second)
      return error(Code::CORRUPT, "key %llu occurs twice", number(i));
  }
  return {};
}

Status read_tensors(HeaderReader& reader, std::uint64_t count,
                    std::map<std::string, GgufTensor>* tensors) {
  for (std::uint64_t i = 0; i < count; ++i) {
    PLEXRL_ASSIGN(const auto name, reader.text(kMaxName));
    const bool printable = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return c > 0x20 && c < 0x7F;
    });
    if (!printable)
      return error(Code::CORRUPT, "the name of tensor %llu is not printable", number(i));
    auto tensor = read_tensor(reader);
    if (!tensor) return tensor.error().within("tensor '" + name + "'");
    if (!tensors->emplace(name, *std::move(tensor)).second)
      return error(Code::CORRUPT, "tensor '%s' occurs twice", name.c_str());
  }
  return {};
}

template <class T>
Result<T> value_of(const std::map<std::string, GgufValue>& metadata, const std::string& key,
                   const char* kind) {
  const auto found = metadata.find(key);
  if (found == metadata.end())
    return error(Code::INVALID_ARGUMENT, "gguf: key '%s' is missing", key.c_str());
  if (const T* const value = std::get_if<T>(&found->second)) return *value;
  return error(Code::INVALID_ARGUMENT, "gguf: key '%s' is not %s", key.c_str(), kind);
}

}  // namespace

std::int64_t GgufTensor::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

Result<GgufFile> GgufFile::open(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return errno_error(Code::IO, errno, "gguf: stat");
  if (!S_ISREG(info.st_mode)) return error(Code::INVALID_ARGUMENT, "gguf: not a regular file");
  const auto size = static_cast<std::uint64_t>(info.st_size);
  GgufFile file;
  file.fd_ = fd;
  HeaderReader reader(fd, size);
  const auto counts = read_counts(reader);
  if (!counts) return counts.error().within("gguf");
  PLEXRL_TRY(read_metadata(reader, counts->keys, &file.metadata_).within("gguf"));
  PLEXRL_TRY(read_tensors(reader, counts->tensors, &file.tensors_).within("gguf"));
  PLEXRL_ASSIGN(const std::uint64_t alignment, alignment_of(file.metadata_));
  const std::uint64_t data = (reader.at() + alignment - 1) / alignment * alignment;
  for (auto& [name, tensor] : file.tensors_) {
    const bool inside =
        data <= size && tensor.begin <= size - data && tensor.bytes <= size - data - tensor.begin;
    if (!inside)
      return error(Code::CORRUPT, "gguf: tensor '%s' lies outside the file (truncated?)",
                   name.c_str());
    tensor.begin += data;
  }
  return file;
}

Result<std::string> GgufFile::text(const std::string& key) const {
  return value_of<std::string>(metadata_, key, "a string");
}
Result<std::int64_t> GgufFile::integer(const std::string& key) const {
  return value_of<std::int64_t>(metadata_, key, "an integer");
}
Result<double> GgufFile::real(const std::string& key) const {
  return value_of<double>(metadata_, key, "a real number");
}
Result<std::vector<std::string>> GgufFile::texts(const std::string& key) const {
  return value_of<std::vector<std::string>>(metadata_, key, "an array of strings");
}
Result<std::vector<std::int64_t>> GgufFile::integers(const std::string& key) const {
  return value_of<std::vector<std::int64_t>>(metadata_, key, "an array of integers");
}

Result<std::vector<float>> GgufFile::read(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    return error(Code::NOT_FOUND, "gguf: tensor '%s' is missing", name.c_str());
  const GgufTensor& tensor = found->second;
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  const GgufBlock& block = block_of(tensor.type);
  // Some MiB at a time, of whole blocks.
  std::vector<std::byte> part(std::min<std::uint64_t>(tensor.bytes, block.bytes * (1U << 15)));
  for (std::uint64_t at = 0; at < tensor.bytes; at += part.size()) {
    part.resize(std::min<std::uint64_t>(part.size(), tensor.bytes - at));
    PLEXRL_TRY(
        read_at(fd_, part.data(), part.size(), tensor.begin + at, "gguf: tensor '" + name + "'"));
    dequantize(tensor.type, part,
               std::span(values).subspan(at / block.bytes * block.elements,
                                         part.size() / block.bytes * block.elements));
  }
  return values;
}

}  // namespace plexrl::model
