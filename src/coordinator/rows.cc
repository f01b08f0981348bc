// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rows.h"

#include "model/codec_detail.h"

namespace rn {

RN_INSTANTIATE_CODEC(coordinator::JobRow)
RN_INSTANTIATE_CODEC(coordinator::GangRow)
RN_INSTANTIATE_CODEC(coordinator::AttemptRow)
RN_INSTANTIATE_CODEC(coordinator::NodeRow)
RN_INSTANTIATE_CODEC(coordinator::GenerationRow)
RN_INSTANTIATE_CODEC(coordinator::ReclaimRow)
RN_INSTANTIATE_CODEC(coordinator::TokenRow)
RN_INSTANTIATE_CODEC(coordinator::UserRow)
RN_INSTANTIATE_CODEC(coordinator::UsageRow)
RN_INSTANTIATE_CODEC(coordinator::GpuHourRow)
RN_INSTANTIATE_CODEC(coordinator::EventRow)
RN_INSTANTIATE_CODEC(coordinator::OutputsRow)
RN_INSTANTIATE_CODEC(coordinator::RollupRow)

}  // namespace rn
