// SPDX-License-Identifier: Apache-2.0
#include "store/loop_read.h"

namespace plexrl::store {

LoopRead::~LoopRead() {
  while (busy() && transfer_->go_on(queue_->wait())) {
  }
}

bool LoopRead::begin(int directory, bool direct, const BlobRequest& request,
                     TransferControl& control) {
  if (request.bytes > kBlobChunkBytes) return false;
  auto transfer = std::make_unique<BlobTransfer>(*queue_, directory, direct, request, control);
  if (!transfer->begin_read().ok()) return false;
  transfer_ = std::move(transfer);
  return true;
}

std::optional<Status> LoopRead::go_on() {
  while (busy()) {
    const auto done = queue_->poll();
    if (!done) return std::nullopt;
    if (transfer_->go_on(*done)) continue;
    Status status = transfer_->end_read();
    transfer_.reset();
    return status;
  }
  return std::nullopt;
}

}  // namespace plexrl::store
