// SPDX-License-Identifier: Apache-2.0
// CharTokenizer: one token per character (Unicode code point), as the service's model information
// describes it: {"type":"char","alphabet":"0123456789+=>;ab?","vocab_size":32}. Immutable.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace plexrl::cli {

using Tokens = std::vector<std::int32_t>;

class CharTokenizer {
 public:
  // INVALID_ARGUMENT for anything that is not such a description; UNSUPPORTED for another type.
  [[nodiscard]] static Result<CharTokenizer> parse(std::string_view json);

  // INVALID_ARGUMENT names the first character that the model does not know.
  [[nodiscard]] Result<Tokens> encode(std::string_view text) const;
  // Ids without a character (padding of the vocabulary) become U+FFFD.
  [[nodiscard]] std::string decode(const Tokens& tokens) const;

 private:
  std::vector<std::string> characters_;
  std::map<std::string, std::int32_t, std::less<>> ids_;
};

}  // namespace plexrl::cli
