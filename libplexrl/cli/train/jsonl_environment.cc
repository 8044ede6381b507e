// SPDX-License-Identifier: Apache-2.0
#include "cli/train/jsonl_environment.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/train/messages.h"

namespace plexrl::cli {
namespace {

constexpr std::size_t kMaxLineBytes = 1U << 20;
constexpr std::size_t kMaxProblems = 1U << 22;
constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;
constexpr std::string_view kPrefix = "jsonl:";

// A string field; `needed` false: a missing one is empty.
Result<std::string> field(const nlohmann::json& object, const char* name, bool needed) {
  const auto found = object.find(name);
  if (found == object.end()) {
    if (!needed) return std::string();
    return error(Code::INVALID_ARGUMENT, "\"%s\" is missing", name);
  }
  if (!found->is_string()) return error(Code::INVALID_ARGUMENT, "\"%s\" is not a string", name);
  return found->get<std::string>();
}

// {} when there are none.
Result<std::vector<Message>> messages_of(const nlohmann::json& object) {
  const auto found = object.find("messages");
  if (found == object.end()) return std::vector<Message>();
  if (object.contains("prompt"))
    return error(Code::INVALID_ARGUMENT, R"(both "prompt" and "messages"; write one of them)");
  return read_messages(*found);
}

// What the side of a problem hangs on.
std::string split_key(const Problem& problem) {
  if (problem.messages.empty()) return problem.prompt;
  nlohmann::json key;
  for (const Message& message : problem.messages) key.push_back({message.role, message.content});
  return key.dump();
}

std::uint32_t characters(const std::string& text) {
  return static_cast<std::uint32_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

Result<std::unique_ptr<Environment>> JsonlEnvironment::open(const TrainOptions& options) {
  auto environment = std::make_unique<JsonlEnvironment>();
  const std::string path = options.environment.substr(kPrefix.size());
  if (path.empty())
    return error(Code::INVALID_ARGUMENT, "--env 'jsonl:': write jsonl:FILE, the file of problems");
  environment->stop_ = options.stop_text;
  environment->seed_ = options.seed;
  if (!options.verifier.empty()) {
    environment->verifier_.emplace(options.verifier, options.verifier_timeout_s,
                                   options.verifier_jobs);
    PLEXRL_TRY(environment->verifier_->find());
  }
  PLEXRL_TRY(environment->read(path));
  if (environment->training_.empty())
    return error(
        Code::INVALID_ARGUMENT,
        "%s: no training problem (%zu held out); one prompt in ten is held out, so give more",
        path.c_str(), environment->held_out_.size());
  return std::unique_ptr<Environment>(std::move(environment));
}

Status JsonlEnvironment::read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return errno_error(Code::NOT_FOUND, errno, "jsonl: open '%s'", path.c_str());
  std::string line;
  std::size_t bytes = 0;
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    bytes += line.size() + 1;
    if (line.size() > kMaxLineBytes || bytes > kMaxFileBytes || number > kMaxProblems)
      return error(Code::TOO_LARGE, "%s:%zu: the limits are %zu bytes a line, %zu lines, %zu bytes",
                   path.c_str(), number, kMaxLineBytes, kMaxProblems, kMaxFileBytes);
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    PLEXRL_TRY(add_line(line).within(path + ":" + std::to_string(number)));
  }
  if (file.bad()) return errno_error(Code::IO, errno, "jsonl: read '%s'", path.c_str());
  return {};
}

Status JsonlEnvironment::add_line(const std::string& line) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object())
    return error(Code::INVALID_ARGUMENT,
                 R"(not a JSON object; write {"prompt":"...","answer":"..."})");
  Problem problem;
  PLEXRL_ASSIGN(problem.messages, messages_of(object));
  if (problem.messages.empty()) {
    PLEXRL_ASSIGN(problem.prompt, field(object, "prompt", true));
    if (problem.prompt.empty()) return error(Code::INVALID_ARGUMENT, "\"prompt\" is empty");
  } else {
    problem.prompt = problem.messages.back().content;
    has_messages_ = true;
  }
  PLEXRL_ASSIGN(problem.answer, field(object, "answer", !verifier_.has_value()));
  if (!stop_.empty() && problem.answer.find(stop_) != problem.answer.npos)
    return error(Code::INVALID_ARGUMENT, "\"answer\" contains the stop text '%s'; see --stop",
                 stop_.c_str());
  max_answer_chars_ = std::max(max_answer_chars_, characters(problem.answer) + 1);
  (is_held_out(split_key(problem)) ? held_out_ : training_).push_back(std::move(problem));
  return {};
}

Status JsonlEnvironment::check_problems(const std::function<Status(const Problem&)>& check) const {
  for (const auto* const problems : {&training_, &held_out_})
    for (const Problem& problem : *problems) PLEXRL_TRY(check(problem));
  return {};
}

Problem JsonlEnvironment::training_problem(ProblemSource& source) {
  const std::uint64_t count = training_.size();
  const std::uint64_t number = source.position / count;
  if (!pass_ || pass_->order != source.order || pass_->number != number)
    pass_ =
        Pass{source.order, number,
             Random(seed_, source.order, number).permutation(static_cast<std::uint32_t>(count))};
  return training_[pass_->problems[source.position++ % count]];
}

Problem JsonlEnvironment::held_out_problem(Random& random) {
  return held_out_[random.below(held_out_.size())];
}

Result<std::vector<double>> JsonlEnvironment::score(const std::vector<Attempt>& attempts) {
  if (verifier_.has_value()) return verifier_->score(attempts);
  return exact_matches(attempts);
}

}  // namespace plexrl::cli
