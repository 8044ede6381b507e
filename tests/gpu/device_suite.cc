// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_suite.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

namespace plexrl::device {
namespace {

using check::Checker;
using Chunks = std::vector<ChunkIndex>;
using Bytes = std::vector<std::byte>;

std::unique_ptr<Reservation> reserved(DeviceBackend& backend, Checker& check, std::size_t bytes) {
  auto place = backend.reserve(bytes);
  check.note(place.has_value(), __FILE__, __LINE__, "reserve: " + place.status().to_string());
  return place ? std::move(place).value() : nullptr;
}

Bytes pattern(std::size_t bytes, unsigned seed) {
  Bytes out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 7 + i / 251 + seed);
  return out;
}

Bytes read_back(DeviceBackend& backend, Checker& check, const std::byte* device,
                std::size_t bytes) {
  Bytes out(bytes, std::byte{0xee});
  PLEXRL_EXPECT_OK(backend.copy_out(out.data(), device, bytes));
  return out;
}

bool all_are(const Bytes& bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == value; });
}

void tells_its_geometry(DeviceBackend& backend, Checker& check) {
  PLEXRL_EXPECT(backend.chunk_count() == kSuiteChunks);
  PLEXRL_EXPECT(backend.chunk_bytes() > 0);
  const auto memory = backend.memory();
  PLEXRL_NEED_OK(memory.status());
  PLEXRL_EXPECT(memory->total_bytes >= backend.chunk_count() * backend.chunk_bytes());
  PLEXRL_EXPECT(memory->free_bytes <= memory->total_bytes);
}

void a_reservation_has_no_memory(DeviceBackend& backend, Checker& check) {
  const auto place = reserved(backend, check, backend.chunk_bytes() + 1);
  PLEXRL_NEED(place != nullptr);
  PLEXRL_EXPECT(place->data() != nullptr);
  PLEXRL_EXPECT(place->bytes() == backend.chunk_bytes() + 1);
  PLEXRL_EXPECT(!place->mapped());
}

void more_than_the_device_has_is_refused(DeviceBackend& backend, Checker& check) {
  const std::size_t all = backend.chunk_bytes() * backend.chunk_count();
  for (const std::size_t bytes : {all + 1, std::size_t{0}, std::numeric_limits<std::size_t>::max()})
    PLEXRL_EXPECT(backend.reserve(bytes).error().code() == Code::NO_CAPACITY);
  const auto place = reserved(backend, check, all);
  PLEXRL_NEED(place != nullptr);
  PLEXRL_EXPECT_OK(backend.map(*place, Chunks{0, 1, 2, 3, 4, 5, 6, 7}));
}

void the_address_never_changes(DeviceBackend& backend, Checker& check) {
  const auto place = reserved(backend, check, 2 * backend.chunk_bytes());
  PLEXRL_NEED(place != nullptr);
  const std::byte* const address = place->data();
  PLEXRL_NEED_OK(backend.map(*place, Chunks{0, 1}));
  PLEXRL_EXPECT(place->data() == address);
  PLEXRL_NEED_OK(backend.unmap(*place));
  PLEXRL_NEED_OK(backend.map(*place, Chunks{7, 3}));
  PLEXRL_EXPECT(place->data() == address);
}

void a_chunk_is_mapped_once_at_a_time(DeviceBackend& backend, Checker& check) {
  const auto first = reserved(backend, check, backend.chunk_bytes());
  const auto second = reserved(backend, check, 2 * backend.chunk_bytes());
  PLEXRL_NEED(first != nullptr && second != nullptr);
  PLEXRL_NEED_OK(backend.map(*first, Chunks{4}));
  PLEXRL_EXPECT(backend.map(*second, Chunks{3, 4}).code() == Code::INVALID_ARGUMENT);
  PLEXRL_EXPECT(!second->mapped());
  PLEXRL_EXPECT(backend.map(*second, Chunks{2, 2}).code() == Code::INVALID_ARGUMENT);
  PLEXRL_EXPECT_OK(backend.map(*second, Chunks{3, 2}));
}

void destroying_a_reservation_frees_its_chunks(DeviceBackend& backend, Checker& check) {
  auto first = reserved(backend, check, backend.chunk_bytes());
  PLEXRL_NEED(first != nullptr);
  PLEXRL_NEED_OK(backend.map(*first, Chunks{4}));
  first.reset();
  const auto second = reserved(backend, check, backend.chunk_bytes());
  PLEXRL_NEED(second != nullptr);
  PLEXRL_EXPECT_OK(backend.map(*second, Chunks{4}));
}

void wrong_map_calls_change_nothing(DeviceBackend& backend, Checker& check) {
  const auto place = reserved(backend, check, 2 * backend.chunk_bytes());
  PLEXRL_NEED(place != nullptr);
  for (const Chunks& wrong : {Chunks{}, Chunks{1}, Chunks{1, 2, 3}, Chunks{1, kSuiteChunks},
                              Chunks{1, std::numeric_limits<ChunkIndex>::max()}})
    PLEXRL_EXPECT(backend.map(*place, wrong).code() == Code::INVALID_ARGUMENT);
  PLEXRL_EXPECT(backend.unmap(*place).code() == Code::INVALID_ARGUMENT);
  PLEXRL_NEED_OK(backend.map(*place, Chunks{1, 2}));
  PLEXRL_EXPECT(backend.map(*place, Chunks{3, 4}).code() == Code::INVALID_ARGUMENT);
  PLEXRL_EXPECT(place->mapped());
}

void copies_in_and_out_any_length(DeviceBackend& backend, Checker& check) {
  const auto place = reserved(backend, check, 3 * backend.chunk_bytes());
  PLEXRL_NEED(place != nullptr);
  PLEXRL_NEED_OK(backend.map(*place, Chunks{6, 0, 1}));
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{4097}, 2 * backend.chunk_bytes() + 13}) {
    const Bytes in = pattern(bytes, 3);
    PLEXRL_NEED_OK(backend.copy_in(place->data() + 3, in.data(), bytes));
    PLEXRL_EXPECT(read_back(backend, check, place->data() + 3, bytes) == in);
  }
}

void reservations_do_not_share_memory(DeviceBackend& backend, Checker& check) {
  const std::size_t bytes = 2 * backend.chunk_bytes();
  const auto first = reserved(backend, check, bytes);
  const auto second = reserved(backend, check, bytes);
  PLEXRL_NEED(first != nullptr && second != nullptr);
  PLEXRL_NEED_OK(backend.map(*first, Chunks{0, 2}));
  PLEXRL_NEED_OK(backend.map(*second, Chunks{1, 3}));
  const Bytes one = pattern(bytes, 1);
  const Bytes two = pattern(bytes, 2);
  PLEXRL_NEED_OK(backend.copy_in(first->data(), one.data(), bytes));
  PLEXRL_NEED_OK(backend.copy_in(second->data(), two.data(), bytes));
  PLEXRL_EXPECT(read_back(backend, check, first->data(), bytes) == one);
  PLEXRL_NEED_OK(backend.unmap(*first));
  PLEXRL_EXPECT(read_back(backend, check, second->data(), bytes) == two);
}

void state_comes_back_after_a_suspend(DeviceBackend& backend, Checker& check) {
  const std::size_t bytes = 2 * backend.chunk_bytes() - 100;
  const auto place = reserved(backend, check, bytes);
  PLEXRL_NEED(place != nullptr);
  PLEXRL_NEED_OK(backend.map(*place, Chunks{0, 1}));
  const Bytes in = pattern(bytes, 9);
  PLEXRL_NEED_OK(backend.copy_in(place->data(), in.data(), bytes));
  for (ChunkIndex turn = 0; turn < 3; ++turn) {
    const Bytes host = read_back(backend, check, place->data(), bytes);
    PLEXRL_NEED_OK(backend.unmap(*place));
    PLEXRL_NEED_OK(backend.map(*place, Chunks{2 * turn + 1, 2 * turn + 2}));
    PLEXRL_NEED_OK(backend.copy_in(place->data(), host.data(), bytes));
  }
  PLEXRL_EXPECT(read_back(backend, check, place->data(), bytes) == in);
}

// Over a whole chunk of somebody else's, in two parts, used before it is settled and after it.
void a_move_in_may_be_settled_later(DeviceBackend& backend, Checker& check) {
  const std::size_t bytes = backend.chunk_bytes() + 1000;
  const auto former = reserved(backend, check, 2 * backend.chunk_bytes());
  const auto place = reserved(backend, check, bytes);
  PLEXRL_NEED(former != nullptr && place != nullptr);
  PLEXRL_NEED_OK(backend.map(*former, Chunks{5, 3}));
  const Bytes rest(2 * backend.chunk_bytes(), std::byte{0x77});
  PLEXRL_NEED_OK(backend.copy_in(former->data(), rest.data(), rest.size()));
  PLEXRL_NEED_OK(backend.unmap(*former));
  const Bytes in = pattern(bytes, 4);
  backend.settle(*place);
  for (const bool settled : {false, true}) {
    PLEXRL_NEED_OK(backend.map_to_copy(*place, Chunks{5, 3}));
    PLEXRL_NEED_OK(backend.copy_into(*place, 0, in.data(), 500));
    PLEXRL_NEED_OK(backend.copy_into(*place, 500, in.data() + 500, bytes - 500));
    PLEXRL_NEED_OK(backend.zero_tail(*place));
    if (settled) backend.settle(*place);
    PLEXRL_EXPECT(read_back(backend, check, place->data(), bytes) == in);
    const std::size_t behind = 2 * backend.chunk_bytes() - bytes;
    PLEXRL_EXPECT(all_are(read_back(backend, check, place->data() + bytes, behind), std::byte{0}));
    PLEXRL_NEED_OK(backend.copy_in(place->data() + 7, in.data(), 100));
    PLEXRL_EXPECT(read_back(backend, check, place->data() + 7, 100) ==
                  Bytes(in.begin(), in.begin() + 100));
    PLEXRL_NEED_OK(backend.unmap(*place));
  }
  PLEXRL_EXPECT(backend.map_to_copy(*place, Chunks{1}).code() == Code::INVALID_ARGUMENT);
}

void zero_clears_exactly_the_range(DeviceBackend& backend, Checker& check) {
  const std::size_t bytes = 2 * backend.chunk_bytes();
  const auto place = reserved(backend, check, bytes);
  PLEXRL_NEED(place != nullptr);
  PLEXRL_NEED_OK(backend.map(*place, Chunks{6, 2}));
  const Bytes in(bytes, std::byte{0x33});
  PLEXRL_NEED_OK(backend.copy_in(place->data(), in.data(), bytes));
  PLEXRL_NEED_OK(backend.zero(place->data() + 1, bytes - 2));
  PLEXRL_NEED_OK(backend.zero(place->data(), 0));
  Bytes out = read_back(backend, check, place->data(), bytes);
  PLEXRL_EXPECT(out.front() == std::byte{0x33} && out.back() == std::byte{0x33});
  PLEXRL_EXPECT(all_are(Bytes(out.begin() + 1, out.end() - 1), std::byte{0}));
}

void unmapped_memory_is_free_again(DeviceBackend& backend, Checker& check) {
  const std::size_t bytes = 4 * backend.chunk_bytes();
  const auto place = reserved(backend, check, bytes);
  PLEXRL_NEED(place != nullptr);
  const auto before = backend.memory();
  PLEXRL_NEED_OK(backend.map(*place, Chunks{0, 1, 2, 3}));
  const auto held = backend.memory();
  PLEXRL_NEED_OK(backend.unmap(*place));
  const auto after = backend.memory();
  PLEXRL_NEED(before.has_value() && held.has_value() && after.has_value());
  // Half a chunk: what a driver needs for itself.
  PLEXRL_EXPECT(held->free_bytes + bytes <= before->free_bytes + backend.chunk_bytes() / 2);
  PLEXRL_EXPECT(after->free_bytes + backend.chunk_bytes() / 2 >= before->free_bytes);
}

void pinned_host_memory_copies_like_any_other(DeviceBackend& backend, Checker& check) {
  const std::size_t bytes = 2 * backend.chunk_bytes();
  const auto place = reserved(backend, check, bytes);
  PLEXRL_NEED(place != nullptr);
  PLEXRL_NEED_OK(backend.map(*place, Chunks{0, 1}));
  // Whole pages: two registrations may not share one.
  const std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::aligned_alloc(4096, bytes + 4096)), &std::free);
  PLEXRL_NEED(memory != nullptr);
  const std::span host(memory.get(), bytes + 4096);
  const Bytes in = pattern(bytes, 5);
  std::copy(in.begin(), in.end(), host.begin() + 1000);
  // Two registrations side by side and a rest that has none: a copy crosses both borders.
  const auto first = backend.pin(host.first(backend.chunk_bytes()));
  const auto second = backend.pin(host.subspan(backend.chunk_bytes(), backend.chunk_bytes()));
  PLEXRL_NEED_OK(first.status());
  PLEXRL_NEED_OK(second.status());
  PLEXRL_NEED_OK(backend.copy_in(place->data(), host.data() + 1000, bytes));
  PLEXRL_EXPECT(read_back(backend, check, place->data(), bytes) == in);
  std::fill(host.begin(), host.end(), std::byte{0});
  PLEXRL_NEED_OK(backend.copy_out(host.data() + 1000, place->data(), bytes));
  PLEXRL_EXPECT(std::equal(in.begin(), in.end(), host.begin() + 1000));
}

void reservations_may_be_used_from_several_threads(DeviceBackend& backend, Checker& check) {
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (ChunkIndex t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const std::size_t bytes = 2 * backend.chunk_bytes();
      const auto place = backend.reserve(bytes);
      if (!place) {
        ++failures;
        return;
      }
      const Bytes in(bytes, static_cast<std::byte>(t + 1));
      Bytes out(bytes);
      for (int i = 0; i < 10; ++i) {
        failures += !backend.map(**place, Chunks{2 * t, 2 * t + 1}).ok();
        failures += !backend.copy_in((*place)->data(), in.data(), bytes).ok();
        failures += !backend.copy_out(out.data(), (*place)->data(), bytes).ok();
        failures += out != in;
        failures += !backend.unmap(**place).ok();
      }
    });
  for (auto& thread : threads) thread.join();
  PLEXRL_EXPECT(failures == 0);
}

void copies_outside_mapped_memory_are_refused(DeviceBackend& backend, Checker& check) {
  const std::size_t bytes = backend.chunk_bytes();
  const auto place = reserved(backend, check, bytes);
  PLEXRL_NEED(place != nullptr);
  Bytes host(bytes);
  const auto refused = [&](std::byte* device, std::size_t size) {
    PLEXRL_EXPECT(backend.copy_in(device, host.data(), size).code() == Code::INVALID_ARGUMENT);
    PLEXRL_EXPECT(backend.copy_out(host.data(), device, size).code() == Code::INVALID_ARGUMENT);
    PLEXRL_EXPECT(backend.zero(device, size).code() == Code::INVALID_ARGUMENT);
  };
  refused(place->data(), bytes);
  PLEXRL_NEED_OK(backend.map(*place, Chunks{3}));
  refused(place->data() + 1, bytes);
  refused(place->data() + bytes, 1);
  refused(host.data(), 1);
  PLEXRL_NEED_OK(backend.unmap(*place));
  refused(place->data(), bytes);
}

constexpr DeviceCase kCases[] = {
    {"TellsItsGeometry", tells_its_geometry},
    {"AReservationHasNoMemory", a_reservation_has_no_memory},
    {"MoreThanTheDeviceHasIsRefused", more_than_the_device_has_is_refused},
    {"TheAddressNeverChanges", the_address_never_changes},
    {"AChunkIsMappedOnceAtATime", a_chunk_is_mapped_once_at_a_time},
    {"DestroyingAReservationFreesItsChunks", destroying_a_reservation_frees_its_chunks},
    {"WrongMapCallsChangeNothing", wrong_map_calls_change_nothing},
    {"CopiesInAndOutAnyLength", copies_in_and_out_any_length},
    {"ReservationsDoNotShareMemory", reservations_do_not_share_memory},
    {"StateComesBackAfterASuspend", state_comes_back_after_a_suspend},
    {"AMoveInMayBeSettledLater", a_move_in_may_be_settled_later},
    {"ZeroClearsExactlyTheRange", zero_clears_exactly_the_range},
    {"UnmappedMemoryIsFreeAgain", unmapped_memory_is_free_again},
    {"PinnedHostMemoryCopiesLikeAnyOther", pinned_host_memory_copies_like_any_other},
    {"ReservationsMayBeUsedFromSeveralThreads", reservations_may_be_used_from_several_threads},
    {"CopiesOutsideMappedMemoryAreRefused", copies_outside_mapped_memory_are_refused, true},
};

}  // namespace

std::span<const DeviceCase> device_cases() { return kCases; }

}  // namespace plexrl::device
