// SPDX-License-Identifier: Apache-2.0
// Jobs on a device that holds one of them, with a host tier that holds fewer than all.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "node_fixture.h"

namespace plexrl::runtime {
namespace {

using ::testing::HasSubstr;

class NodeDisk : public NodeFixture {
 protected:
  // Committed 640 KiB, gradients 160 KiB; a grant holds the former twice.
  NodeDisk() {
    fake_options_.segment_bytes = 160 << 10;
    config_.pools[0].host_memory_mib = 2;
    config_.pools[0].kv_host_mib = 1;
    config_.pools[0].disk_tier_dir = "/anywhere";
    config_.pools[0].disk_tier_mib = 6;
  }
  ~NodeDisk() override { node_.reset(); }

  struct Job {
    TenantId tenant;
    std::uint64_t model = 0;
    std::uint64_t seq = 0;
  };
  Job open(std::uint32_t number) {
    Job job;
    job.tenant = open_job(number, 1000 + number, "full", 2);
    job.model = model(job.tenant, "p", wire::TrainMode::Full);
    // Sampler weights are committed once they hold something.
    EXPECT_TRUE(run(job.tenant, job.model, ++job.seq, publish()).status.ok());
    return job;
  }
  void open_three() {
    for (std::uint32_t number = 2; number <= 4; ++number) jobs_.push_back(open(number));
  }
  OpOutcome step(Job& job) {
    ++job.seq;
    OpOutcome outcome = run(job.tenant, job.model, job.seq, train(static_cast<int>(job.seq)));
    if (outcome.status.ok()) outcome = run(job.tenant, job.model, ++job.seq, optim());
    return outcome;
  }
  void steps_in_turns(int count) {
    for (int i = 0; i < count; ++i)
      for (Job& job : jobs_) {
        const OpOutcome outcome = step(job);
        ASSERT_TRUE(outcome.status.ok()) << outcome.status.to_string();
      }
  }
  std::vector<float> alone(int count) {
    Job job = open(1);
    for (int i = 0; i < count; ++i) EXPECT_TRUE(step(job).status.ok());
    auto weights = weights_of(job.tenant, job.model, job.seq + 1);
    EXPECT_TRUE(node_->tenant_service().close(1).ok());
    return weights;
  }
  void expect_as_alone(const std::vector<float>& weights) {
    for (Job& job : jobs_)
      EXPECT_EQ(weights_of(job.tenant, job.model, ++job.seq), weights) << job.model;
  }
  // Blobs of that model's segments; the model is not resident.
  std::vector<BlobId> blobs_of(const Job& job) {
    std::vector<BlobId> blobs;
    for (const auto& entry : node_->state().manifest(ModelId{job.model})->entries)
      if (entry.blob && entry.host.empty()) blobs.push_back(entry.blob);
    return blobs;
  }
  // A job that waits, of which something is on disk alone.
  Job& one_on_disk() {
    for (Job& job : jobs_)
      if (!blobs_of(job).empty()) return job;
    ADD_FAILURE() << "nothing is on disk: " << node_->state().table_json();
    return jobs_.front();
  }

  std::vector<Job> jobs_;
  bool kill_wanted_ = false;
};

TEST_F(NodeDisk, ThreeJobsInTurnsEachAsAlone) {
  start();
  const auto weights = alone(4);
  open_three();
  steps_in_turns(4);
  (void)one_on_disk();
  expect_as_alone(weights);
}

TEST_F(NodeDisk, ARestartInBetweenChangesNothing) {
  start();
  const auto weights = alone(4);
  open_three();
  for (int i = 0; i < 4; ++i) {
    steps_in_turns(1);
    settle();
    restart();
  }
  expect_as_alone(weights);
}

TEST_F(NodeDisk, AKillInTheMiddleOfASpillOrFetchChangesNothing) {
  start();
  const auto weights = alone(3);
  open_three();
  int killed = 0;
  blob_disk_->fault = [&](auto, BlobId) {
    if (++killed % 7 == 0) loop_->post([&] { kill_wanted_ = true; });
    return Status();
  };
  for (int i = 0; i < 3; ++i) {
    for (Job& job : jobs_) {
      const OpOutcome outcome = step(job);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.to_string();
      if (std::exchange(kill_wanted_, false)) restart();
    }
  }
  EXPECT_GE(killed, 7) << "blobs were moved";
  expect_as_alone(weights);
}

TEST_F(NodeDisk, ADamagedBlobIsToldOnceAndNobodyElseIsHit) {
  start();
  const auto weights = alone(3);
  open_three();
  steps_in_turns(3);
  settle();
  Job& hit = one_on_disk();
  blob_disk_->blobs.at(blobs_of(hit).front()).bytes[5] ^= std::byte{1};
  const OpOutcome told = run(hit.tenant, hit.model, ++hit.seq, train(1));
  EXPECT_EQ(told.status.code(), Code::CORRUPT) << told.status.to_string();
  EXPECT_THAT(told.status.text(), HasSubstr("segment "));
  EXPECT_THAT(told.status.text(), HasSubstr("chunk 0: checksum"));
  EXPECT_THAT(told.status.text(), HasSubstr("load a checkpoint"));
  for (Job& job : jobs_) {
    if (job.model == hit.model) continue;
    EXPECT_EQ(weights_of(job.tenant, job.model, ++job.seq), weights);
  }
  const OpOutcome again = run(hit.tenant, hit.model, ++hit.seq, train(1));
  EXPECT_TRUE(again.status.ok()) << again.status.to_string();
  EXPECT_EQ(node_->models().find(ModelId{hit.model})->position.step, 0U);
}

TEST_F(NodeDisk, ADiskThatRefusesWritesCostsTimeOnly) {
  start();
  const auto weights = alone(3);
  open_three();
  steps_in_turns(1);
  blob_disk_->fault = [](auto verb, BlobId) {
    return verb == store::MemoryDisk::Verb::kWrite
               ? error(Code::NO_CAPACITY, "No space left on device")
               : Status();
  };
  std::vector<std::shared_ptr<Pending>> waiting;
  for (Job& job : jobs_) {
    ++job.seq;
    waiting.push_back(submit(job.tenant, job.model, job.seq, train(static_cast<int>(job.seq))));
  }
  settle();
  blob_disk_->fault = [](auto, BlobId) { return Status(); };
  for (const auto& one : waiting) {
    const OpOutcome outcome = wait(one);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.to_string();
  }
  for (Job& job : jobs_) ASSERT_TRUE(run(job.tenant, job.model, ++job.seq, optim()).status.ok());
  steps_in_turns(1);
  expect_as_alone(weights);
}

TEST_F(NodeDisk, AManifestOnDiskWithoutADiskTierStopsTheStart) {
  start();
  open_three();
  steps_in_turns(3);
  settle();
  ASSERT_FALSE(blob_disk_->blobs.empty());
  const auto before = blob_disk_->blobs.size();
  node_->detach();
  node_.reset();
  config_.pools[0].disk_tier_dir.clear();
  const Status status = start_status();
  EXPECT_EQ(status.code(), Code::INVALID_ARGUMENT) << status.to_string();
  EXPECT_THAT(status.text(), HasSubstr("set disk_tier_dir again"));
  EXPECT_EQ(blob_disk_->blobs.size(), before);
}

}  // namespace
}  // namespace plexrl::runtime
