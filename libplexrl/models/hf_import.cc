// SPDX-License-Identifier: Apache-2.0
#include "models/hf_import.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "models/checksums.h"
#include "models/partial_directory.h"
#include "models/read_at.h"
#include "models/side_files.h"
#include "models/text_file.h"
#include "models/weight_files.h"
#include "models/write_file.h"

namespace plexrl::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kConfig = "config.json";
constexpr const char* kState = "plexrl-import.json";
constexpr std::uint64_t kMaxState = 4 << 20;
constexpr std::size_t kBlock = 1 << 20;
struct SourceFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::int64_t changed_ns = 0;
  bool weights = false;
};

std::int64_t nanoseconds(const struct timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

Result<SourceFile> look_at(const std::string& dir, const std::string& name, bool weights) {
  struct stat info {};
  const std::string path = dir + "/" + name;
  if (::stat(path.c_str(), &info) != 0)
    return errno_error(errno == ENOENT ? Code::NOT_FOUND : Code::IO, errno, "'%s'", path.c_str());
  if (!S_ISREG(info.st_mode))
    return error(Code::INVALID_ARGUMENT, "'%s' is not a regular file", path.c_str());
  return SourceFile{name, static_cast<std::uint64_t>(info.st_size), nanoseconds(info.st_mtim),
                    weights};
}

Result<std::vector<SourceFile>> list_source(const std::string& dir) {
  std::vector<SourceFile> files;
  PLEXRL_ASSIGN(const std::vector<std::string> weights, weight_file_names(dir));
  for (const char* name : kSideFiles)
    if (fs::exists(dir + "/" + name)) {
      PLEXRL_ASSIGN(SourceFile file, look_at(dir, name, false));
      files.push_back(std::move(file));
    }
  for (const std::string& name : weights) {
    PLEXRL_ASSIGN(SourceFile file, look_at(dir, name, true));
    files.push_back(std::move(file));
  }
  std::vector<std::string> last = {kConfig};
  if (weights != std::vector<std::string>{kWeightFile}) last.insert(last.begin(), kWeightIndex);
  for (const std::string& name : last) {
    PLEXRL_ASSIGN(SourceFile file, look_at(dir, name, false));
    files.push_back(std::move(file));
  }
  return files;
}

class Importer {
 public:
  Importer(const HfImport& import, const FileProgress& progress, PartialDirectory& to)
      : import_(import), progress_(progress), to_(to) {}

  Status run(const std::vector<SourceFile>& files) {
    read_state();
    for (const SourceFile& file : files) result_.bytes += file.bytes;
    PLEXRL_TRY(drop_strangers(files));
    PLEXRL_TRY(check_room(to_.path(), missing_bytes(files)));
    for (const SourceFile& file : files) {
      if (!finished(file)) PLEXRL_TRY(bring(file));
      result_.files.push_back(file.name);
      sums_[file.name] = state_["files"][file.name]["sha256"].get<std::string>();
    }
    return {};
  }
  // What is left to do before it is published.
  Status seal() {
    PLEXRL_TRY(write_text(to_.file(kChecksumFile), checksum_text(sums_)));
    if (::unlink(to_.file(kState).c_str()) == 0 || errno == ENOENT) return {};
    return errno_error(Code::IO, errno, "remove '%s'", to_.file(kState).c_str());
  }
  [[nodiscard]] ImportedFiles& result() { return result_; }

 private:
  // What is not ours or of another source counts as nothing.
  void read_state() {
    const Result<std::string> text = read_text(to_.file(kState), kMaxState);
    const json state = text.has_value() ? json::parse(*text, nullptr, false) : json();
    const std::string source = fs::absolute(import_.from).lexically_normal();
    const bool ours = state.is_object() && state.value("source", json()) == source &&
                      state.contains("files") && state["files"].is_object();
    state_ = ours ? state : json{{"source", source}, {"files", json::object()}};
  }

  [[nodiscard]] bool recorded(const SourceFile& file) const {
    const json row = state_["files"].value(file.name, json());
    const json want = {{"bytes", file.bytes}, {"changed_ns", file.changed_ns}};
    return row.is_object() && row.value("bytes", json()) == want["bytes"] &&
           row.value("changed_ns", json()) == want["changed_ns"] &&
           row.value("sha256", json()).is_string();
  }
  bool finished(const SourceFile& file) {
    struct stat info {};
    if (!recorded(file) || ::stat(to_.file(file.name).c_str(), &info) != 0 ||
        static_cast<std::uint64_t>(info.st_size) != file.bytes)
      return false;
    result_.resumed_bytes += file.bytes;
    done_ += file.bytes;
    return true;
  }

  // A file of an earlier import of something else would be published with the rest.
  Status drop_strangers(const std::vector<SourceFile>& files) {
    std::set<std::string> known = {kState};
    for (const SourceFile& file : files) {
      if (recorded(file)) known.insert(file.name);
      known.insert(file.name + ".part");
    }
    return to_.keep_only(known);
  }

  [[nodiscard]] std::uint64_t missing_bytes(const std::vector<SourceFile>& files) const {
    std::uint64_t missing = 0;
    for (const SourceFile& file : files) {
      struct stat info {};
      const std::string path = to_.file(file.name);
      const bool there =
          ::stat(path.c_str(), &info) == 0 || ::stat((path + ".part").c_str(), &info) == 0;
      const auto size = there ? static_cast<std::uint64_t>(info.st_size) : 0;
      if (!(file.weights && import_.link)) missing += file.bytes - std::min(file.bytes, size);
    }
    return missing;
  }

  Status bring(const SourceFile& file) {
    const bool link = import_.link && file.weights;
    PLEXRL_ASSIGN(const std::string sum, link ? link_file(file) : copy_file(file));
    PLEXRL_ASSIGN(const SourceFile after, look_at(import_.from, file.name, file.weights));
    if (after.bytes != file.bytes || after.changed_ns != file.changed_ns)
      return error(Code::CORRUPT, "'%s/%s' changed while it was read", import_.from.c_str(),
                   file.name.c_str());
    state_["files"][file.name] = {
        {"bytes", file.bytes}, {"changed_ns", file.changed_ns}, {"sha256", sum}};
    return write_text(to_.file(kState), state_.dump() + "\n");
  }

  Result<std::string> link_file(const SourceFile& file) {
    const std::string from = import_.from + "/" + file.name;
    const std::string to = to_.file(file.name);
    ::unlink(to.c_str());
    if (::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) != 0)
      return errno_error(Code::IO, errno, "link '%s' (without --link it is copied)", to.c_str());
    return file_sha256(to, [this](std::uint64_t bytes) {
      done_ += bytes;
      return progress_(done_, result_.bytes);
    });
  }

  Result<std::string> copy_file(const SourceFile& file) {
    const std::string path = import_.from + "/" + file.name;
    const std::string part = to_.file(file.name) + ".part";
    const UniqueFd from(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!from) return errno_error(Code::IO, errno, "open '%s'", path.c_str());
    PLEXRL_ASSIGN(const UniqueFd to, create_file(part));
    PLEXRL_ASSIGN(const std::string sum, copy_bytes(file, from.get(), to.get()));
    if (::ftruncate(to.get(), static_cast<off_t>(file.bytes)) != 0)
      return errno_error(Code::IO, errno, "truncate '%s'", part.c_str());
    PLEXRL_TRY(sync_file(to.get(), part));
    if (::rename(part.c_str(), to_.file(file.name).c_str()) == 0) return sum;
    return errno_error(Code::IO, errno, "rename '%s'", part.c_str());
  }

  Result<std::string> copy_bytes(const SourceFile& file, int from, int to) {
    struct stat info {};
    if (::fstat(to, &info) != 0)
      return errno_error(Code::IO, errno, "stat '%s'", file.name.c_str());
    const std::string what = "'" + to_.file(file.name) + "'";
    const auto there = static_cast<std::uint64_t>(info.st_size);
    Sha256 hash;
    std::vector<char> block(kBlock), old(kBlock);
    for (std::uint64_t at = 0; at < file.bytes;) {
      const auto count = std::min<std::uint64_t>(kBlock, file.bytes - at);
      PLEXRL_TRY(read_at(from, block.data(), count, at, import_.from + "/" + file.name));
      hash.update(block.data(), count);
      const bool equal = at + count <= there && read_at(to, old.data(), count, at, what).ok() &&
                         std::memcmp(block.data(), old.data(), count) == 0;
      if (!equal) PLEXRL_TRY(write_at(to, block.data(), count, at, what));
      if (equal) result_.resumed_bytes += count;
      at += count;
      done_ += count;
      if (!progress_(done_, result_.bytes))
        return error(
            Code::CANCELLED,
            "the import was cancelled; the same command goes on from here, and '%s' may be "
            "removed",
            to_.path().c_str());
    }
    return hash.hex();
  }

  const HfImport& import_;
  const FileProgress& progress_;
  PartialDirectory& to_;
  ImportedFiles result_;
  json state_;
  Checksums sums_;
  std::uint64_t done_ = 0;
};

std::vector<std::string> others_of(const std::string& dir, const std::vector<std::string>& taken) {
  std::vector<std::string> others;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(dir, code)) {
    const std::string name = entry.path().filename();
    if (std::find(taken.begin(), taken.end(), name) == taken.end() && name != kChecksumFile)
      others.push_back(name);
  }
  std::sort(others.begin(), others.end());
  return others;
}

}  // namespace

Result<ImportedFiles> import_hf(const HfImport& import, const FileProgress& progress,
                                const DirectoryCheck& check) {
  PLEXRL_ASSIGN(const std::vector<SourceFile> files, list_source(import.from));
  PLEXRL_ASSIGN(PartialDirectory to, PartialDirectory::open(import.to));
  Importer importer(import, progress, to);
  PLEXRL_TRY(importer.run(files));
  PLEXRL_TRY(check(to.path()));
  PLEXRL_TRY(importer.seal());
  PLEXRL_TRY(to.publish());
  importer.result().left_out = others_of(import.from, importer.result().files);
  return std::move(importer.result());
}

}  // namespace plexrl::model
