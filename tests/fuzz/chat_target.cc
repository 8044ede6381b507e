// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "chat/chat_template.h"
#include "targets.h"
#include "tokenizer/utf8.h"

namespace plexrl::fuzz {

void fuzz_chat(std::span<const std::uint8_t> bytes) {
  const std::string_view input(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t end = std::min(input.find('\0'), input.size());
  const auto made = chat::ChatTemplate::parse(input.substr(0, end));
  if (!made) {
    PLEXRL_CHECK(!made.error().text().empty(), "a refusal says why");
    return;
  }
  const std::string_view behind = end < input.size() ? input.substr(end + 1) : std::string_view();
  const std::string content = tokenizer::replace_invalid_utf8(behind);
  chat::RenderInput what;
  what.messages = {{{"role", "user"}, {"content", content}}, {{"role", "assistant"}, {"a", {1.5}}}};
  what.budget = 1U << 20;
  const auto text = made->render(what);
  if (!text) {
    PLEXRL_CHECK(!text.error().text().empty(), "a refusal says why");
    return;
  }
  PLEXRL_CHECK(text->size() <= what.budget, "what is written was paid for");
}

}  // namespace plexrl::fuzz
