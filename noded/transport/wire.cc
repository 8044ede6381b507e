// SPDX-License-Identifier: Apache-2.0
#include "transport/wire.h"

#include <algorithm>

namespace plexrl::transport {
namespace {

constexpr std::uint32_t kMagic = 0x54525850;  // "PXRT"
enum class FrameType : std::uint32_t { kHello = 2, kRefusal = 3 };

// Little-endian numbers, texts with their length in front.
class Writer {
 public:
  Writer& u32(std::uint32_t value) { return number(value, 4); }
  Writer& u64(std::uint64_t value) { return number(value, 8); }
  Writer& text(std::string_view value) {
    u32(static_cast<std::uint32_t>(value.size()));
    bytes_.append(value);
    return *this;
  }
  Writer& raw(const Nonce& nonce) {
    bytes_.append(nonce.begin(), nonce.end());
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  Writer& number(std::uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i) & 0xff));
    return *this;
  }
  std::string bytes_;
};

// Gives zeros and empty texts once something was missing or too long: see done().
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}
  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
  std::uint64_t u64() { return number(8); }
  std::string text(std::size_t most) {
    const std::size_t size = u32();
    return size > most ? fail() : std::string(take(size));
  }
  Nonce nonce() {
    Nonce nonce{};
    const std::string_view bytes = take(nonce.size());
    std::copy(bytes.begin(), bytes.end(), nonce.begin());
    return nonce;
  }
  // All was there and nothing is left.
  [[nodiscard]] bool done() const { return good_ && left_.empty(); }

 private:
  std::string fail() {
    good_ = false;
    left_ = {};
    return {};
  }
  std::string_view take(std::size_t size) {
    if (size > left_.size()) {
      fail();
      return {};
    }
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }
  std::uint64_t number(std::size_t count) {
    std::uint64_t value = 0;
    int shift = 0;
    for (const char byte : take(count)) {
      value |= std::uint64_t{static_cast<std::uint8_t>(byte)} << shift;
      shift += 8;
    }
    return value;
  }
  std::string_view left_;
  bool good_ = true;
};

void write_claims(Writer& writer, const Hello& hello) {
  writer.text(hello.identity.cluster).text(hello.identity.node).u64(hello.identity.incarnation);
  writer.u64(hello.epoch).u64(hello.key).text(hello.address);
}

Hello read_hello(Reader& reader) {
  Hello hello;
  hello.identity.cluster = reader.text(kMaxNameBytes);
  hello.identity.node = reader.text(kMaxNameBytes);
  hello.identity.incarnation = reader.u64();
  hello.epoch = reader.u64();
  hello.key = reader.u64();
  hello.address = reader.text(kMaxAddressBytes);
  hello.credential = reader.text(kMaxCredentialBytes);
  return hello;
}

// For people and logs: a peer's text has no control characters.
std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

Result<Frame> decode_greeting(Reader& reader) {
  Greeting greeting;
  greeting.version = reader.u32();
  if (greeting.version != kProtocolVersion)
    return error(Code::UNSUPPORTED, "the peer speaks protocol %u, this node %u", greeting.version,
                 kProtocolVersion);
  greeting.nonce = reader.nonce();
  if (!reader.done()) return error(Code::PROTOCOL, "a greeting of the wrong length");
  return Frame(greeting);
}

}  // namespace

std::string encode(const Greeting& greeting) {
  return Writer().u32(kMagic).u32(greeting.version).raw(greeting.nonce).take();
}

std::string encode(const Hello& hello) {
  Writer writer;
  writer.u32(static_cast<std::uint32_t>(FrameType::kHello));
  write_claims(writer, hello);
  return writer.text(hello.credential).take();
}

std::string encode(const Refusal& refusal) {
  const auto code = static_cast<std::uint32_t>(refusal.code);
  return Writer()
      .u32(static_cast<std::uint32_t>(FrameType::kRefusal))
      .u32(code)
      .text(std::string_view(refusal.text).substr(0, kMaxRefusalBytes))
      .take();
}

Result<Frame> decode_frame(std::string_view bytes) {
  Reader reader(bytes);
  const std::uint32_t type = reader.u32();
  if (type == kMagic) return decode_greeting(reader);
  if (type == static_cast<std::uint32_t>(FrameType::kHello)) {
    Hello hello = read_hello(reader);
    if (!reader.done()) return error(Code::PROTOCOL, "a hello of the wrong length");
    const auto named = [](const std::string& name) {
      return !name.empty() && name == printable(name);
    };
    if (!named(hello.identity.cluster) || !named(hello.identity.node))
      return error(Code::PROTOCOL, "a hello without a proper name");
    return Frame(std::move(hello));
  }
  if (type == static_cast<std::uint32_t>(FrameType::kRefusal)) {
    Refusal refusal;
    refusal.code = code_from_wire(static_cast<std::int32_t>(reader.u32()));
    if (refusal.code == Code::OK) refusal.code = Code::PROTOCOL;
    refusal.text = printable(reader.text(kMaxRefusalBytes));
    if (!reader.done()) return error(Code::PROTOCOL, "a refusal of the wrong length");
    return Frame(std::move(refusal));
  }
  return error(Code::PROTOCOL, "what came is no frame of this protocol");
}

std::string binding_of(const Hello& hello, bool initiator, const Nonce& to, const Nonce& from) {
  Writer writer;
  writer.text(initiator ? "plexrl transport, initiator" : "plexrl transport, acceptor");
  writer.u32(kProtocolVersion).raw(to).raw(from);
  write_claims(writer, hello);
  return writer.take();
}

std::string encode(const Header& header) {
  return Writer()
      .u32(static_cast<std::uint32_t>(header.type))
      .u32(static_cast<std::uint32_t>(header.code))
      .u64(header.key)
      .u64(header.epoch)
      .u64(header.number)
      .u64(header.offer)
      .u64(header.total)
      .u64(header.offset)
      .u64(header.bytes)
      .take();
}

std::optional<Header> decode_header(std::string_view bytes) {
  Reader reader(bytes);
  Header header;
  const std::uint32_t type = reader.u32();
  header.type = static_cast<MessageType>(type);
  header.code = static_cast<std::int32_t>(reader.u32());
  header.key = reader.u64();
  header.epoch = reader.u64();
  header.number = reader.u64();
  header.offer = reader.u64();
  header.total = reader.u64();
  header.offset = reader.u64();
  header.bytes = reader.u64();
  const bool known = type >= static_cast<std::uint32_t>(MessageType::kText) &&
                     type <= static_cast<std::uint32_t>(MessageType::kPong);
  if (!reader.done() || !known) return std::nullopt;
  return header;
}

}  // namespace plexrl::transport
