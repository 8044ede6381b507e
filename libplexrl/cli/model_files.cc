// SPDX-License-Identifier: Apache-2.0
#include "cli/model_files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/train/tokenizer.h"
#include "models/text_file.h"
#include "models/tokenizer_description.h"

namespace plexrl::cli {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the safetensors library
constexpr std::uintmax_t kMaxJsonBytes = 64U << 20;
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 48;

std::uint64_t dtype_bytes(const std::string& dtype) {
  static const std::map<std::string, std::uint64_t> kBytes = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};
  const auto found = kBytes.find(dtype);
  return found == kBytes.end() ? 0 : found->second;
}

Result<nlohmann::json> read_json(const std::string& path) {
  std::error_code code;
  const auto bytes = std::filesystem::file_size(path, code);
  if (code) return error(Code::NOT_FOUND, "%s: %s", path.c_str(), code.message().c_str());
  if (bytes > kMaxJsonBytes) return error(Code::TOO_LARGE, "%s: larger than 64 MiB", path.c_str());
  std::ifstream file(path);
  auto document = nlohmann::json::parse(file, nullptr, false);
  if (!document.is_object()) return error(Code::CORRUPT, "%s: not a JSON object", path.c_str());
  return document;
}

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Result<std::uint64_t> elements_of(const nlohmann::json& tensor) {
  const auto shape = tensor.find("shape");
  if (shape == tensor.end() || !shape->is_array()) return error(Code::CORRUPT, "no shape");
  std::uint64_t elements = 1;
  for (const auto& size : *shape) {
    const std::uint64_t count = size.is_number_unsigned() ? size.get<std::uint64_t>() : UINT64_MAX;
    if (count > kMaxElements / std::max<std::uint64_t>(elements, 1))
      return error(Code::CORRUPT, "its shape is not sensible");
    elements *= count;
  }
  return elements;
}

Result<Range> range_of(const nlohmann::json& tensor) {
  const auto offsets = tensor.find("data_offsets");
  if (offsets == tensor.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned())
    return error(Code::CORRUPT, "no data_offsets");
  return Range{(*offsets)[0].get<std::uint64_t>(), (*offsets)[1].get<std::uint64_t>()};
}

// Adds one tensor to the sums; its bytes must be as many as dtype and shape say.
Result<Range> check_tensor(const nlohmann::json& tensor, SafetensorsFacts& facts) {
  if (!tensor.is_object() || !tensor.contains("dtype") || !tensor["dtype"].is_string())
    return error(Code::CORRUPT, "no dtype");
  const std::string dtype = tensor["dtype"].get<std::string>();
  const std::uint64_t size = dtype_bytes(dtype);
  if (size == 0) return error(Code::UNSUPPORTED, "dtype '%s'", dtype.c_str());
  PLEXRL_ASSIGN(const std::uint64_t elements, elements_of(tensor));
  PLEXRL_ASSIGN(const Range range, range_of(tensor));
  if (range.end < range.begin || range.end - range.begin != elements * size)
    return error(Code::CORRUPT, "its offsets do not fit its shape");
  ++facts.tensors;
  facts.parameters += elements;
  return range;
}

// The tensors must cover the data without gaps or overlaps.
Status check_cover(std::vector<Range> ranges, std::uint64_t data_bytes) {
  std::sort(ranges.begin(), ranges.end(), [](Range a, Range b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::uint64_t at = 0;
  for (const Range& range : ranges) {
    if (range.begin != at)
      return error(Code::CORRUPT, "a gap or overlap at byte %llu of the data",
                   static_cast<unsigned long long>(at));
    at = range.end;
  }
  if (at != data_bytes)
    return error(Code::CORRUPT,
                 "the header describes %llu bytes of data, the file has %llu (truncated?)",
                 static_cast<unsigned long long>(at), static_cast<unsigned long long>(data_bytes));
  return {};
}

Result<nlohmann::json> read_header(std::ifstream& file, std::uint64_t file_bytes,
                                   std::uint64_t& header_bytes) {
  std::array<unsigned char, 8> length{};
  if (!file.read(reinterpret_cast<char*>(length.data()), length.size()))
    return error(Code::CORRUPT, "too short for a safetensors file");
  header_bytes = 0;
  for (std::size_t i = length.size(); i-- > 0;) header_bytes = header_bytes << 8 | length[i];
  if (header_bytes > kMaxHeaderBytes || header_bytes > file_bytes - length.size())
    return error(Code::CORRUPT, "a header of %llu bytes",
                 static_cast<unsigned long long>(header_bytes));
  std::string text(header_bytes, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size())))
    return error(Code::CORRUPT, "the header is cut");
  auto header = nlohmann::json::parse(text, nullptr, false);
  if (!header.is_object()) return error(Code::CORRUPT, "the header is not a JSON object");
  return header;
}

Status compare(const char* name, std::uint64_t registered, const nlohmann::json& config) {
  const auto found = config.find(name);
  if (registered == 0) return {};
  if (found == config.end() || !found->is_number_unsigned())
    return error(Code::CORRUPT, "config.json has no %s", name);
  if (found->get<std::uint64_t>() == registered) return {};
  return error(Code::INVALID_ARGUMENT, "config.json has %s %s, the site file %llu", name,
               found->dump().c_str(), static_cast<unsigned long long>(registered));
}

// model.safetensors, or the files that the index names.
Result<std::vector<std::string>> weight_files(const std::filesystem::path& directory) {
  if (std::filesystem::exists(directory / "model.safetensors"))
    return std::vector<std::string>{(directory / "model.safetensors").string()};
  PLEXRL_ASSIGN(const auto index, read_json((directory / "model.safetensors.index.json").string()));
  const auto map = index.find("weight_map");
  std::set<std::string> names;
  if (map != index.end() && map->is_object())
    for (const auto& [tensor, file] : map->items())
      if (file.is_string()) names.insert(file.get<std::string>());
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    if (name.find('/') != name.npos)
      return error(Code::CORRUPT, "the index names '%s', which is not a file name", name.c_str());
    paths.push_back((directory / name).string());
  }
  if (paths.empty()) return error(Code::CORRUPT, "the index names no file");
  return paths;
}

// As a job that trains would read it.
Status check_tokenizer(const std::filesystem::path& directory, const nlohmann::json& config) {
  const auto rows = config.find("vocab_size");
  const bool known = rows != config.end() && rows->is_number_unsigned();
  PLEXRL_ASSIGN(
      std::string description,
      model::describe_tokenizer(directory.string(), known ? rows->get<std::int64_t>() : INT64_MAX));
  if (description.empty()) {
    const auto own = model::read_text((directory / "plexrl_tokenizer.json").string(), 1U << 20);
    if (!own.has_value() && own.error().code() == Code::NOT_FOUND)
      return error(Code::NOT_FOUND, "no tokenizer.json and no plexrl_tokenizer.json");
    PLEXRL_ASSIGN(description, own);
  }
  return make_tokenizer(description).status().within(directory.string());
}

void note(const Status& status, ModelCheck& check) {
  if (!status.ok()) check.problems.push_back(status.text());
}

}  // namespace

Result<SafetensorsFacts> check_safetensors(const std::string& path) {
  std::error_code code;
  SafetensorsFacts facts;
  facts.bytes = std::filesystem::file_size(path, code);
  if (code) return error(Code::NOT_FOUND, "%s: %s", path.c_str(), code.message().c_str());
  std::ifstream file(path, std::ios::binary);
  if (!file) return errno_error(Code::IO, errno, "%s: open", path.c_str());
  std::uint64_t header_bytes = 0;
  auto header = read_header(file, facts.bytes, header_bytes);
  if (!header.has_value()) return header.error().within(path);
  std::vector<Range> ranges;
  for (const auto& [name, tensor] : header->items()) {
    if (name == "__metadata__") continue;
    const auto range = check_tensor(tensor, facts);
    if (!range.has_value()) return range.error().within("tensor '" + name + "'").within(path);
    ranges.push_back(*range);
  }
  PLEXRL_TRY(check_cover(std::move(ranges), facts.bytes - 8 - header_bytes).within(path));
  return facts;
}

ModelCheck check_model(const config::ModelEntry& entry) {
  ModelCheck check;
  const std::filesystem::path directory(entry.path);
  const auto config = read_json((directory / "config.json").string());
  note(config.status(), check);
  if (config.has_value()) {
    note(compare("hidden_size", entry.hidden_size, *config), check);
    note(compare("num_hidden_layers", entry.layers, *config), check);
    note(compare("intermediate_size", entry.intermediate_size, *config), check);
  }
  note(check_tokenizer(directory, config.has_value() ? *config : nlohmann::json::object()), check);
  const auto files = weight_files(directory);
  note(files.status(), check);
  if (!files.has_value()) return check;
  for (const std::string& path : *files) {
    const auto facts = check_safetensors(path);
    note(facts.status(), check);
    if (!facts.has_value()) continue;
    check.parameters += facts->parameters;
    check.bytes += facts->bytes;
  }
  if (check.problems.empty() && entry.parameters != 0 && entry.parameters != check.parameters)
    check.problems.push_back("the files hold " + std::to_string(check.parameters) +
                             " parameters, the site file says " + std::to_string(entry.parameters));
  return check;
}

}  // namespace plexrl::cli
