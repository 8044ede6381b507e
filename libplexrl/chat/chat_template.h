// SPDX-License-Identifier: Apache-2.0
// ChatTemplate: a model's chat template, the subset of Jinja that those of SmolLM2, Qwen2, Qwen2.5,
// Qwen3 and Llama 3 are written in: loops with a condition, if, set, namespace, slices, the usual
// filters, tests and methods of strings. A template is a program that came with a model's files, so
// its steps, memory, output and depth are bounded. Immutable, any thread.
//
// What the messages bring is marked in the result (Text::given_at), because it is never a special
// token, whatever it spells.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "chat/syntax.h"

namespace plexrl::chat {

// Bytes of work of one rendering (budget.h): about two million steps, a second at most.
inline constexpr std::uint64_t kRenderBudget = std::uint64_t{128} << 20;

struct RenderInput {
  nlohmann::ordered_json messages;  // [{"role":"user","content":"..."}, ...]
  nlohmann::ordered_json tools;     // null: none
  // More variables, such as {"enable_thinking":false}.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  // Texts of special tokens by name: bos_token, eos_token.
  nlohmann::ordered_json tokens = nlohmann::ordered_json::object();
  bool add_generation_prompt = true;
  std::uint64_t budget = kRenderBudget;
};

class ChatTemplate {
 public:
  static constexpr std::size_t kMaxSource = 1U << 20;

  // INVALID_ARGUMENT, UNSUPPORTED or TOO_LARGE, with the line.
  [[nodiscard]] static Result<ChatTemplate> parse(std::string_view source);

  // INVALID_ARGUMENT: the template refuses the messages, or takes too much.
  [[nodiscard]] Result<Text> render(const RenderInput& input) const;

 private:
  explicit ChatTemplate(Block block) : block_(std::move(block)) {}
  Block block_;
};

}  // namespace plexrl::chat
