// SPDX-License-Identifier: Apache-2.0
// StoreFiles: the files of save and load ops: the client's fd, or a checkpoint of the service's
// store under the uid of the job. Loop thread only.
#pragma once

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

 private:
  CheckpointStore& store_;
  const TenantTable& tenants_;
  std::map<OpId, CheckpointStore::Draft> drafts_;
  std::map<OpId, UniqueFd> reads_;
};

}  // namespace plexrl::runtime
