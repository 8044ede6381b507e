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
  PLEXRL_ASSIGN(auto fd, open_load(op, *load));
  return std::vector<int>{reads_.emplace(op.id, std::move(fd)).first->second.get()};
}

Result<UniqueFd> StoreFiles::open_load(const Op& op, const wire::LoadArgsT& load) {
  const std::uint32_t uid = tenants_.find(op.tenant)->uid;
  const CheckpointStore::Holder holder{op.model, op.seq};
  if (!op.replay) PLEXRL_TRY(store_.hold(uid, load.name, holder));
  held_[holder] = uid;
  auto fd = store_.read_held(uid, holder);
  if (!fd && op.replay)
    return error(Code::LOST, "what training op %llu loaded is not there any more: %s",
                 static_cast<unsigned long long>(op.seq), fd.error().text().c_str());
  return fd;
}

Status StoreFiles::ended(const Op& op, bool well) {
  // One that did not end well has changed nothing, or is begun again with the file of that time.
  if (reads_.erase(op.id) != 0 && !well && !op.replay) let_go({op.model, op.seq});
  const auto found = drafts_.find(op.id);
  if (found == drafts_.end()) return {};
  CheckpointStore::Draft draft = std::move(found->second);
  drafts_.erase(found);
  if (well) return store_.finish(std::move(draft));
  store_.discard(std::move(draft));
  return {};
}

void StoreFiles::let_go(const CheckpointStore::Holder& holder) {
  const auto found = held_.find(holder);
  if (found == held_.end()) return;
  store_.let_go(found->second, holder);
  held_.erase(found);
}

void StoreFiles::committed(ModelId model, std::uint64_t seq) {
  for (auto it = held_.lower_bound({model, 0});
       it != held_.end() && it->first <= CheckpointStore::Holder{model, seq};)
    let_go((it++)->first);
}

void StoreFiles::keep_held(const std::function<bool(const CheckpointStore::Holder&)>& needed) {
  held_ = store_.holds();
  for (auto it = held_.begin(); it != held_.end();) {
    const CheckpointStore::Holder holder = (it++)->first;
    if (!needed(holder)) let_go(holder);
  }
}

}  // namespace plexrl::runtime
