// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/unique_fd.h"
#include "models/gguf_file.h"
#include "models/gguf_tokenizer.h"
#include "targets.h"

namespace plexrl::fuzz {

void fuzz_gguf(std::span<const std::uint8_t> bytes) {
  const UniqueFd fd(::memfd_create("gguf", MFD_CLOEXEC));
  PLEXRL_CHECK(::write(fd.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
               "memory for the input");
  const auto file = model::GgufFile::open(fd.get());
  if (!file) {
    PLEXRL_CHECK(!file.error().text().empty(), "a refusal says why");
    return;
  }
  for (const auto& [name, tensor] : file->tensors()) {
    const auto values = file->read(name);
    PLEXRL_CHECK(values.has_value(), "what was accepted can be read");
    PLEXRL_CHECK(values->size() == static_cast<std::size_t>(tensor.elements()), "in full");
  }
  (void)model::tokenizer_of(*file);
}

}  // namespace plexrl::fuzz
