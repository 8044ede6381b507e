// SPDX-License-Identifier: Apache-2.0
// render: reads lines of {"template","tokens","input"}, as tests/interop/chat_cases.py has them;
// writes for each the text, {"unsupported": why} or null.
#include <iostream>

#include "chat/chat_template.h"

namespace {

using nlohmann::ordered_json;
using plexrl::Result;
using plexrl::chat::ChatTemplate;
using plexrl::chat::RenderInput;

Result<plexrl::chat::Text> render(const ordered_json& line) {
  RenderInput input;
  input.tokens = line["tokens"];
  input.messages = line["input"]["messages"];
  input.tools = line["input"].value("tools", ordered_json());
  input.variables = line["input"].value("variables", ordered_json::object());
  input.add_generation_prompt = line["input"].value("add_generation_prompt", true);
  PLEXRL_ASSIGN(const ChatTemplate made, ChatTemplate::parse(line["template"].get<std::string>()));
  return made.render(input);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto text = render(ordered_json::parse(line));
    ordered_json out;
    if (text)
      out = text->bytes();
    else if (text.error().code() == plexrl::Code::UNSUPPORTED)
      out["unsupported"] = text.error().text();
    std::cout << out.dump() << "\n";
  }
  return 0;
}
