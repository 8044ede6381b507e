// SPDX-License-Identifier: Apache-2.0
#include "store/state_store.h"

namespace plexrl::store {
namespace {

constexpr std::uint64_t kChangeBytes = sizeof(Batch::Change) + 32;

}  // namespace

void Batch::put(std::string_view table, std::uint64_t key, std::uint64_t subkey,
                std::string_view value) {
  changes_.push_back({false, std::string(table), key, subkey, subkey, std::string(value)});
  bytes_ += kChangeBytes + value.size();
}

void Batch::erase(std::string_view table, std::uint64_t key, std::uint64_t first,
                  std::uint64_t last) {
  changes_.push_back({true, std::string(table), key, first, last, {}});
  bytes_ += kChangeBytes;
}

Status StateStore::put(std::string_view table, std::uint64_t key, std::uint64_t subkey,
                       std::string_view value) {
  Batch batch;
  batch.put(table, key, subkey, value);
  const BatchPtr one = std::make_shared<const Batch>(std::move(batch));
  return apply({&one, 1});
}

Status StateStore::erase(std::string_view table, std::uint64_t key, std::uint64_t last_subkey) {
  Batch batch;
  batch.erase(table, key, 0, last_subkey);
  const BatchPtr one = std::make_shared<const Batch>(std::move(batch));
  return apply({&one, 1});
}

}  // namespace plexrl::store
