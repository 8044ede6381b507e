// SPDX-License-Identifier: Apache-2.0
#include "cli/train/verifier.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "cli/bounded_command.h"
#include "cli/output.h"

namespace plexrl::cli {
namespace {

constexpr std::size_t kMaxOutputBytes = 65536;

std::string input_line(const Attempt& attempt) {
  nlohmann::json line = {{"prompt", attempt.problem->prompt},
                         {"answer", attempt.problem->answer},
                         {"completion", attempt.completion},
                         {"stopped", attempt.stopped}};
  for (const Message& message : attempt.problem->messages)
    line["messages"].push_back({{"role", message.role}, {"content", message.content}});
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<double> parse_reward(std::string_view output) {
  const auto blank = " \t\r\n";
  const auto begin = output.find_first_not_of(blank);
  if (begin == output.npos) return 1.0;
  output = output.substr(begin, output.find_last_not_of(blank) - begin + 1);
  double reward = 0.0;
  const auto [end, code] = std::from_chars(output.data(), output.data() + output.size(), reward);
  if (code != std::errc() || end != output.data() + output.size() || !std::isfinite(reward))
    return error(Code::INVALID_ARGUMENT, "it wrote '%.40s', which is not one number",
                 std::string(output).c_str());
  return reward;
}

}  // namespace

Verifier::Verifier(std::string command, double timeout_s, std::uint32_t jobs)
    : command_(std::move(command)), timeout_s_(timeout_s), jobs_(std::max(jobs, 1U)) {}

Status Verifier::find() const {
  constexpr Duration kLimit{10 * kSecond.ns};
  const auto begin = std::min(command_.find_first_not_of(" \t\n"), command_.size());
  const auto end = std::min(command_.find_first_of(" \t\n", begin), command_.size());
  const std::string word = command_.substr(begin, end - begin);
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_./+-").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (word.empty() || word.front() == '-' || !std::all_of(word.begin(), word.end(), plain))
    return {};
  PLEXRL_ASSIGN(const CommandResult result,
                run_bounded("command -v " + word, "", kLimit, kMaxOutputBytes));
  if (result.exit_status == 0) return {};
  return error(Code::NOT_FOUND, "--verifier '%s': there is no command '%s' that can be run",
               command_.c_str(), word.c_str());
}

Result<double> Verifier::verify(const Attempt& attempt) const {
  const Duration limit{static_cast<std::int64_t>(timeout_s_ * 1e9)};
  PLEXRL_ASSIGN(const CommandResult result,
                run_bounded(command_, input_line(attempt), limit, kMaxOutputBytes));
  if (result.exit_status == 1) return 0.0;
  if (result.exit_status != 0)
    return error(Code::IO, "exit status %d (0 is verified, 1 is wrong)", result.exit_status);
  return parse_reward(result.output);
}

Result<std::vector<double>> Verifier::score(const std::vector<Attempt>& attempts) const {
  std::vector<Result<double>> results(attempts.size(), Result<double>(0.0));
  std::atomic<std::size_t> next{0};
  {
    std::vector<std::jthread> workers;
    for (std::size_t i = 0; i < std::min<std::size_t>(jobs_, attempts.size()); ++i)
      workers.emplace_back([&] {
        for (std::size_t k = next++; k < attempts.size(); k = next++)
          results[k] = verify(attempts[k]);
      });
  }
  std::vector<double> rewards;
  rewards.reserve(results.size());
  Status first_broken;
  std::size_t broken = 0;
  for (const auto& result : results) {
    rewards.push_back(result.has_value() ? *result : 0.0);
    if (!result.has_value() && broken++ == 0) first_broken = result.error();
  }
  if (first_broken.code() == Code::TIMEOUT)
    first_broken = error(Code::TIMEOUT, "%s; see --verifier-timeout", first_broken.text().c_str());
  if (broken > 0 && broken == results.size())
    return first_broken.within("verifier '" + command_ + "' failed on every answer");
  if (broken > 0)
    print_progress("verifier: " + std::to_string(broken) + " of " + std::to_string(results.size()) +
                   " checks broken, reward 0; the first: " + first_broken.text());
  return rewards;
}

}  // namespace plexrl::cli
