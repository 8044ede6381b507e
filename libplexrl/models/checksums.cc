// SPDX-License-Identifier: Apache-2.0
#include "models/checksums.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/unique_fd.h"
#include "models/text_file.h"

namespace plexrl::model {
namespace {

constexpr std::size_t kBlock = 1 << 20;
constexpr std::uint64_t kMaxText = 1 << 20;
constexpr std::size_t kHexDigits = 64;

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  PLEXRL_CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1,
               "libcrypto has SHA-256");
}

void Sha256::update(const void* data, std::size_t bytes) {
  PLEXRL_CHECK(EVP_DigestUpdate(context_.get(), data, bytes) == 1, "SHA-256 takes any bytes");
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  PLEXRL_CHECK(EVP_DigestFinal_ex(context_.get(), digest, &size) == 1, "SHA-256 ends once");
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

Result<std::string> file_sha256(const std::string& path, const ByteProgress& progress) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd)
    return errno_error(errno == ENOENT ? Code::NOT_FOUND : Code::IO, errno, "open '%s'",
                       path.c_str());
  Sha256 hash;
  std::vector<char> block(kBlock);
  for (;;) {
    const ssize_t got = ::read(fd.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(Code::IO, errno, "read '%s'", path.c_str());
    if (got == 0) return hash.hex();
    hash.update(block.data(), static_cast<std::size_t>(got));
    if (!progress(static_cast<std::uint64_t>(got)))
      return error(Code::CANCELLED, "cancelled in '%s'", path.c_str());
  }
}

Result<Checksums> read_checksums(const std::string& dir) {
  PLEXRL_ASSIGN(const std::string text, read_text(dir + "/" + kChecksumFile, kMaxText));
  Checksums sums;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    // "HEX  NAME", or "HEX *NAME" for what was read as binary.
    const std::string sum = line.substr(0, kHexDigits);
    const bool hex =
        sum.size() == kHexDigits && sum.find_first_not_of("0123456789abcdef") == std::string::npos;
    const std::string name = line.size() > kHexDigits + 2 ? line.substr(kHexDigits + 2) : "";
    if (!hex || name.empty() || name.find('/') != std::string::npos)
      return error(Code::CORRUPT, "%s/%s: line %zu is not a checksum of a file beside it",
                   dir.c_str(), kChecksumFile, sums.size() + 1);
    sums[name] = sum;
  }
  return sums;
}

std::string checksum_text(const Checksums& sums) {
  std::string text;
  for (const auto& [name, sum] : sums) text += sum + "  " + name + "\n";
  return text;
}

}  // namespace plexrl::model
