// SPDX-License-Identifier: Apache-2.0
#include "runtime/profile_book.h"

#include <algorithm>

#include "base/log.h"
#include "core/byte_codec.h"
#include "store/async_store.h"

namespace plexrl::runtime {
namespace {

constexpr std::string_view kTable = "profiles";
constexpr std::uint64_t kFormat = 1;
// The second step tells what lies between two steps.
constexpr std::uint64_t kLeastSteps = 2;
constexpr Duration kLeastTime{60 * kSecond.ns};

// Part of the whole in percent, rounded up.
std::uint32_t percent(std::int64_t part, std::int64_t whole) {
  if (whole <= 0 || part <= 0) return 0;
  if (part >= whole) return 100;
  // In steps of a hundredth, so that nothing overflows.
  const std::int64_t hundredth = std::max<std::int64_t>(whole / 100, 1);
  return static_cast<std::uint32_t>(
      std::min<std::int64_t>((part + hundredth - 1) / hundredth, 100));
}

template <class Runs, class Field>
std::uint32_t upper_median(const Runs& runs, Field field) {
  std::vector<std::uint32_t> values;
  for (const auto& run : runs) values.push_back(run.*field);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::int64_t run_ns(const TenantTotals& totals, core::OpKind kind) {
  return totals.kinds[static_cast<std::size_t>(kind)].run_ns;
}

bool long_enough(const TenantTotals& totals, std::int64_t alone_ns) {
  if (totals.device_ns <= 0 || alone_ns <= 0) return false;
  const auto steps = totals.kinds[static_cast<std::size_t>(core::OpKind::kOptimStep)].count;
  return steps >= kLeastSteps || alone_ns >= kLeastTime.ns;
}

}  // namespace

// ---- rows ----

std::string ProfileBook::encode(const slurm::ProfileKey& key, const Entry& entry) {
  core::ByteWriter writer;
  writer.varint(kFormat);
  writer.varint(key.uid);
  for (const std::string* const word : {&key.pool, &key.train_mode, &key.name}) writer.text(*word);
  writer.varint(key.models.size());
  for (const std::string& model : key.models) writer.text(model);
  writer.varint(entry.runs);
  writer.varint(entry.newest.size());
  for (const Run& run : entry.newest)
    for (const std::uint32_t number :
         {run.job_id, run.busy_percent, run.rollout_percent, run.training_percent})
      writer.varint(number);
  return writer.take();
}

bool ProfileBook::decode(std::string_view bytes, slurm::ProfileKey* key, Entry* entry) {
  core::ByteReader reader(bytes);
  if (reader.varint() != kFormat) return false;
  key->uid = static_cast<std::uint32_t>(reader.varint());
  for (std::string* const word : {&key->pool, &key->train_mode, &key->name}) *word = reader.text();
  for (std::uint64_t left = reader.count(); left > 0; --left)
    key->models.emplace_back(reader.text());
  entry->runs = static_cast<std::uint32_t>(reader.varint());
  const std::uint64_t newest = reader.count();
  if (newest == 0 || newest > kRuns) return false;
  for (std::uint64_t i = 0; i < newest; ++i) {
    Run run;
    for (std::uint32_t* const number :
         {&run.job_id, &run.busy_percent, &run.rollout_percent, &run.training_percent})
      *number = static_cast<std::uint32_t>(reader.varint());
    if (run.busy_percent > 100 || run.rollout_percent > 100 || run.training_percent > 100)
      return false;
    entry->newest.push_back(run);
  }
  return reader.at_end();
}

Status ProfileBook::load() {
  Status bad;
  PLEXRL_TRY(store_.scan(kTable, [&](std::uint64_t serial, std::uint64_t, std::string_view value) {
    slurm::ProfileKey key;
    Entry entry;
    if (!decode(value, &key, &entry)) {
      bad = error(Code::CORRUPT, "profile %llu in the store",
                  static_cast<unsigned long long>(serial));
      return;
    }
    entry.serial = serial;
    serial_ = std::max(serial_, serial);
    entries_.insert_or_assign(std::move(key), std::move(entry));
  }));
  return bad;
}

// ---- learning ----

// Ops of several rows run together, so their times only say how the device time divides.
ProfileBook::Run ProfileBook::run_of(std::uint32_t job_id, const TenantTotals& totals,
                                     std::int64_t alone_ns) {
  Run run{job_id, percent(totals.device_ns, alone_ns), 0, 0};
  std::int64_t all = 0;
  for (const KindTotals& kind : totals.kinds) all += kind.run_ns;
  const std::int64_t rollout = run_ns(totals, core::OpKind::kGenerate);
  const std::int64_t training =
      run_ns(totals, core::OpKind::kForwardBackward) + run_ns(totals, core::OpKind::kOptimStep);
  run.rollout_percent = percent(rollout, all) * run.busy_percent / 100;
  run.training_percent = percent(training, all) * run.busy_percent / 100;
  return run;
}

void ProfileBook::drop_oldest(bool of_user, std::uint32_t uid, store::Batch* batch) {
  auto oldest = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (of_user && it->first.uid != uid) continue;
    if (oldest == entries_.end() || it->second.serial < oldest->second.serial) oldest = it;
  }
  if (oldest == entries_.end()) return;
  batch->erase(kTable, oldest->second.serial, 0, 0);
  entries_.erase(oldest);
}

void ProfileBook::make_room(std::uint32_t uid, store::Batch* batch) {
  const auto own = std::count_if(entries_.begin(), entries_.end(),
                                 [&](const auto& entry) { return entry.first.uid == uid; });
  if (static_cast<std::size_t>(own) >= kMaxPerUser)
    drop_oldest(true, uid, batch);
  else if (entries_.size() >= kMax)
    drop_oldest(false, uid, batch);
}

void ProfileBook::learn(const Tenant& tenant, const TenantTotals& totals) {
  const std::int64_t alone_ns = totals.wall_ns - totals.wait_others_ns - totals.switch_ns;
  if (tenant.grant.name.empty() || !long_enough(totals, alone_ns)) return;
  store::Batch batch;
  slurm::ProfileKey key = slurm::profile_key(tenant.uid, tenant.grant);
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    make_room(tenant.uid, &batch);
    found = entries_.emplace(std::move(key), Entry{}).first;
  } else {
    batch.erase(kTable, found->second.serial, 0, 0);
  }
  Entry& entry = found->second;
  auto& newest = entry.newest;
  if (!newest.empty() && newest.back().job_id == tenant.job_id)
    newest.pop_back();
  else
    ++entry.runs;
  if (newest.size() == kRuns) newest.erase(newest.begin());
  newest.push_back(run_of(tenant.job_id, totals, alone_ns));
  entry.serial = ++serial_;
  batch.put(kTable, entry.serial, 0, encode(found->first, entry));
  store_.write(std::make_shared<const store::Batch>(std::move(batch)), [](const Status& status) {
    if (!status.ok()) PLEXRL_LOG(kWarning, "store a job's profile: %s", status.to_string().c_str());
  });
}

slurm::Profile ProfileBook::summary(const Entry& entry) {
  return {entry.runs, upper_median(entry.newest, &Run::busy_percent),
          upper_median(entry.newest, &Run::rollout_percent),
          upper_median(entry.newest, &Run::training_percent)};
}

slurm::Profiles ProfileBook::profiles() const {
  slurm::Profiles list;
  for (const auto& [key, entry] : entries_) list.emplace(key, summary(entry));
  return list;
}

}  // namespace plexrl::runtime
