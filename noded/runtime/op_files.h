// SPDX-License-Identifier: Apache-2.0
// StoreFiles: the files of save and load ops: the client's fd, or a checkpoint of the service's
// store under the uid of the job. What a load read is held until a manifest holds the load: a
// replay reads the same file, also when its name was saved anew. Loop thread only.
#pragma once

#include <functional>
#include <map>

#include "runtime/checkpoint_store.h"
#include "runtime/dispatcher.h"
#include "runtime/tenant_table.h"

namespace plexrl::runtime {

class StoreFiles final : public OpFiles {
 public:
  StoreFiles(CheckpointStore& store, const TenantTable& tenants)
      : store_(store), tenants_(tenants) {}
  [[nodiscard]] Result<std::vector<int>> open(const Op& op) override;
  [[nodiscard]] Status ended(const Op& op, bool well) override;
  void committed(ModelId model, std::uint64_t seq) override;
  // plexrld starts: files held for loads of `needed` stay held, others are let go.
  void keep_held(const std::function<bool(const CheckpointStore::Holder&)>& needed);

 private:
  [[nodiscard]] Result<UniqueFd> open_load(const Op& op, const wire::LoadArgsT& load);
  void let_go(const CheckpointStore::Holder& holder);
  CheckpointStore& store_;
  const TenantTable& tenants_;
  std::map<CheckpointStore::Holder, std::uint32_t> held_;  // uid
  std::map<OpId, CheckpointStore::Draft> drafts_;
  std::map<OpId, UniqueFd> reads_;
};

}  // namespace plexrl::runtime
