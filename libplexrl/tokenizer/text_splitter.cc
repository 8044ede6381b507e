// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/text_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

namespace plexrl::tokenizer {
namespace internal {

template <auto kFree>
struct Free {
  template <class T>
  void operator()(T* object) const noexcept {
    kFree(object);
  }
};
using CompiledPattern = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;

}  // namespace internal

namespace {

using internal::CompiledPattern, internal::Free, internal::MatchContext;

constexpr std::size_t kMaxPattern = 64U << 10;
// Steps of one match. The patterns of the supported families take a few for each character.
constexpr std::uint32_t kMatchLimit = 10'000'000;
constexpr std::uint32_t kHeapKib = 64U << 10;

using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;

std::string message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  (void)pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct TextSplitter::Program {
  CompiledPattern code;
  MatchContext context;
};

TextSplitter::TextSplitter(std::unique_ptr<Program> program) : program_(std::move(program)) {}
TextSplitter::TextSplitter(TextSplitter&&) noexcept = default;
TextSplitter& TextSplitter::operator=(TextSplitter&&) noexcept = default;
TextSplitter::~TextSplitter() = default;

Result<TextSplitter> TextSplitter::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPattern)
    return error(plexrl::Code::INVALID_ARGUMENT, "tokenizer: a pattern of %zu bytes, at most %zu",
                 pattern.size(), kMaxPattern);
  int number = 0;
  PCRE2_SIZE offset = 0;
  auto program = std::make_unique<Program>();
  program->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &number,
                                    &offset, nullptr));
  if (program->code == nullptr)
    return error(plexrl::Code::INVALID_ARGUMENT, "tokenizer: pattern, at byte %zu: %s", offset,
                 message(number).c_str());
  program->context.reset(pcre2_match_context_create(nullptr));
  PLEXRL_CHECK(program->context != nullptr, "out of memory");
  pcre2_set_match_limit(program->context.get(), kMatchLimit);
  pcre2_set_heap_limit(program->context.get(), kHeapKib);
  // Without the compiler (no executable memory) the interpreter gives the same matches.
  (void)pcre2_jit_compile(program->code.get(), PCRE2_JIT_COMPLETE);
  return TextSplitter(std::move(program));
}

Status TextSplitter::split(std::string_view text, std::vector<std::string_view>* pieces) const {
  const MatchData data(pcre2_match_data_create_from_pattern(program_->code.get(), nullptr));
  PLEXRL_CHECK(data != nullptr, "out of memory");
  const auto add = [&](std::size_t from, std::size_t to) {
    if (from < to) pieces->push_back(text.substr(from, to - from));
  };
  std::size_t begin = 0;  // of what is not in a piece yet
  for (std::size_t at = 0; at < text.size();) {
    // Without the flag every match would check the whole text again.
    const int count =
        pcre2_match(program_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                    at, PCRE2_NO_UTF_CHECK, data.get(), program_->context.get());
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count <= 0)
      return error(plexrl::Code::INVALID_ARGUMENT, "tokenizer: splitting the text at byte %zu: %s",
                   at, message(count).c_str());
    const PCRE2_SIZE* const span = pcre2_get_ovector_pointer(data.get());
    if (span[1] > span[0]) {
      add(begin, span[0]);
      add(span[0], span[1]);
      begin = at = span[1];
    } else {  // an empty match: on to the next character
      at = span[1] + 1;
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) ++at;
    }
  }
  add(begin, text.size());
  return {};
}

}  // namespace plexrl::tokenizer
