// SPDX-License-Identifier: Apache-2.0
#include "runtime/op_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "store/state_store.h"

namespace plexrl::runtime {
namespace {

constexpr std::uint32_t kUser = 1000;

class StoreFilesTest : public ::testing::Test {
 protected:
  StoreFilesTest() {
    EXPECT_TRUE(store_.open().ok());
    slurm::Grant grant;
    grant.pool = "rl";
    tenant_ = tenants_.open(1, kUser, kUser, grant, {}).value().id;
  }
  ~StoreFilesTest() override { std::filesystem::remove_all(dir_); }

  void save(const std::string& text) {
    auto draft = store_.begin(kUser, "best");
    ASSERT_TRUE(draft) << draft.error().to_string();
    ASSERT_EQ(::write(draft->fd.get(), text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
    ASSERT_TRUE(store_.finish(*std::move(draft)).ok());
  }
  // As the dispatcher: under a number of its own each time.
  Op load_op(bool replay = false) {
    Op op;
    op.id = OpId{++last_op_};
    op.model = ModelId{3};
    op.tenant = tenant_;
    op.kind = core::OpKind::kLoad;
    op.seq = 5;
    op.replay = replay;
    wire::LoadArgsT args;
    args.target = wire::SaveTarget::Store;
    args.name = "best";
    op.args.Set(std::move(args));
    return op;
  }
  std::string load(StoreFiles& files, const Op& op, bool well = true) {
    const auto fds = files.open(op);
    if (!fds) return std::string(code_name(fds.error().code()));
    char buffer[64] = {};
    const ssize_t size = ::pread(fds->front(), buffer, sizeof buffer, 0);
    EXPECT_TRUE(files.ended(op, well).ok());
    return std::string(buffer, static_cast<std::size_t>(size));
  }

  static std::string make_dir() {
    char path[] = "/tmp/plexrl-files-XXXXXX";
    return ::mkdtemp(path);
  }
  std::string dir_ = make_dir();
  CheckpointStore store_{dir_, 100};
  std::unique_ptr<store::StateStore> rows_ = store::make_memory_store();
  TenantTable tenants_{*rows_, [] { return std::string("token"); }};
  StoreFiles files_{store_, tenants_};
  TenantId tenant_;
  std::uint64_t last_op_ = 0;
};

TEST_F(StoreFilesTest, AReplayReadsWhatWasLoadedAndNotWhatHasItsNameNow) {
  save("first");
  EXPECT_EQ(load(files_, load_op()), "first");
  save("second");
  EXPECT_EQ(load(files_, load_op(true)), "first");
  EXPECT_EQ(load(files_, load_op(true), false), "first") << "a replay that failed comes again";
  EXPECT_EQ(load(files_, load_op(true)), "first");
}

TEST_F(StoreFilesTest, WhatIsHeldOutlivesPlexrldWhileTheLogNeedsIt) {
  save("first");
  EXPECT_EQ(load(files_, load_op()), "first");
  save("second");
  ASSERT_TRUE(store_.open().ok());
  StoreFiles later(store_, tenants_);
  later.keep_held([](const CheckpointStore::Holder& holder) {
    return holder.model == ModelId{3} && holder.seq == 5;
  });
  EXPECT_EQ(load(later, load_op(true)), "first");
  StoreFiles last(store_, tenants_);
  last.keep_held([](const CheckpointStore::Holder&) { return false; });
  EXPECT_EQ(load(last, load_op(true)), "LOST");
}

TEST_F(StoreFilesTest, ACommitLetsGo) {
  save("first");
  EXPECT_EQ(load(files_, load_op()), "first");
  save("second");
  EXPECT_EQ(store_.used_bytes(kUser), 11U) << "a held file without its name counts";
  files_.committed(ModelId{3}, 4);
  files_.committed(ModelId{4}, 9);
  EXPECT_EQ(load(files_, load_op(true)), "first");
  files_.committed(ModelId{3}, 5);
  EXPECT_EQ(store_.used_bytes(kUser), 6U);
  EXPECT_EQ(load(files_, load_op(true)), "LOST");
}

TEST_F(StoreFilesTest, ALoadThatDidNotEndIsBegunAgainWithTheFileOfThatTime) {
  save("first");
  EXPECT_EQ(load(files_, load_op(), false), "first");
  EXPECT_EQ(store_.used_bytes(kUser), 5U) << "a file with its name counts once";
  save("second");
  EXPECT_EQ(load(files_, load_op()), "second");
}

TEST_F(StoreFilesTest, AMissingCheckpointIsNamed) {
  const auto fds = files_.open(load_op());
  ASSERT_FALSE(fds);
  EXPECT_EQ(fds.error().code(), Code::NOT_FOUND);
  EXPECT_NE(fds.error().text().find("'best'"), std::string::npos);
}

}  // namespace
}  // namespace plexrl::runtime
