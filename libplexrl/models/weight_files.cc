// SPDX-License-Identifier: Apache-2.0
#include "models/weight_files.h"

#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <set>

#include "models/text_file.h"

namespace plexrl::model {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxIndexText = 16 << 20;
constexpr std::size_t kMaxShards = 1024;

}  // namespace

Result<std::vector<std::string>> weight_file_names(const std::string& dir) {
  struct stat info {};
  if (::stat((dir + "/" + kWeightFile).c_str(), &info) == 0)
    return std::vector<std::string>{kWeightFile};
  const Result<std::string> index = read_text(dir + "/" + kWeightIndex, kMaxIndexText);
  if (!index.has_value() && index.error().code() == Code::NOT_FOUND)
    return error(Code::NOT_FOUND, "'%s' has neither %s nor %s", dir.c_str(), kWeightFile,
                 kWeightIndex);
  if (!index.has_value()) return index.error();
  const json object = json::parse(*index, nullptr, false);
  if (!object.is_object() || !object.contains("weight_map") || !object["weight_map"].is_object())
    return error(Code::CORRUPT, "%s: no object 'weight_map'", kWeightIndex);
  std::set<std::string> files;
  for (const auto& [name, value] : object["weight_map"].items()) {
    const std::string file = value.is_string() ? value.get<std::string>() : "";
    if (file.empty() || file.find('/') != std::string::npos)
      return error(Code::CORRUPT, "%s: the file of a tensor must be a plain file name",
                   kWeightIndex);
    files.insert(file);
    if (files.size() > kMaxShards)
      return error(Code::TOO_LARGE, "%s: more than %zu files", kWeightIndex, kMaxShards);
  }
  if (files.empty()) return error(Code::CORRUPT, "%s names no file", kWeightIndex);
  return std::vector<std::string>(files.begin(), files.end());
}

Result<WeightFiles> WeightFiles::open(const std::string& dir) {
  WeightFiles all;
  PLEXRL_ASSIGN(all.names_, weight_file_names(dir));
  for (const std::string& name : all.names_) {
    PLEXRL_ASSIGN(OpenSafetensors opened, open_safetensors(dir + "/" + name, name));
    for (const auto& [tensor, stored] : opened.file.tensors())
      if (!all.where_.emplace(tensor, all.files_.size()).second)
        return error(Code::CORRUPT, "tensor '%s' occurs in two files", tensor.c_str());
    all.files_.push_back(std::move(opened.file));
    all.fds_.push_back(std::move(opened.fd));
  }
  return all;
}

Result<const SafetensorsFile*> WeightFiles::file_of(const std::string& tensor) const {
  const auto it = where_.find(tensor);
  if (it == where_.end()) return error(Code::NOT_FOUND, "tensor '%s' is missing", tensor.c_str());
  return &files_[it->second];
}

}  // namespace plexrl::model
