// SPDX-License-Identifier: Apache-2.0
// LoopThreadTest: an event loop in a thread of its own, and a folder for its sockets. What lives in
// the loop is touched there only; a fixture stops the loop before it destroys any of that.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <future>
#include <string>
#include <thread>

#include "loop/event_loop.h"

namespace plexrl {

class LoopThreadTest : public ::testing::Test {
 protected:
  LoopThreadTest() {
    char path[] = "/tmp/plexrl-loop-XXXXXX";
    dir_ = ::mkdtemp(path);
  }
  ~LoopThreadTest() override {
    stop_loop();
    std::filesystem::remove_all(dir_);
  }

  void run_loop() {
    thread_ = std::thread([this] { EXPECT_TRUE(loop_->run()); });
  }
  // `last` comes before, on the loop's thread if it runs: what ends ops when it goes, for which
  // engines make timers.
  void stop_loop(const std::function<void()>& last = [] {}) {
    if (!thread_.joinable()) return last();
    loop_->post([&] {
      last();
      loop_->exit(0);
    });
    thread_.join();
  }
  // Runs `work` on the loop's thread and waits for it.
  template <class Work>
  void on_loop(Work work) {
    std::promise<void> done;
    loop_->post([&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }

  std::string dir_;
  std::unique_ptr<loop::EventLoop> loop_ = loop::EventLoop::create().value();

 private:
  std::thread thread_;
};

}  // namespace plexrl
