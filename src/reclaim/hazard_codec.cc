// SPDX-License-Identifier: Apache-2.0
#include "model/codec_detail.h"
#include "reclaim/hazard_state.h"

namespace rn {

RN_INSTANTIATE_CODEC(reclaim::CampusHazard)
RN_INSTANTIATE_CODEC(reclaim::LabHazard)
RN_INSTANTIATE_CODEC(reclaim::NodeHazard)
RN_INSTANTIATE_CODEC(reclaim::HazardState)
RN_INSTANTIATE_CODEC(reclaim::HazardExplanation)

}  // namespace rn
