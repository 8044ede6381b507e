// SPDX-License-Identifier: Apache-2.0
#include "runtime/journal_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "base/log.h"

namespace plexrl::runtime {
namespace {

namespace fs = std::filesystem;

// Names sort by number, so that the oldest is the first.
std::vector<fs::path> segments_in(const std::string& dir) {
  std::vector<fs::path> list;
  std::error_code failed;
  for (auto entry = fs::directory_iterator(dir, failed);
       !failed && entry != fs::directory_iterator(); entry.increment(failed))
    if (entry->path().extension() == ".journal") list.push_back(entry->path());
  std::sort(list.begin(), list.end());
  return list;
}

std::string next_name(const std::vector<fs::path>& segments) {
  const unsigned long long last =
      segments.empty() ? 0 : std::strtoull(segments.back().stem().c_str(), nullptr, 10);
  char name[40];
  std::snprintf(name, sizeof name, "%012llu.journal", last + 1);
  return name;
}

}  // namespace

Status JournalWriter::begin(core::JournalHeader header, const core::Scheduler& scheduler) {
  flush();
  file_.reset();
  std::error_code failed;
  fs::create_directories(dir_, failed);
  if (failed) return error(Code::IO, "create '%s': %s", dir_.c_str(), failed.message().c_str());
  const std::string path = dir_ + "/" + next_name(segments_in(dir_));
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return errno_error(Code::IO, errno, "create '%s'", path.c_str());
  header.snapshot = scheduler.snapshot();
  buffer_ = core::encode_header(header);
  written_ = 0;
  file_ = std::move(file);
  prune();
  return {};
}

void JournalWriter::prune() {
  const auto segments = segments_in(dir_);
  std::error_code ignored;
  for (std::size_t i = 0; i + kKeptSegments < segments.size(); ++i)
    fs::remove(segments[i], ignored);
}

void JournalWriter::record(const core::Event& event, TimePoint at, const core::Actions& actions) {
  if (!file_) return;
  buffer_ += core::encode_record(event, at, actions);
  if (buffer_.size() >= kBufferBytes) flush();
}

void JournalWriter::flush() {
  std::size_t done = 0;
  while (file_ && done < buffer_.size()) {
    const ssize_t count = ::write(file_.get(), buffer_.data() + done, buffer_.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      PLEXRL_LOG(
          kWarning, "%s",
          errno_error(Code::IO, errno, "journal in '%s' ends here", dir_.c_str()).text().c_str());
      file_.reset();
      break;
    }
    done += static_cast<std::size_t>(count);
  }
  written_ += done;
  buffer_.clear();
}

}  // namespace plexrl::runtime
