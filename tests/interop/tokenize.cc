// SPDX-License-Identifier: Apache-2.0
// tokenize TOKENIZER.json: reads JSON strings, one in a line; writes for each {"ids": with what a
// text is put between, "plain": special tokens taken as text, "text": decoded, "stream": token by
// token}.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tokenizer/tokenizer.h"

namespace {

using plexrl::tokenizer::Tokenizer;
using plexrl::tokenizer::TokenStream;

int run(const char* path) {
  std::ostringstream file;
  file << std::ifstream(path).rdbuf();
  const auto tokenizer = Tokenizer::from_json(file.str());
  if (!tokenizer) {
    std::cerr << tokenizer.error().to_string() << "\n";
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const auto text = nlohmann::json::parse(line).get<std::string>();
    const auto ids = (*tokenizer)->encode(text);
    const auto plain = (*tokenizer)->encode(text, {.add_special = false, .parse_special = false});
    if (!ids || !plain) {
      std::cerr << ids.error().to_string() << plain.error().to_string() << "\n";
      return 1;
    }
    TokenStream stream(*tokenizer);
    std::string shown;
    for (const auto id : *ids) shown += stream.push(id);
    shown += stream.finish();
    const nlohmann::json answer = {
        {"ids", *ids}, {"plain", *plain}, {"text", (*tokenizer)->decode(*ids)}, {"stream", shown}};
    std::cout << answer.dump() << "\n";
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2) return run(argv[1]);
  std::cerr << "usage: tokenize TOKENIZER.json\n";
  return 2;
}
