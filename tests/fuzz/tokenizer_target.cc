// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "targets.h"
#include "tokenizer/tokenizer.h"

namespace plexrl::fuzz {

void fuzz_tokenizer(std::span<const std::uint8_t> bytes) {
  const std::string_view input(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t end = std::min(input.find('\0'), input.size());
  const auto tokenizer = tokenizer::Tokenizer::from_json(input.substr(0, end));
  if (!tokenizer) {
    PLEXRL_CHECK(!tokenizer.error().text().empty(), "a refusal says why");
    return;
  }
  const std::string_view text = end < input.size() ? input.substr(end + 1) : std::string_view();
  const auto ids = (*tokenizer)->encode(text);
  if (!ids) return;
  tokenizer::TokenStream stream(*tokenizer);
  std::string shown;
  for (const tokenizer::TokenId id : *ids) {
    PLEXRL_CHECK(id >= 0 && static_cast<std::size_t>(id) < (*tokenizer)->vocabulary(),
                 "ids are of the vocabulary");
    shown += stream.push(id);
  }
  shown += stream.finish();
  PLEXRL_CHECK(shown == (*tokenizer)->decode(*ids), "a stream shows what decode does");
}

}  // namespace plexrl::fuzz
