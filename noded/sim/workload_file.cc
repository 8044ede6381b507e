// SPDX-License-Identifier: Apache-2.0
#include "sim/workload_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "config/value_check.h"
#include "config/yaml_document.h"
#include "sim/workload_keys.h"

namespace plexrl::sim {
namespace {

constexpr std::size_t kMaxText = 4096;
constexpr std::size_t kMaxEntries = 256;  // of a list

// Which keys of a distribution belong to which kind.
struct KindRow {
  const char* name;
  Distribution::Kind kind;
  const char* keys;
};
constexpr KindRow kKinds[] = {
    {"uniform", Distribution::Kind::kUniform, "kind min max"},
    {"exponential", Distribution::Kind::kExponential, "kind mean"},
    {"lognormal", Distribution::Kind::kLognormal, "kind median mean sigma max"},
    {"longest", Distribution::Kind::kLongest, "kind median mean sigma max samples"},
};

class Reader {
 public:
  explicit Reader(config::ErrorList* errors) : errors_(errors) {}

  Workload read(const YAML::Node& root);

 private:
  void complain(const YAML::Node& node, const std::string& key, const std::string& text) {
    errors_->add(node.Mark().line, (key.empty() ? "" : key + ": ") + text);
  }
  template <class Section>
  void section(const YAML::Node& node, const std::string& where,
               std::span<const WorkloadKey<Section>> keys, const std::set<std::string>& others,
               Section* out);
  template <class Section>
  void list(const YAML::Node& node, const std::string& where,
            std::span<const WorkloadKey<Section>> keys, std::vector<Section>* out);
  void value(const YAML::Node& node, const std::string& key, double, double, std::string* out);
  void value(const YAML::Node& node, const std::string& key, double min, double max, double* out);
  void value(const YAML::Node& node, const std::string& key, double min, double max,
             std::uint32_t* out);
  void value(const YAML::Node& node, const std::string& key, double, double, Distribution* out);
  void value(const YAML::Node& node, const std::string& key, double min, double max,
             std::vector<double>* out);
  void spread(const YAML::Node& node, const std::string& key, const KindRow& row,
              Distribution* out);
  void names_are_new(const YAML::Node& root, const Workload& workload);
  void check_pools(const YAML::Node& root, const Workload& workload);

  config::ErrorList* errors_;
};

void Reader::value(const YAML::Node& node, const std::string& key, double, double,
                   std::string* out) {
  if (!node.IsScalar()) return complain(node, key, "expected one value");
  const std::string text = node.Scalar();
  const bool plain = std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
  });
  if (text.empty() || text.size() > kMaxText || !plain)
    return complain(node, key, "expected a text of 1 to 4096 printable characters");
  *out = text;
}

void Reader::value(const YAML::Node& node, const std::string& key, double min, double max,
                   double* out) {
  double number = 0;
  if (!node.IsScalar() || !YAML::convert<double>::decode(node, number) || !std::isfinite(number))
    return complain(node, key, "expected a number");
  if (number < min || number > max) {
    std::ostringstream range;
    range << "expected a number from " << min << " to " << max;
    return complain(node, key, range.str());
  }
  *out = number;
}

void Reader::value(const YAML::Node& node, const std::string& key, double min, double max,
                   std::uint32_t* out) {
  double number = *out;
  value(node, key, min, max, &number);
  if (number != std::floor(number)) return complain(node, key, "expected a whole number");
  *out = static_cast<std::uint32_t>(number);
}

void Reader::value(const YAML::Node& node, const std::string& key, double min, double max,
                   std::vector<double>* out) {
  if (!node.IsSequence() || node.size() > kMaxEntries)
    return complain(node, key, "expected a list of at most 256 numbers");
  for (const YAML::Node& item : node) {
    double number = min;
    value(item, key, min, max, &number);
    out->push_back(number);
  }
}

void Reader::value(const YAML::Node& node, const std::string& key, double, double,
                   Distribution* out) {
  if (node.IsScalar()) {
    double number = 0;
    value(node, key, 0, 1e9, &number);
    *out = Distribution::constant(number);
    return;
  }
  const YAML::Node kind = node.IsMap() ? node["kind"] : YAML::Node(YAML::NodeType::Undefined);
  std::string known;
  for (const KindRow& row : kKinds) {
    if (kind && kind.IsScalar() && kind.Scalar() == row.name) return spread(node, key, row, out);
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  complain(node, key, "expected a number of seconds, or a kind (" + known + ") with its numbers");
}

void Reader::spread(const YAML::Node& node, const std::string& key, const KindRow& row,
                    Distribution* out) {
  const std::vector<std::string> keys = config::split_words(row.keys);
  std::map<std::string, double> numbers;
  for (const auto& pair : node) {
    const std::string name = pair.first.IsScalar() ? pair.first.Scalar() : "";
    if (std::find(keys.begin(), keys.end(), name) == keys.end()) {
      complain(pair.first, key, "'" + name.substr(0, 80) + "' does not belong to " + row.name);
    } else if (name != "kind") {
      value(pair.second, key + "." + name, 0, 1e9, &numbers[name]);
    }
  }
  Distribution made;
  made.kind = row.kind;
  made.min = numbers["min"];
  made.max = numbers["max"];
  made.sigma = numbers["sigma"];
  made.samples = numbers.contains("samples") ? numbers["samples"] : 1;
  made.value = 1;  // the unit: max is in medians
  made.scale = 1;
  if (const Status status = made.check(); !status.ok()) return complain(node, key, status.text());
  if (row.kind == Distribution::Kind::kUniform) {
    made.value = 0;
  } else if (numbers["mean"] > 0) {
    made.scale = numbers["mean"] / made.mean();
  } else if (numbers["median"] > 0) {
    made.scale = numbers["median"];
  } else {
    return complain(node, key, "needs a mean or a median above 0");
  }
  *out = made;
}

template <class Section>
void Reader::section(const YAML::Node& node, const std::string& where,
                     std::span<const WorkloadKey<Section>> keys,
                     const std::set<std::string>& others, Section* out) {
  if (!node.IsMap()) return complain(node, where, "expected keys with values");
  const std::string prefix = where.empty() ? "" : where + ".";
  std::vector<std::string> known(others.begin(), others.end());
  for (const WorkloadKey<Section>& key : keys) known.emplace_back(key.name);
  std::set<std::string> seen;
  for (const auto& pair : node) {
    const std::string name = pair.first.IsScalar() ? pair.first.Scalar() : "";
    const std::string full = prefix + name.substr(0, 80);
    if (!seen.insert(name).second) complain(pair.first, full, "given twice");
    if (others.contains(name)) continue;
    const auto key =
        std::find_if(keys.begin(), keys.end(), [&](const auto& row) { return name == row.name; });
    if (key == keys.end()) {
      const std::string near = config::nearest(name, known);
      complain(pair.first, full,
               near.empty() ? "unknown key" : "unknown key; did you mean '" + near + "'?");
      continue;
    }
    std::visit([&](auto field) { value(pair.second, full, key->min, key->max, &(out->*field)); },
               key->field);
  }
  for (const WorkloadKey<Section>& key : keys)
    if (key.required && !seen.contains(key.name)) complain(node, prefix + key.name, "missing");
}

template <class Section>
void Reader::list(const YAML::Node& node, const std::string& where,
                  std::span<const WorkloadKey<Section>> keys, std::vector<Section>* out) {
  if (!node) return;
  if (!node.IsSequence() || node.size() > kMaxEntries)
    return complain(node, where, "expected a list of at most 256 entries");
  for (const YAML::Node& item : node) section(item, where, keys, {}, &out->emplace_back());
}

void Reader::names_are_new(const YAML::Node& root, const Workload& workload) {
  std::set<std::string> names;
  for (const PoolSpec& pool : workload.pools)
    if (!names.insert(pool.name).second) complain(root["pools"], "pools", pool.name + " twice");
  names.clear();
  for (const JobSpec& job : workload.jobs)
    if (!names.insert(job.name).second) complain(root["jobs"], "jobs", job.name + " twice");
}

void Reader::check_pools(const YAML::Node& root, const Workload& workload) {
  for (std::size_t i = 0; i < workload.pools.size(); ++i) {
    const PoolSpec& pool = workload.pools[i];
    if (pool.gpus % pool.gpus_per_node != 0)
      complain(root["pools"][i], "pools", "gpus is not a multiple of gpus_per_node");
    if (pool.activation_gb >= pool.device_gb)
      complain(root["pools"][i], "pools", "activation_gb leaves no device memory for state");
  }
}

Workload Reader::read(const YAML::Node& root) {
  Workload workload;
  section(root, "", workload_keys(), {"pools", "jobs", "published", "sensitivity"}, &workload);
  if (!root.IsMap()) return workload;
  list(root["pools"], "pools", pool_keys(), &workload.pools);
  list(root["jobs"], "jobs", job_keys(), &workload.jobs);
  list(root["published"], "published", published_keys(), &workload.published);
  list(root["sensitivity"], "sensitivity", sensitivity_keys(), &workload.sensitivity);
  if (workload.pools.empty()) complain(root, "pools", "there must be one");
  if (workload.jobs.empty()) complain(root, "jobs", "there must be one");
  if (workload.jobs_total == 0 && workload.trace.empty())
    complain(root, "jobs_total", "there must be jobs, or a trace");
  names_are_new(root, workload);
  check_pools(root, workload);
  for (const Sensitivity& row : workload.sensitivity) {
    Workload copy = workload;
    if (const Status status = override_key(copy, row.key, 1, true); !status.ok())
      complain(root["sensitivity"], "", status.text());
  }
  return workload;
}

}  // namespace

Result<Workload> parse_workload(std::string_view text, std::string_view file_name) {
  config::ErrorList errors(file_name);
  const YAML::Node root = config::read_yaml(text, &errors);
  PLEXRL_TRY(errors.status());
  Workload workload;
  try {
    workload = Reader(&errors).read(root);
  } catch (const YAML::Exception& failure) {
    errors.add(failure.mark.line, failure.msg);
  }
  PLEXRL_TRY(errors.status());
  PLEXRL_TRY(check_workload(workload).within(file_name));
  return workload;
}

Result<Workload> load_workload(const std::string& path) {
  std::error_code failure;
  const auto size = std::filesystem::file_size(path, failure);
  if (failure) return error(Code::NOT_FOUND, "%s: %s", path.c_str(), failure.message().c_str());
  if (size > config::kMaxConfigBytes)
    return error(Code::TOO_LARGE, "%s: larger than 1 MiB", path.c_str());
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return error(Code::IO, "%s: cannot be read", path.c_str());
  PLEXRL_ASSIGN(Workload workload, parse_workload(text.str(), path));
  if (!workload.trace.empty())
    workload.trace = (std::filesystem::path(path).parent_path() / workload.trace).string();
  return workload;
}

}  // namespace plexrl::sim
