// SPDX-License-Identifier: Apache-2.0
// RingChecks: what holds between any two events, and what is left when all jobs are gone.
#pragma once

#include "ring_node.h"

namespace plexrl::runtime {

class RingChecks {
 public:
  RingChecks(RingNode& node, Broken& broken) : node_(node), broken_(broken) {}

  void after_event();
  // All jobs were closed and dropped: true once nothing is under way any more.
  [[nodiscard]] bool quiet();
  [[nodiscard]] std::string left();
  void nothing_left();

 private:
  void check_op(const Op& op);
  void check_rider(const Op& op, const std::string& reason);
  [[nodiscard]] bool run_together(const Op& a, const Op& b);
  void check_held(const Op& op, const std::string& reason);
  void complain(const Op& op, const char* what);

  RingNode& node_;
  Broken& broken_;
};

}  // namespace plexrl::runtime
