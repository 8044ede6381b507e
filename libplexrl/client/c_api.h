// SPDX-License-Identifier: Apache-2.0
// What stands behind the handles of plexrl.h, and the edge between C and C++: every extern "C"
// function is noexcept and runs its body in `guarded`, which turns a Status or an exception into a
// status code and a filled-in plexrl_error.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/device_regions.h"
#include "client/lease.h"
#include "client/session.h"
#include "plexrl/plexrl.h"

struct plexrl_session {
  std::shared_ptr<plexrl::client::Session> session;
  // What plexrl_session_get_info points to; filled in once.
  plexrl::wire::HelloReplyT hello;
  std::vector<const char*> bases;
};

struct plexrl_model {
  std::shared_ptr<plexrl::client::Session> session;
  plexrl::client::ModelPtr model;
  plexrl::wire::ModelInfoT created;  // strings of plexrl_model_get_info; they do not change
};

struct plexrl_op {
  std::shared_ptr<plexrl::client::Session> session;
  plexrl::client::ExchangePtr exchange;
  std::mutex views_mutex;  // guards the making of the views
  std::vector<plexrl_sequence> sequences;
  std::vector<plexrl_floats> rows;
};

struct plexrl_region {
  plexrl_lease* lease;
  plexrl::client::Region* region;
};

struct plexrl_lease {
  std::mutex regions_mutex;  // guards devices and regions
  // Before the lease: its regions need their device until they are gone.
  std::map<int, std::unique_ptr<plexrl::client::DeviceRegions>> devices;
  std::unique_ptr<plexrl::client::Lease> lease;
  std::vector<std::unique_ptr<plexrl_region>> regions;
};

namespace plexrl::client {

void fill_error(plexrl_error* err, const Status& status, std::uint32_t retry_after_ms = 0) noexcept;
[[nodiscard]] const char* train_mode_name(wire::TrainMode mode) noexcept;

template <class Call>
plexrl_status guarded(plexrl_error* err, Call call) noexcept {
  try {
    const Status status = call();
    if (!status.ok()) fill_error(err, status);
    return static_cast<plexrl_status>(status.code());
  } catch (const std::bad_alloc&) {
    fill_error(err, Status(Code::NO_CAPACITY, "out of memory"));
    return PLEXRL_NO_CAPACITY;
  } catch (const std::exception& e) {
    fill_error(err, Status(Code::INTERNAL, e.what()));
    return PLEXRL_INTERNAL;
  } catch (...) {
    fill_error(err, Status(Code::INTERNAL, "unknown exception"));
    return PLEXRL_INTERNAL;
  }
}

// The size that a structure had at first: what the oldest caller passes. Fields are added behind.
template <class T>
inline constexpr std::size_t kFirstSize = sizeof(T);
template <>
inline constexpr std::size_t kFirstSize<plexrl_forward_backward_options> =
    offsetof(plexrl_forward_backward_options, beta);
template <>
inline constexpr std::size_t kFirstSize<plexrl_train_result> = offsetof(plexrl_train_result,
                                                                        entropy_mean);

// A structure that the caller filled in; fields behind its end are zero. A caller built against a
// later header may use fields that this library does not know; that is noticed by bytes behind our
// end that are not zero.
template <class T>
[[nodiscard]] Result<T> read_struct(const T* from, const char* name) {
  if (from == nullptr) return error(Code::INVALID_ARGUMENT, "%s is NULL", name);
  if (from->size < kFirstSize<T>)
    return error(Code::INVALID_ARGUMENT, "%s: size is %zu, set it to sizeof", name, from->size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (std::size_t i = sizeof(T); i < from->size; ++i)
    if (bytes[i] != 0)
      return error(Code::UNSUPPORTED, "%s: has fields that this libplexrl does not know", name);
  T known{};
  std::memcpy(&known, from, std::min(from->size, sizeof(T)));
  return known;
}

// The same for a structure that we fill in: fields behind our end stay as they are, and nothing is
// written behind the caller's.
template <class T>
[[nodiscard]] Status write_struct(T* to, T value, const char* name) {
  if (to == nullptr) return error(Code::INVALID_ARGUMENT, "%s is NULL", name);
  if (to->size < kFirstSize<T>)
    return error(Code::INVALID_ARGUMENT, "%s: size is %zu, set it to sizeof", name, to->size);
  value.size = to->size;
  std::memcpy(to, &value, std::min(to->size, sizeof(T)));
  return {};
}

[[nodiscard]] inline Status not_null(const void* pointer, const char* name) {
  return pointer != nullptr ? Status() : error(Code::INVALID_ARGUMENT, "%s is NULL", name);
}

}  // namespace plexrl::client
