// SPDX-License-Identifier: Apache-2.0
#include "cli/model_copy_command.h"

#include <filesystem>
#include <map>

#include "cli/model_files.h"
#include "cli/model_registry.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "models/gguf_import.h"
#include "models/hf_import.h"
#include "models/model_export.h"

namespace plexrl::cli {
namespace {

namespace fs = std::filesystem;

std::string absolute(const std::string& path) {
  std::string name = fs::absolute(path).lexically_normal();
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  return name;
}

// Shows how far it is, and says when to stop.
auto reporter(ProgressLine& line) {
  return [&line](std::uint64_t done, std::uint64_t all) {
    line.show(done, all);
    return !stop_requested();
  };
}

struct ImportOptions {
  std::string from;
  std::string to;
  bool link = false;
  bool json = false;
};

struct Imported {
  model::ImportedFiles files;  // of a directory
  ModelCheck check;
};

Result<Imported> import_directory(const ImportOptions& options) {
  // Before anything is copied, and again of what was.
  PLEXRL_TRY(status_of(check_model_dir(options.from)).within(options.from));
  Imported imported;
  ProgressLine line("import");
  const auto check = [&](const std::string& dir) {
    imported.check = check_model_dir(dir);
    return status_of(imported.check);
  };
  PLEXRL_ASSIGN(imported.files,
                model::import_hf({options.from, options.to, options.link}, reporter(line), check));
  return imported;
}

Result<Imported> import_file(const ImportOptions& options) {
  if (options.link) return error(Code::INVALID_ARGUMENT, "--link: a GGUF file is always converted");
  {
    ProgressLine line("import");
    PLEXRL_TRY(model::import_gguf(options.from, options.to, reporter(line)).status());
  }
  Imported imported;
  imported.check = check_model_dir(options.to);
  PLEXRL_TRY(status_of(imported.check).within(options.to));
  return imported;
}

const char* family_name(model::Family family) {
  constexpr const char* kNames[] = {"llama", "qwen2", "qwen3"};
  return kNames[static_cast<std::size_t>(family)];
}

nlohmann::json json_of(const std::string& path, const Imported& imported) {
  const ModelCheck& check = imported.check;
  return {{"path", path},
          {"architecture", family_name(check.config.family)},
          {"parameters", check.parameters},
          {"bytes", check.bytes},
          {"dtype", check.dtype},
          {"files", imported.files.files},
          {"left_out", imported.files.left_out},
          {"resumed_bytes", imported.files.resumed_bytes}};
}

// The entry for plexrl.yaml, with all that the site file must know.
std::string site_entry(const std::string& path, const ModelCheck& check) {
  const model::ModelConfig& c = check.config;
  const auto number = [](const char* key, std::int64_t value) {
    return std::string(", ") + key + ": " + std::to_string(value);
  };
  std::string text = "  - {name: NAME, path: " + path +
                     number("parameters", static_cast<std::int64_t>(check.parameters)) +
                     number("hidden_size", c.hidden_size) +
                     ",\n     layers: " + std::to_string(c.layers) +
                     number("intermediate_size", c.intermediate_size);
  if (c.query_size() != c.hidden_size) text += number("attention_size", c.query_size());
  text += number("kv_size", c.kv_size());
  if (check.dtype == "BF16" || check.dtype == "F16") text += number("bytes_per_parameter", 2);
  return text + "}\n";
}

std::string as_site_entry(const std::string& path, const ModelCheck& check) {
  return "plexrl.yaml takes it as\n" + site_entry(path, check);
}

Status run_import(const ImportOptions& options) {
  catch_stop_signals();
  std::error_code code;
  const bool directory = fs::is_directory(options.from, code);
  PLEXRL_ASSIGN(const Imported imported,
                directory ? import_directory(options) : import_file(options));
  const std::string path = absolute(options.to);
  if (options.json) {
    print_json(json_of(path, imported));
    return {};
  }
  std::string text = "imported " + path + ": " + family_name(imported.check.config.family) + ", " +
                     std::to_string(imported.check.parameters) + " parameters, " +
                     format_bytes(imported.check.bytes) + " of " + imported.check.dtype + "\n";
  if (imported.files.resumed_bytes > 0)
    text += format_bytes(imported.files.resumed_bytes) + " were there from an earlier import\n";
  if (!imported.files.left_out.empty())
    text += "not part of a model, left out: " + joined(imported.files.left_out) + "\n";
  print_text(text + as_site_entry(path, imported.check));
  return {};
}

struct ExportOptions {
  model::ModelExport request;
  std::string base;  // name or directory
  std::string format;
  std::string config;
  std::string dtype;
  bool json = false;
};

Result<model::ModelExport> request_of(const ExportOptions& options, const std::string& format) {
  model::ModelExport request = options.request;
  static const std::map<std::string, model::DType> kTypes = {{"float32", model::DType::kF32},
                                                             {"float16", model::DType::kF16},
                                                             {"bfloat16", model::DType::kBF16}};
  if (!options.dtype.empty()) request.dtype = kTypes.at(options.dtype);
  if (options.base.empty()) return request;
  PLEXRL_ASSIGN(const auto chosen, choose_models(options.config, {options.base}));
  request.base = absolute(chosen.front().path);
  const ModelCheck check = check_model_dir(request.base);
  if (check.config.layers != 0) request.tensors = tensors_of(check.config);
  // PEFT wants the base's name only, wherever it is.
  if (format != "peft") PLEXRL_TRY(status_of(check).within(request.base));
  return request;
}

Status print_result(const ExportOptions& options, const char* what,
                    const model::ExportedModel& made) {
  const std::string path = absolute(options.request.to);
  const std::string dtype(model::dtype_name(made.dtype));
  if (options.json)
    print_json({{"path", path},
                {"format", what},
                {"parameters", made.parameters},
                {"bytes", made.bytes},
                {"dtype", dtype}});
  else
    print_text("wrote " + path + ": " + what + ", " + std::to_string(made.parameters) +
               " parameters, " + format_bytes(made.bytes) + " of " + dtype + "\n" +
               (what == std::string("hf") ? as_site_entry(path, check_model_dir(path)) : ""));
  return {};
}

Status run_merge(const ExportOptions& options) {
  catch_stop_signals();
  PLEXRL_ASSIGN(const auto request, request_of(options, "hf"));
  ProgressLine line("merge");
  PLEXRL_ASSIGN(const auto made, model::merge_adapter(request, reporter(line)));
  return print_result(options, "hf", made);
}

Status run_export(const ExportOptions& options) {
  catch_stop_signals();
  PLEXRL_ASSIGN(const auto kind, model::saved_kind(options.request.from));
  const bool adapter = kind == model::SavedKind::kAdapter;
  const std::string format = options.format.empty() ? (adapter ? "peft" : "hf") : options.format;
  if (format == "peft" && !adapter)
    return error(Code::INVALID_ARGUMENT, "'%s' holds a full model, not an adapter: --format hf",
                 options.request.from.c_str());
  if (format == "hf" && options.base.empty())
    return error(Code::INVALID_ARGUMENT,
                 "--format hf needs --base: the model whose configuration and tokenizer it has");
  PLEXRL_ASSIGN(const auto request, request_of(options, format));
  ProgressLine line("export");
  PLEXRL_ASSIGN(const auto made, format == "peft" ? model::export_peft(request, reporter(line))
                                 : adapter        ? model::merge_adapter(request, reporter(line))
                                                  : model::export_full(request, reporter(line)));
  return print_result(options, format.c_str(), made);
}

void add_import(CLI::App& group, Run& chosen) {
  auto* command = group.add_subcommand(
      "import", "make a model directory of a Hugging Face directory or of a GGUF file");
  auto options = std::make_shared<ImportOptions>();
  command->add_option("SOURCE", options->from, "the directory or the GGUF file")->required();
  command->add_option("DIRECTORY", options->to, "new, for the model")->required();
  command->add_flag("--link", options->link, "hard links to the weights, no copies");
  add_json_option(*command, options->json);
  on_chosen(*command, chosen, options, run_import);
}

void add_output_options(CLI::App& command, ExportOptions& options) {
  command.add_option("--dtype", options.dtype, "of the weights: float32, bfloat16 or float16")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  command.add_option("--config", options.config, kSiteFileHelp);
  add_json_option(command, options.json);
}

void add_merge(CLI::App& group, Run& chosen) {
  auto* command = group.add_subcommand("merge", "make a full model of a base and an adapter of it");
  auto options = std::make_shared<ExportOptions>();
  command->add_option("BASE", options->base, "the base: its name, or its directory")->required();
  command
      ->add_option("ADAPTER", options->request.from,
                   "a PEFT directory, or the file of train --save")
      ->required();
  command->add_option("DIRECTORY", options->request.to, "new, for the model")->required();
  add_output_options(*command, *options);
  on_chosen(*command, chosen, options, run_merge);
}

void add_export(CLI::App& group, Run& chosen) {
  auto* command = group.add_subcommand(
      "export", "make a PEFT or a Hugging Face directory of what plexrl train --save wrote");
  auto options = std::make_shared<ExportOptions>();
  command->add_option("FILE", options->request.from, "the file of train --save")->required();
  command->add_option("DIRECTORY", options->request.to, "new, for the model or the adapter")
      ->required();
  command->add_option("--base", options->base, "the base: its name, or its directory");
  command
      ->add_option("--format", options->format,
                   "hf or peft; default: peft of an adapter, hf of a full model")
      ->check(CLI::IsMember({"hf", "peft"}));
  add_output_options(*command, *options);
  on_chosen(*command, chosen, options, run_export);
}

}  // namespace

void add_model_copies(CLI::App& group, Run& chosen) {
  add_import(group, chosen);
  add_export(group, chosen);
  add_merge(group, chosen);
}

}  // namespace plexrl::cli
