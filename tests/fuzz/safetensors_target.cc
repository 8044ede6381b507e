// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/unique_fd.h"
#include "models/safetensors.h"
#include "targets.h"

namespace plexrl::fuzz {
namespace {

// What was accepted lies inside the file, and is as large as it says.
void read_all(const model::SafetensorsFile& file, std::uint64_t size) {
  std::uint64_t covered = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    PLEXRL_CHECK(tensor.begin <= size && tensor.bytes <= size - tensor.begin, "inside the file");
    covered += tensor.bytes;
    if (tensor.dtype == model::DType::kU64) {
      (void)file.read_u64(name);
      continue;
    }
    std::vector<float> values(tensor.bytes / model::dtype_bytes(tensor.dtype));
    PLEXRL_CHECK(file.read_f32(name, tensor.shape, values).ok(), "what was accepted can be read");
  }
  PLEXRL_CHECK(covered <= size, "no byte belongs to two tensors");
  PLEXRL_CHECK(!file.check_cover().ok() || covered < size, "the header is no data");
}

}  // namespace

void fuzz_safetensors(std::span<const std::uint8_t> bytes) {
  const UniqueFd fd(::memfd_create("safetensors", MFD_CLOEXEC));
  PLEXRL_CHECK(::write(fd.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
               "memory for the input");
  const auto file = model::SafetensorsFile::open(fd.get());
  if (file.has_value())
    read_all(*file, bytes.size());
  else
    PLEXRL_CHECK(!file.error().text().empty(), "a refusal says why");
}

}  // namespace plexrl::fuzz
