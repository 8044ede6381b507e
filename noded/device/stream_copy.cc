// SPDX-License-Identifier: Apache-2.0
#include "device/stream_copy.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace plexrl::device {
namespace {

// Below about half an L2 cache the copy is likely to be read again soon: keep it cached.
constexpr std::size_t kStreamFrom = std::size_t{512} * 1024;
constexpr std::size_t kLine = 64;

[[maybe_unused]] std::size_t bytes_to_line(const std::byte* at) noexcept {
  return (kLine - reinterpret_cast<std::uintptr_t>(at) % kLine) % kLine;
}

#if defined(__x86_64__)

// `to` is aligned to a line, `lines` whole lines are copied. Four lines per turn keep enough loads
// in flight for one core to reach its memory bandwidth.
__attribute__((target("avx512f"))) void copy_lines_512(std::byte* to, const std::byte* from,
                                                       std::size_t lines) noexcept {
  std::size_t i = 0;
  for (; i + 4 <= lines; i += 4, to += 4 * kLine, from += 4 * kLine) {
    const __m512i a = _mm512_loadu_si512(from);
    const __m512i b = _mm512_loadu_si512(from + kLine);
    const __m512i c = _mm512_loadu_si512(from + 2 * kLine);
    const __m512i d = _mm512_loadu_si512(from + 3 * kLine);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), a);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + kLine), b);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 2 * kLine), c);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 3 * kLine), d);
  }
  for (; i < lines; ++i, to += kLine, from += kLine)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
  _mm_sfence();
}

__attribute__((target("avx2"))) void copy_lines_256(std::byte* to, const std::byte* from,
                                                    std::size_t lines) noexcept {
  constexpr std::size_t kHalf = kLine / 2;
  for (std::size_t i = 0; i < lines; ++i, to += kLine, from += kLine) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + kHalf));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + kHalf), b);
  }
  _mm_sfence();
}

__attribute__((target("avx512f"))) void zero_lines_512(std::byte* to, std::size_t lines) noexcept {
  const __m512i zero = _mm512_setzero_si512();
  for (std::size_t i = 0; i < lines; ++i, to += kLine)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), zero);
  _mm_sfence();
}

__attribute__((target("avx2"))) void zero_lines_256(std::byte* to, std::size_t lines) noexcept {
  const __m256i zero = _mm256_setzero_si256();
  for (std::size_t i = 0; i < lines; ++i, to += kLine) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), zero);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + kLine / 2), zero);
  }
  _mm_sfence();
}

#endif

void copy_lines(std::byte* to, const std::byte* from, std::size_t lines, CopyPath path) noexcept {
#if defined(__x86_64__)
  if (path == CopyPath::kAvx512) return copy_lines_512(to, from, lines);
  if (path == CopyPath::kAvx2) return copy_lines_256(to, from, lines);
#endif
  static_cast<void>(path);
  std::memcpy(to, from, lines * kLine);
}

void zero_lines(std::byte* to, std::size_t lines, CopyPath path) noexcept {
#if defined(__x86_64__)
  if (path == CopyPath::kAvx512) return zero_lines_512(to, lines);
  if (path == CopyPath::kAvx2) return zero_lines_256(to, lines);
#endif
  static_cast<void>(path);
  std::memset(to, 0, lines * kLine);
}

}  // namespace

CopyPath best_copy_path() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return CopyPath::kAvx512;
  if (__builtin_cpu_supports("avx2")) return CopyPath::kAvx2;
#endif
  return CopyPath::kPlain;
}

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes, CopyPath path) noexcept {
  if (bytes == 0) return;  // memcpy must not get null pointers
  if (bytes < kStreamFrom || path == CopyPath::kPlain) {
    std::memcpy(to, from, bytes);
    return;
  }
  const std::size_t head = bytes_to_line(to);
  std::memcpy(to, from, head);
  const std::size_t lines = (bytes - head) / kLine;
  copy_lines(to + head, from + head, lines, path);
  const std::size_t done = head + lines * kLine;
  std::memcpy(to + done, from + done, bytes - done);
}

void stream_zero(std::byte* to, std::size_t bytes, CopyPath path) noexcept {
  if (bytes == 0) return;
  if (bytes < kStreamFrom || path == CopyPath::kPlain) {
    std::memset(to, 0, bytes);
    return;
  }
  const std::size_t head = bytes_to_line(to);
  std::memset(to, 0, head);
  const std::size_t lines = (bytes - head) / kLine;
  zero_lines(to + head, lines, path);
  const std::size_t done = head + lines * kLine;
  std::memset(to + done, 0, bytes - done);
}

}  // namespace plexrl::device
