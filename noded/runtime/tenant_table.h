// SPDX-License-Identifier: Apache-2.0
// TenantTable: which jobs have a stake in this node, by (cluster, job id). One row lives from the
// first OpenJob until its state is dropped; each opening is an incarnation with a token of its own,
// and only the open incarnation's token is accepted. Every change is in the StateStore before it
// counts. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "base/strong_id.h"
#include "slurm/grant.h"

namespace plexrl::store {
class StateStore;
}

namespace plexrl::runtime {

enum class TenantState : std::uint8_t {
  kOpen,
  kClosed,  // by the epilog: only OpenJob opens it again
  kOrphan,  // closed because nobody was left: AttachTask opens it again too
};

struct Tenant {
  TenantId id;
  std::uint32_t job_id = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint64_t incarnation = 0;
  slurm::Grant grant;
  std::string token;  // empty unless open
  TenantState state = TenantState::kClosed;
  bool attached = false;  // a task attached in this incarnation
  TimePoint opened;
  TimePoint closed;  // meaningful unless open
  [[nodiscard]] bool open() const { return state == TenantState::kOpen; }
};

class TenantTable {
 public:
  using TokenSource = std::function<std::string()>;

  TenantTable(store::StateStore& store, TokenSource tokens);

  // Reads what an earlier plexrld stored. CORRUPT names the row. Of two rows of a job the newer one
  // counts: the other's writer was told that it failed.
  [[nodiscard]] Status load();
  // The store may hold another row than it should, because a write of it failed.
  [[nodiscard]] bool in_doubt() const { return !doubtful_.empty(); }
  // Writes those rows again, as they have to be.
  void settle_doubt();

  // Starts an incarnation, or returns the open one when this is the same call again (nothing
  // attached yet, same user and grant). PERMISSION when the row belongs to another user and is
  // still kept.
  struct Opened {
    TenantId id;
    bool created = false;          // the row is new
    bool new_incarnation = false;  // the token changed
  };
  [[nodiscard]] Result<Opened> open(std::uint32_t job_id, std::uint32_t uid, std::uint32_t gid,
                                    const slurm::Grant& grant, TimePoint now);
  // NOT_FOUND unless the job is open (or an orphan, which is opened again); PERMISSION for another
  // uid.
  [[nodiscard]] Result<TenantId> attach(std::uint32_t job_id, std::uint32_t uid, TimePoint now);
  [[nodiscard]] Status close(TenantId id, TenantState how, TimePoint now);
  void remove(TenantId id);

  // The tenant whose open token this is and whose user the peer is; AUTH otherwise, without saying
  // which of the two was wrong.
  [[nodiscard]] Result<TenantId> authenticate(std::string_view token, std::uint32_t peer_uid) const;

  [[nodiscard]] const Tenant* find(TenantId id) const;
  [[nodiscard]] const Tenant* find_job(std::uint32_t job_id) const;
  [[nodiscard]] const std::map<TenantId, Tenant>& all() const { return tenants_; }

 private:
  [[nodiscard]] Status save(const Tenant& tenant);
  void drop_doubles();
  [[nodiscard]] Status start_incarnation(Tenant& tenant, TimePoint now);

  store::StateStore& store_;
  TokenSource tokens_;
  std::map<TenantId, Tenant> tenants_;
  std::set<TenantId> doubtful_;
  std::uint64_t last_id_ = 0;
};

// 64 hex digits from the kernel's generator.
[[nodiscard]] std::string random_token();

}  // namespace plexrl::runtime
