// SPDX-License-Identifier: Apache-2.0
#include "cli/train/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "base/crc32c.h"
#include "base/unique_fd.h"

namespace plexrl::cli {
namespace {

// Little endian, as the machines are that this is built for.
template <class Number>
void put(std::string& out, Number value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(0x80 | (value & 0x7F));
  out += static_cast<char>(value);
}

// Wire types of protocol buffers.
enum : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_key(std::string& out, std::uint32_t field, std::uint32_t type) {
  put_varint(out, field << 3 | type);
}

void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event(double wall_s, std::uint64_t step) {
  std::string out;
  put_key(out, 1, kFixed64);
  put(out, wall_s);
  put_key(out, 2, kVarint);
  put_varint(out, step);
  return out;
}

std::string summary(const Scalars& scalars) {
  std::string out;
  for (const auto& [tag, value] : scalars) {
    std::string one;
    put_bytes(one, 1, tag);
    put_key(one, 2, kFixed32);
    put(one, static_cast<float>(value));
    put_bytes(out, 1, one);
  }
  return out;
}

// TFRecord keeps checksums of the framing itself apart from those of the contents by this.
std::uint32_t masked(std::string_view bytes) {
  const std::uint32_t crc = crc32c(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

std::string host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace

Result<EventFile> EventFile::create(const std::string& directory, bool resumed) {
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed)
    return error(Code::IO, "--tensorboard: directory '%s': %s", directory.c_str(),
                 failed.message().c_str());
  const std::time_t now = std::time(nullptr);
  EventFile file;
  file.path_ = directory + "/events.out.tfevents." + std::to_string(now) + "." + host() + "." +
               std::to_string(::getpid());
  UniqueFd fd(::open(file.path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd) return errno_error(Code::IO, errno, "--tensorboard: open '%s'", file.path_.c_str());
  file.file_.reset(::fdopen(fd.get(), "w"));
  if (file.file_ == nullptr)
    return errno_error(Code::IO, errno, "--tensorboard: open '%s'", file.path_.c_str());
  (void)fd.release();
  file.resumed_ = resumed;
  std::string first = event(static_cast<double>(now), 0);
  put_bytes(first, 3, "brain.Event:2");  // file_version
  PLEXRL_TRY(file.append(first));
  return file;
}

Status EventFile::write(std::uint64_t step, double wall_s, const Scalars& scalars) {
  if (resumed_) {
    std::string start = event(wall_s, step);
    std::string session;
    put_key(session, 1, kVarint);
    put_varint(session, 1);        // START
    put_bytes(start, 7, session);  // session_log
    PLEXRL_TRY(append(start));
    resumed_ = false;
  }
  std::string values = event(wall_s, step);
  put_bytes(values, 5, summary(scalars));
  return append(values);
}

Status EventFile::append(std::string_view event) {
  std::string length;
  put(length, static_cast<std::uint64_t>(event.size()));
  std::string record = length;
  put(record, masked(length));
  record += event;
  put(record, masked(event));
  if (std::fwrite(record.data(), 1, record.size(), file_.get()) != record.size() ||
      std::fflush(file_.get()) != 0)
    return errno_error(Code::IO, errno, "--tensorboard: write '%s'", path_.c_str());
  return {};
}

}  // namespace plexrl::cli
