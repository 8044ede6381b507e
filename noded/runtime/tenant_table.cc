// SPDX-License-Identifier: Apache-2.0
#include "runtime/tenant_table.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "store/state_store.h"

namespace plexrl::runtime {
namespace {

constexpr std::string_view kTable = "tenants";

std::string encode(const Tenant& t) {
  return nlohmann::json{{"job_id", t.job_id},
                        {"uid", t.uid},
                        {"gid", t.gid},
                        {"incarnation", t.incarnation},
                        {"grant", slurm::format_grant(t.grant)},
                        {"token", t.token},
                        {"state", static_cast<int>(t.state)},
                        {"attached", t.attached},
                        {"opened_ns", t.opened.ns},
                        {"closed_ns", t.closed.ns}}
      .dump();
}

Result<Tenant> decode(std::uint64_t id, std::string_view text) {
  Tenant t;
  try {
    const auto row = nlohmann::json::parse(text);
    t.id = TenantId{id};
    t.job_id = row.at("job_id");
    t.uid = row.at("uid");
    t.gid = row.at("gid");
    t.incarnation = row.at("incarnation");
    t.token = row.at("token");
    t.state = static_cast<TenantState>(row.at("state").get<int>());
    t.attached = row.at("attached");
    t.opened.ns = row.at("opened_ns");
    t.closed.ns = row.at("closed_ns");
    PLEXRL_ASSIGN(t.grant, slurm::parse_grant(row.at("grant").get<std::string>()));
  } catch (const nlohmann::json::exception& e) {
    return error(Code::CORRUPT, "tenant %llu in the store: %s", static_cast<unsigned long long>(id),
                 e.what());
  }
  return t;
}

// Takes the same time wherever the first difference is.
bool equal_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace

std::string random_token() {
  std::array<unsigned char, 32> bytes{};
  PLEXRL_CHECK(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
               "getrandom gives 32 bytes at once");
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

TenantTable::TenantTable(store::StateStore& store, TokenSource tokens)
    : store_(store), tokens_(std::move(tokens)) {}

Status TenantTable::load() {
  Status bad;
  PLEXRL_TRY(store_.scan(kTable, [&](std::uint64_t key, std::uint64_t, std::string_view value) {
    auto tenant = decode(key, value);
    if (!tenant) {
      bad = tenant.error();
      return;
    }
    last_id_ = std::max(last_id_, key);
    tenants_.insert_or_assign(TenantId{key}, *std::move(tenant));
  }));
  drop_doubles();
  return bad;
}

void TenantTable::drop_doubles() {
  std::map<std::uint32_t, TenantId> newest;
  for (const auto& [id, tenant] : tenants_) newest[tenant.job_id] = id;
  std::vector<TenantId> doubles;
  for (const auto& [id, tenant] : tenants_)
    if (newest.at(tenant.job_id) != id) doubles.push_back(id);
  for (const TenantId id : doubles) remove(id);
}

Status TenantTable::save(const Tenant& tenant) {
  const Status status = store_.put(kTable, tenant.id.value, 0, encode(tenant));
  if (!status.ok()) doubtful_.insert(tenant.id);
  return status;
}

void TenantTable::settle_doubt() {
  for (const TenantId id : std::exchange(doubtful_, {})) {
    const Tenant* const tenant = find(id);
    if (tenant == nullptr) {
      remove(id);
    } else {
      (void)save(*tenant);
    }
  }
}

Status TenantTable::start_incarnation(Tenant& tenant, TimePoint now) {
  ++tenant.incarnation;
  tenant.token = tokens_();
  tenant.state = TenantState::kOpen;
  tenant.attached = false;
  tenant.opened = now;
  return save(tenant);
}

Result<TenantTable::Opened> TenantTable::open(std::uint32_t job_id, std::uint32_t uid,
                                              std::uint32_t gid, const slurm::Grant& grant,
                                              TimePoint now) {
  const Tenant* const old = find_job(job_id);
  if (old != nullptr && old->uid != uid)
    return error(Code::PERMISSION,
                 "job %u: its state here belongs to uid %u, the request is for uid %u", job_id,
                 old->uid, uid);
  if (old != nullptr && old->open() && !old->attached && old->grant == grant)
    return Opened{old->id, false, false};
  Tenant tenant = old != nullptr ? *old : Tenant{};
  if (old == nullptr) tenant.id = TenantId{++last_id_};
  tenant.job_id = job_id;
  tenant.uid = uid;
  tenant.gid = gid;
  tenant.grant = grant;
  PLEXRL_TRY(start_incarnation(tenant, now));
  const Opened opened{tenant.id, old == nullptr, true};
  tenants_.insert_or_assign(tenant.id, std::move(tenant));
  return opened;
}

Result<TenantId> TenantTable::attach(std::uint32_t job_id, std::uint32_t uid, TimePoint now) {
  const Tenant* const found = find_job(job_id);
  if (found == nullptr || found->state == TenantState::kClosed)
    return error(Code::NOT_FOUND, "job %u is not open on this node", job_id);
  if (found->uid != uid)
    return error(Code::PERMISSION, "job %u belongs to uid %u, not to uid %u", job_id, found->uid,
                 uid);
  Tenant tenant = *found;
  if (!tenant.open()) PLEXRL_TRY(start_incarnation(tenant, now));
  if (!tenant.attached) {
    tenant.attached = true;
    PLEXRL_TRY(save(tenant));
  }
  const TenantId id = tenant.id;
  tenants_.insert_or_assign(id, std::move(tenant));
  return id;
}

Status TenantTable::close(TenantId id, TenantState how, TimePoint now) {
  const Tenant* const found = find(id);
  if (found == nullptr) return error(Code::NOT_FOUND, "no such tenant");
  Tenant tenant = *found;
  tenant.state = how;
  tenant.token.clear();
  tenant.closed = now;
  PLEXRL_TRY(save(tenant));
  tenants_.insert_or_assign(id, std::move(tenant));
  return {};
}

void TenantTable::remove(TenantId id) {
  if (!store_.erase(kTable, id.value, 0).ok()) doubtful_.insert(id);
  tenants_.erase(id);
}

Result<TenantId> TenantTable::authenticate(std::string_view token, std::uint32_t peer_uid) const {
  for (const auto& [id, tenant] : tenants_) {
    if (tenant.open() && equal_secret(tenant.token, token) && tenant.uid == peer_uid) return id;
  }
  return error(
      Code::AUTH,
      "token not accepted: it belongs to another user, or its job has ended or was requeued");
}

const Tenant* TenantTable::find(TenantId id) const {
  const auto found = tenants_.find(id);
  return found == tenants_.end() ? nullptr : &found->second;
}

const Tenant* TenantTable::find_job(std::uint32_t job_id) const {
  const auto found = std::find_if(tenants_.begin(), tenants_.end(),
                                  [&](const auto& row) { return row.second.job_id == job_id; });
  return found == tenants_.end() ? nullptr : &found->second;
}

}  // namespace plexrl::runtime
