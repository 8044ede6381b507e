// SPDX-License-Identifier: Apache-2.0
// Sixteen float lanes in GCC vector extensions, for the kernels' source files only. Every function
// must be inlined into a function marked PLEXRL_SIMD, which is compiled once per kind of CPU.
// The order of additions is part of the type: it does not depend on the CPU's vector width.
#pragma once

#include <cstdint>
#include <cstring>

#define PLEXRL_SIMD __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define PLEXRL_INLINE inline __attribute__((always_inline))

namespace plexrl::model::lanes {

using Floats = float __attribute__((vector_size(64)));
using Ints = std::int32_t __attribute__((vector_size(64)));
using UnalignedFloats = float __attribute__((vector_size(64), aligned(4), may_alias));
constexpr std::int64_t kLanes = 16;

PLEXRL_INLINE Floats load(const float* from) {
  return *reinterpret_cast<const UnalignedFloats*>(from);
}
PLEXRL_INLINE void store(float* to, Floats value) {
  *reinterpret_cast<UnalignedFloats*>(to) = value;
}

// Fewer than sixteen: the rest is zero, or left alone in memory.
PLEXRL_INLINE Floats load_some(const float* from, std::int64_t count) {
  float lanes[kLanes] = {};
  std::memcpy(lanes, from, static_cast<std::size_t>(count) * sizeof(float));
  return load(lanes);
}
PLEXRL_INLINE void store_some(float* to, Floats value, std::int64_t count) {
  float lanes[kLanes];
  store(lanes, value);
  std::memcpy(to, lanes, static_cast<std::size_t>(count) * sizeof(float));
}

// Half of the lanes, for CPUs whose registers have eight.
using HalfFloats = float __attribute__((vector_size(32)));
using UnalignedHalf = float __attribute__((vector_size(32), aligned(4), may_alias));
struct Halves {
  HalfFloats low, high;
};
PLEXRL_INLINE HalfFloats load_half(const float* from) {
  return *reinterpret_cast<const UnalignedHalf*>(from);
}
PLEXRL_INLINE Halves halves_of_some(const float* from, std::int64_t count) {
  float lanes[kLanes] = {};
  std::memcpy(lanes, from, static_cast<std::size_t>(count) * sizeof(float));
  return {load_half(lanes), load_half(lanes + kLanes / 2)};
}

PLEXRL_INLINE Floats splat(float value) { return Floats{} + value; }
PLEXRL_INLINE Floats max(Floats a, Floats b) { return a > b ? a : b; }
PLEXRL_INLINE Floats min(Floats a, Floats b) { return a < b ? a : b; }

// One tree for all: i + (i + 8), then + 4, + 2, + 1.
PLEXRL_INLINE float sum(Floats value) {
  float lanes[kLanes];
  store(lanes, value);
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

// Lanes of a and then of b, by index; GCC and clang both have this form.
template <int... kIndex>
PLEXRL_INLINE Floats shuffle(Floats a, Floats b) {
  return __builtin_shufflevector(a, b, kIndex...);
}

// The sums of sixteen vectors, each by the same tree as `sum`, in the order of the array.
PLEXRL_INLINE Floats sums(const Floats* v) {
  Floats a[8], b[4];
  for (std::int64_t i = 0; i < 8; ++i)
    a[i] = shuffle<0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23>(v[2 * i], v[2 * i + 1]) +
           shuffle<8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31>(v[2 * i],
                                                                                 v[2 * i + 1]);
  for (std::int64_t i = 0; i < 4; ++i)
    b[i] =
        shuffle<0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27>(a[2 * i], a[2 * i + 1]) +
        shuffle<4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31>(a[2 * i], a[2 * i + 1]);
  for (std::int64_t i = 0; i < 2; ++i)
    a[i] =
        shuffle<0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29>(b[2 * i], b[2 * i + 1]) +
        shuffle<2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31>(b[2 * i], b[2 * i + 1]);
  return shuffle<0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30>(a[0], a[1]) +
         shuffle<1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31>(a[0], a[1]);
}

// The sums of four vectors, each by the same tree as `sum`: of its two halves, added already.
PLEXRL_INLINE void store_sums(float* to, const HalfFloats* v) {
  HalfFloats a[2];
  for (int i = 0; i < 2; ++i)
    a[i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 1, 2, 3, 8, 9, 10, 11) +
           __builtin_shufflevector(v[2 * i], v[2 * i + 1], 4, 5, 6, 7, 12, 13, 14, 15);
  const HalfFloats b = __builtin_shufflevector(a[0], a[1], 0, 1, 4, 5, 8, 9, 12, 13) +
                       __builtin_shufflevector(a[0], a[1], 2, 3, 6, 7, 10, 11, 14, 15);
  const HalfFloats c = __builtin_shufflevector(b, b, 0, 2, 4, 6, 8, 10, 12, 14) +
                       __builtin_shufflevector(b, b, 1, 3, 5, 7, 9, 11, 13, 15);
  std::memcpy(to, &c, 4 * sizeof(float));
}

// e^x for x <= 88; below -87 it is about 1e-38, never a denormal. Reduction by ln 2 in two parts
// and a polynomial of degree 6 (Taylor on |r| <= 0.35; relative error about 1e-7).
PLEXRL_INLINE Floats exp(Floats x) {
  x = min(max(x, splat(-87.0F)), splat(88.0F));
  const float magic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const Floats shifted = x * 1.44269504F + magic;
  const Floats n = shifted - magic;
  const Floats r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  Floats p = splat(1.0F / 720);
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const Ints power = (__builtin_convertvector(n, Ints) + 127) << 23;
  return p * reinterpret_cast<Floats>(power);
}

}  // namespace plexrl::model::lanes
