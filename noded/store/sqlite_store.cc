// SPDX-License-Identifier: Apache-2.0
// StateStore on SQLite: one table of (table, key, subkey) -> value, WAL, synchronous=FULL. The file
// is locked exclusively for the life of the store, so that a second daemon on the same directory is
// refused instead of mixing its facts in.
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/unique_fd.h"
#include "store/state_store.h"
#include "store/store_limits.h"

namespace plexrl::store {
namespace {

constexpr int kApplicationId = 0x5058524c;  // "PXRL"
constexpr int kSchemaVersion = 1;
constexpr int kWalPages = 1000;  // about 4 MiB of log before it is folded into the file

struct CloseDb {
  void operator()(sqlite3* db) const noexcept { sqlite3_close_v2(db); }
};
struct Finalize {
  void operator()(sqlite3_stmt* statement) const noexcept { sqlite3_finalize(statement); }
};
using Db = std::unique_ptr<sqlite3, CloseDb>;
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

// SQLite's integers are signed; flipping the top bit keeps the order of unsigned keys.
sqlite3_int64 to_column(std::uint64_t key) {
  return static_cast<sqlite3_int64>(key ^ (std::uint64_t{1} << 63));
}
std::uint64_t from_column(sqlite3_int64 column) {
  return static_cast<std::uint64_t>(column) ^ (std::uint64_t{1} << 63);
}

Code code_of(int result) {
  switch (result & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Code::CORRUPT;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Code::UNAVAILABLE;
    case SQLITE_TOOBIG:
      return Code::TOO_LARGE;
    default:
      return Code::IO;
  }
}

const char* remedy(Code code) {
  if (code == Code::CORRUPT)
    return "; move the file away to start empty (parked states of running jobs are lost), or put a "
           "copy back";
  if (code == Code::UNAVAILABLE) return "; another plexrld uses it, stop that one first";
  return "";
}

Status sqlite_error(sqlite3* db, int result, const std::string& path, const char* what) {
  const Code code = code_of(result);
  const char* text = db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(result);
  return error(code, "store %s: %s: %s%s", path.c_str(), what, text, remedy(code));
}

// Brings a statement back to its start when the scope ends, so that it holds no lock or borrowed
// blob.
class Use {
 public:
  explicit Use(sqlite3_stmt* statement) : statement_(statement) {}
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }
  void bind(int index, std::string_view text) {
    sqlite3_bind_text(statement_, index, text.data(), static_cast<int>(text.size()), SQLITE_STATIC);
  }
  void bind(int index, std::uint64_t key) { sqlite3_bind_int64(statement_, index, to_column(key)); }
  void bind_blob(int index, std::string_view bytes) {
    // An empty blob needs a pointer that is not null, or SQLite stores NULL.
    sqlite3_bind_blob64(statement_, index, bytes.empty() ? "" : bytes.data(), bytes.size(),
                        SQLITE_STATIC);
  }
  int step() { return sqlite3_step(statement_); }
  std::uint64_t key(int column) { return from_column(sqlite3_column_int64(statement_, column)); }
  std::string_view blob(int column) {
    const void* data = sqlite3_column_blob(statement_, column);
    const int size = sqlite3_column_bytes(statement_, column);
    if (data == nullptr) return {};
    return {static_cast<const char*>(data), static_cast<std::size_t>(size)};
  }

 private:
  sqlite3_stmt* statement_;
};

enum Slot : std::size_t { kPut, kGet, kErase, kScan, kBegin, kCommit, kRollback, kSlots };
constexpr std::array<const char*, kSlots> kSql = {
    "INSERT INTO facts(tab, key, subkey, value) VALUES(?1, ?2, ?3, ?4) "
    "ON CONFLICT(tab, key, subkey) DO UPDATE SET value = excluded.value",
    "SELECT value FROM facts WHERE tab = ?1 AND key = ?2 AND subkey = ?3",
    "DELETE FROM facts WHERE tab = ?1 AND key = ?2 AND subkey BETWEEN ?3 AND ?4",
    "SELECT key, subkey, value FROM facts WHERE tab = ?1 ORDER BY key, subkey",
    "BEGIN IMMEDIATE",
    "COMMIT",
    "ROLLBACK"};

class SqliteStore final : public StateStore {
 public:
  SqliteStore(std::string path, Db db) : path_(std::move(path)), db_(std::move(db)) {}

  Status prepare() {
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      sqlite3_stmt* raw = nullptr;
      const int result =
          sqlite3_prepare_v3(db_.get(), kSql[slot], -1, SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
      statements_[slot].reset(raw);
      if (result != SQLITE_OK) return fail(result, "prepare");
    }
    return {};
  }

  Status apply(std::span<const BatchPtr> batches) override {
    for (const BatchPtr& batch : batches) PLEXRL_TRY(check_batch(*batch));
    PLEXRL_TRY(run(kBegin, "begin"));
    Status status = make_all(batches);
    if (status.ok()) status = run(kCommit, "commit");
    // SQLite has ended the transaction by itself when the disk was full or broken.
    if (!status.ok() && sqlite3_get_autocommit(db_.get()) == 0) (void)run(kRollback, "rollback");
    return status;
  }

  Result<std::string> get(std::string_view table, std::uint64_t key,
                          std::uint64_t subkey) const override {
    PLEXRL_TRY(check_row(table, 0));
    Use use(statements_[kGet].get());
    use.bind(1, table);
    use.bind(2, key);
    use.bind(3, subkey);
    const int result = use.step();
    if (result == SQLITE_DONE) return not_found(table, key, subkey);
    if (result != SQLITE_ROW) return fail(result, "get");
    return std::string(use.blob(0));
  }

  Status scan(std::string_view table, const Visitor& visit) const override {
    PLEXRL_TRY(check_row(table, 0));
    Use use(statements_[kScan].get());
    use.bind(1, table);
    int result = SQLITE_ROW;
    while ((result = use.step()) == SQLITE_ROW) visit(use.key(0), use.key(1), use.blob(2));
    return result == SQLITE_DONE ? Status() : fail(result, "scan");
  }

 private:
  Status fail(int result, const char* what) const {
    return sqlite_error(db_.get(), result, path_, what);
  }

  Status make_all(std::span<const BatchPtr> batches) {
    for (const BatchPtr& batch : batches)
      for (const Batch::Change& change : batch->changes())
        PLEXRL_TRY(change.erase ? erase(change) : put(change));
    return {};
  }

  Status put(const Batch::Change& change) {
    Use use(statements_[kPut].get());
    use.bind(1, change.table);
    use.bind(2, change.key);
    use.bind(3, change.subkey);
    use.bind_blob(4, change.value);
    return done(use, "put");
  }

  Status erase(const Batch::Change& change) {
    Use use(statements_[kErase].get());
    use.bind(1, change.table);
    use.bind(2, change.key);
    use.bind(3, change.subkey);
    use.bind(4, change.last);
    return done(use, "erase");
  }

  Status done(Use& use, const char* what) {
    const int result = use.step();
    return result == SQLITE_DONE ? Status() : fail(result, what);
  }

  Status run(Slot slot, const char* what) {
    Use use(statements_[slot].get());
    return done(use, what);
  }

  std::string path_;
  Db db_;
  std::array<Statement, kSlots> statements_;
};

Status execute(sqlite3* db, const std::string& path, const char* sql, const char* what) {
  const int result = sqlite3_exec(db, sql, nullptr, nullptr, nullptr);
  return result == SQLITE_OK ? Status() : sqlite_error(db, result, path, what);
}

Result<std::string> first_column(sqlite3* db, const std::string& path, const char* sql) {
  sqlite3_stmt* raw = nullptr;
  int result = sqlite3_prepare_v2(db, sql, -1, &raw, nullptr);
  const Statement statement(raw);
  if (result == SQLITE_OK) result = sqlite3_step(raw);
  if (result != SQLITE_ROW) return sqlite_error(db, result, path, sql);
  const unsigned char* text = sqlite3_column_text(raw, 0);
  return std::string(text != nullptr ? reinterpret_cast<const char*>(text) : "");
}

Status create_schema(sqlite3* db, const std::string& path) {
  const std::string sql =
      "BEGIN IMMEDIATE;"
      "CREATE TABLE IF NOT EXISTS facts(tab TEXT NOT NULL, key INTEGER NOT NULL,"
      " subkey INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY(tab, key, subkey)) WITHOUT ROWID;"
      "PRAGMA application_id=" +
      std::to_string(kApplicationId) + ";PRAGMA user_version=" + std::to_string(kSchemaVersion) +
      ";COMMIT;";
  return execute(db, path, sql.c_str(), "create");
}

Status check_schema(sqlite3* db, const std::string& path) {
  PLEXRL_ASSIGN(const std::string id, first_column(db, path, "PRAGMA application_id"));
  PLEXRL_ASSIGN(const std::string version, first_column(db, path, "PRAGMA user_version"));
  if (id == "0" && version == "0") return create_schema(db, path);
  if (id != std::to_string(kApplicationId))
    return error(Code::CORRUPT,
                 "store %s: a database of another program; give plexrld its own "
                 "state directory",
                 path.c_str());
  if (version != std::to_string(kSchemaVersion))
    return error(Code::UNSUPPORTED,
                 "store %s: written in format %s, this plexrld reads %d; run the "
                 "newer plexrld",
                 path.c_str(), version.c_str(), kSchemaVersion);
  PLEXRL_ASSIGN(const std::string health, first_column(db, path, "PRAGMA quick_check(1)"));
  if (health == "ok") return {};
  return error(Code::CORRUPT, "store %s: %s%s", path.c_str(), health.c_str(),
               remedy(Code::CORRUPT));
}

// The new name must survive a power loss as well as the rows in it.
Status sync_directory(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0)
    return errno_error(Code::IO, errno, "store %s: sync of the directory", path.c_str());
  return {};
}

// SQLite would create the file under the umask; this fixes the mode before anything is in it.
Status create_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return errno_error(Code::IO, errno, "store %s: open", path.c_str());
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0)
    return errno_error(Code::IO, errno, "store %s: stat", path.c_str());
  if (!S_ISREG(info.st_mode)) return error(Code::IO, "store %s: not a regular file", path.c_str());
  if ((info.st_mode & 077) != 0 && ::fchmod(fd.get(), 0600) != 0)
    return errno_error(Code::IO, errno, "store %s: set mode 0600", path.c_str());
  return sync_directory(path);
}

}  // namespace

Result<std::unique_ptr<StateStore>> open_sqlite_store(const std::string& path) {
  PLEXRL_TRY(create_file(path));
  sqlite3* raw = nullptr;
  const int result =
      sqlite3_open_v2(path.c_str(), &raw,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, nullptr);
  Db db(raw);
  if (result != SQLITE_OK) return sqlite_error(raw, result, path, "open");
  sqlite3_extended_result_codes(raw, 1);
  PLEXRL_TRY(execute(raw, path, "PRAGMA locking_mode=EXCLUSIVE", "lock"));
  PLEXRL_ASSIGN(const std::string mode, first_column(raw, path, "PRAGMA journal_mode=WAL"));
  if (mode != "wal")
    return error(Code::IO, "store %s: the file system allows no write-ahead log (mode %s)",
                 path.c_str(), mode.c_str());
  PLEXRL_TRY(execute(raw, path, "PRAGMA synchronous=FULL", "synchronous"));
  const std::string pages = "PRAGMA wal_autocheckpoint=" + std::to_string(kWalPages);
  PLEXRL_TRY(execute(raw, path, pages.c_str(), "wal_autocheckpoint"));
  PLEXRL_TRY(check_schema(raw, path));
  auto store = std::make_unique<SqliteStore>(path, std::move(db));
  PLEXRL_TRY(store->prepare());
  return std::unique_ptr<StateStore>(std::move(store));
}

}  // namespace plexrl::store
