// SPDX-License-Identifier: Apache-2.0
// ProfileBook: what the jobs that ran on this node tell about their next runs (slurm/profile.h).
// Medians of the newest few runs, so that single outliers change nothing. What was learnt outlives
// plexrld and the jobs; it is bounded per user, so that nobody's many names push out what others
// have learnt. Loop thread only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/accounting.h"
#include "runtime/tenant_table.h"
#include "slurm/profile.h"

namespace plexrl::store {
class Batch;
}

namespace plexrl::runtime {

class ProfileBook {
 public:
  static constexpr std::size_t kMaxPerUser = 64;
  static constexpr std::size_t kMax = 4096;
  static constexpr std::size_t kRuns = 5;

  explicit ProfileBook(store::AsyncStore& store) : store_(store) {}

  // What an earlier plexrld stored. CORRUPT names the row.
  [[nodiscard]] Status load();
  // An incarnation of the job is over. A job without a name teaches nothing, nor one that was not
  // long enough to be like the next: two optimizer steps, or a minute alone for one that does not
  // train. A job that was requeued counts once, with all that it did.
  void learn(const Tenant& tenant, const TenantTotals& totals);
  [[nodiscard]] slurm::Profiles profiles() const;

 private:
  struct Run {
    std::uint32_t job_id = 0;
    std::uint32_t busy_percent = 0;
    std::uint32_t rollout_percent = 0;
    std::uint32_t training_percent = 0;
  };
  struct Entry {
    std::uint64_t serial = 0;  // of its row; the larger the newer
    std::uint32_t runs = 0;    // all that there were
    std::vector<Run> newest;
  };
  using Entries = std::map<slurm::ProfileKey, Entry>;
  static bool decode(std::string_view bytes, slurm::ProfileKey* key, Entry* entry);
  static std::string encode(const slurm::ProfileKey& key, const Entry& entry);
  static Run run_of(std::uint32_t job_id, const TenantTotals& totals, std::int64_t alone_ns);
  static slurm::Profile summary(const Entry& entry);
  void make_room(std::uint32_t uid, store::Batch* batch);
  void drop_oldest(bool of_user, std::uint32_t uid, store::Batch* batch);

  store::AsyncStore& store_;
  Entries entries_;
  std::uint64_t serial_ = 0;
};

}  // namespace plexrl::runtime
