// SPDX-License-Identifier: Apache-2.0
#include "runtime/op_files.h"

#include "base/check.h"

namespace plexrl::runtime {

Result<std::vector<int>> StoreFiles::open(const Op& op) {
  const auto* save = op.args.AsSaveArgs();
  const auto* load = op.args.AsLoadArgs();
  if (save == nullptr && load == nullptr) return std::vector<int>{};
  const auto target = save != nullptr ? save->target : load->target;
  if (target == wire::SaveTarget::Sampler) return std::vector<int>{};
  if (target == wire::SaveTarget::ClientFd) return std::vector<int>{op.fd.get()};
  if (const auto found = drafts_.find(op.id); found != drafts_.end())
    return std::vector<int>{found->second.fd.get()};
  if (const auto found = reads_.find(op.id); found != reads_.end())
    return std::vector<int>{found->second.get()};
  const Tenant* const tenant = tenants_.find(op.tenant);
  PLEXRL_CHECK(tenant != nullptr, "an op's tenant exists");
  if (save != nullptr) {
    PLEXRL_ASSIGN(auto draft, store_.begin(tenant->uid, save->name));
    return std::vector<int>{drafts_.emplace(op.id, std::move(draft)).first->second.fd.get()};
  }
  PLEXRL_ASSIGN(auto fd, store_.read(tenant->uid, load->name));
  return std::vector<int>{reads_.emplace(op.id, std::move(fd)).first->second.get()};
}

Status StoreFiles::ended(const Op& op, bool well) {
  reads_.erase(op.id);
  const auto found = drafts_.find(op.id);
  if (found == drafts_.end()) return {};
  CheckpointStore::Draft draft = std::move(found->second);
  drafts_.erase(found);
  if (well) return store_.finish(std::move(draft));
  store_.discard(std::move(draft));
  return {};
}

}  // namespace plexrl::runtime
