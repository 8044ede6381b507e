// SPDX-License-Identifier: Apache-2.0
// One suite for every StateStore.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "store/state_store.h"
#include "store/store_limits.h"
#include "store/write_queue.h"

namespace plexrl::store {
namespace {

class StoreConformance : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "memory") {
      store_ = make_memory_store();
      return;
    }
    if (std::string(GetParam()) == "queue") {
      below_ = make_memory_store();
      store_ = std::make_unique<WriteQueue>(*below_, [](const std::function<void()>&) {});
      return;
    }
    std::string pattern = testing::TempDir() + "plexrl_store_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    auto opened = open_sqlite_store(folder_ + "/facts.db");
    ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
    store_ = std::move(opened).value();
  }
  void TearDown() override {
    store_.reset();
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  std::vector<std::string> rows(const char* table) {
    std::vector<std::string> found;
    const Status status =
        store_->scan(table, [&](std::uint64_t key, std::uint64_t subkey, std::string_view value) {
          found.push_back(std::to_string(key) + "." + std::to_string(subkey) + "=" +
                          std::string(value));
        });
    EXPECT_TRUE(status.ok()) << status.to_string();
    return found;
  }

  Status apply(std::vector<Batch> batches) {
    std::vector<BatchPtr> all;
    for (Batch& batch : batches) all.push_back(std::make_shared<const Batch>(std::move(batch)));
    return store_->apply(all);
  }

  std::unique_ptr<StateStore> below_;  // of a queue
  std::unique_ptr<StateStore> store_;
  std::string folder_;
};

using Rows = std::vector<std::string>;

TEST_P(StoreConformance, GetReturnsWhatWasPut) {
  ASSERT_TRUE(store_->put("ops", 1, 2, std::string("a\0b", 3)).ok());
  EXPECT_EQ(store_->get("ops", 1, 2).value(), std::string("a\0b", 3));
}

TEST_P(StoreConformance, AMissingRowIsNotFoundAndNamed) {
  const auto row = store_->get("ops", 7, 9);
  EXPECT_EQ(row.error().code(), Code::NOT_FOUND);
  EXPECT_NE(row.error().text().find("ops has no row 7.9"), std::string::npos);
}

TEST_P(StoreConformance, PutReplaces) {
  ASSERT_TRUE(store_->put("ops", 1, 1, "old").ok());
  ASSERT_TRUE(store_->put("ops", 1, 1, "new").ok());
  EXPECT_EQ(rows("ops"), (Rows{"1.1=new"}));
}

TEST_P(StoreConformance, AnEmptyValueIsAValue) {
  ASSERT_TRUE(store_->put("ops", 1, 1, "").ok());
  EXPECT_EQ(store_->get("ops", 1, 1).value(), "");
}

TEST_P(StoreConformance, TablesAreApart) {
  ASSERT_TRUE(store_->put("ops", 1, 1, "x").ok());
  EXPECT_EQ(store_->get("results", 1, 1).error().code(), Code::NOT_FOUND);
  ASSERT_TRUE(store_->erase("results", 1, 9).ok());
  EXPECT_EQ(rows("ops").size(), 1u);
}

TEST_P(StoreConformance, ScanIsInOrderOfUnsignedKeys) {
  const std::uint64_t big = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t key : {big, std::uint64_t{1} << 63, std::uint64_t{5}, std::uint64_t{0}})
    ASSERT_TRUE(store_->put("ops", key, 0, "").ok());
  ASSERT_TRUE(store_->put("ops", 5, big, "").ok());
  EXPECT_EQ(rows("ops"), (Rows{"0.0=", "5.0=", "5.18446744073709551615=", "9223372036854775808.0=",
                               "18446744073709551615.0="}));
}

TEST_P(StoreConformance, EraseTakesSubkeysUpToTheLastOfOneKeyOnly) {
  for (std::uint64_t key = 1; key <= 2; ++key)
    for (std::uint64_t subkey = 0; subkey < 4; ++subkey)
      ASSERT_TRUE(store_->put("ops", key, subkey, "").ok());
  ASSERT_TRUE(store_->erase("ops", 1, 2).ok());
  EXPECT_EQ(rows("ops"), (Rows{"1.3=", "2.0=", "2.1=", "2.2=", "2.3="}));
}

TEST_P(StoreConformance, EraseOfTheHighestSubkeyTakesAll) {
  ASSERT_TRUE(store_->put("ops", 1, std::numeric_limits<std::uint64_t>::max(), "").ok());
  ASSERT_TRUE(store_->erase("ops", 1, std::numeric_limits<std::uint64_t>::max()).ok());
  EXPECT_TRUE(rows("ops").empty());
}

TEST_P(StoreConformance, AnEraseOfARangeLeavesWhatIsBeforeAndBehind) {
  for (std::uint64_t subkey = 0; subkey < 5; ++subkey)
    ASSERT_TRUE(store_->put("ops", 1, subkey, "").ok());
  Batch batch;
  batch.erase("ops", 1, 1, 3);
  batch.erase("ops", 1, 9, 2);  // the wrong way round: nothing
  ASSERT_TRUE(apply({std::move(batch)}).ok());
  EXPECT_EQ(rows("ops"), (Rows{"1.0=", "1.4="}));
}

TEST_P(StoreConformance, BatchesAreMadeInOrder) {
  Batch first;
  first.put("ops", 1, 1, "a");
  first.put("results", 1, 1, "b");
  first.erase("ops", 1, 0, 9);
  Batch second;
  second.put("ops", 1, 2, "c");
  second.put("ops", 1, 2, "d");
  ASSERT_TRUE(apply({std::move(first), std::move(second)}).ok());
  EXPECT_EQ(rows("ops"), (Rows{"1.2=d"}));
  EXPECT_EQ(rows("results"), (Rows{"1.1=b"}));
}

TEST_P(StoreConformance, ABadRowSpoilsTheWholeCall) {
  Batch good;
  good.put("ops", 1, 1, "a");
  Batch bad;
  bad.put("ops", 1, 2, "b");
  bad.put("", 1, 1, "c");
  EXPECT_EQ(apply({std::move(good), std::move(bad)}).code(), Code::INVALID_ARGUMENT);
  EXPECT_TRUE(rows("ops").empty());
}

TEST_P(StoreConformance, BadTableNamesAndHugeValuesAreRefused) {
  EXPECT_EQ(store_->put("", 1, 1, "x").code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(store_->put(std::string(33, 'x'), 1, 1, "x").code(), Code::INVALID_ARGUMENT);
  const std::string huge(kMaxValueBytes + 1, 'x');
  EXPECT_EQ(store_->put("ops", 1, 1, huge).code(), Code::TOO_LARGE);
  EXPECT_TRUE(rows("ops").empty());
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreConformance, testing::Values("memory", "sqlite", "queue"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace plexrl::store
