// SPDX-License-Identifier: Apache-2.0
#include "model/api.h"

#include "model/codec_detail.h"
#include "model/notify.h"
#include "model/plan.h"
#include "model/quota.h"
#include "model/sign_in.h"

namespace rn {

RN_INSTANTIATE_CODEC(api::ErrorAnswer)
RN_INSTANTIATE_CODEC(api::JoinRequest)
RN_INSTANTIATE_CODEC(api::JoinAnswer)
RN_INSTANTIATE_CODEC(api::RenewRequest)
RN_INSTANTIATE_CODEC(api::RenewAnswer)
RN_INSTANTIATE_CODEC(api::ContractEditRequest)
RN_INSTANTIATE_CODEC(api::ContractPreview)
RN_INSTANTIATE_CODEC(ContractEdit)
RN_INSTANTIATE_CODEC(api::NodeInfo)
RN_INSTANTIATE_CODEC(api::NodeList)
RN_INSTANTIATE_CODEC(api::Notification)
RN_INSTANTIATE_CODEC(api::NotifyAnswer)
RN_INSTANTIATE_CODEC(api::NotifyConfirm)
RN_INSTANTIATE_CODEC(api::NotifyList)
RN_INSTANTIATE_CODEC(api::NotifyRequest)
RN_INSTANTIATE_CODEC(api::NotifyRule)
RN_INSTANTIATE_CODEC(api::Plan)
RN_INSTANTIATE_CODEC(Quota)
RN_INSTANTIATE_CODEC(api::QuotaList)
RN_INSTANTIATE_CODEC(api::QuotaRequest)
RN_INSTANTIATE_CODEC(api::SignInOffer)
RN_INSTANTIATE_CODEC(api::SignInBegun)
RN_INSTANTIATE_CODEC(api::SignInFinish)
RN_INSTANTIATE_CODEC(api::DeviceSignIn)
RN_INSTANTIATE_CODEC(api::DeviceFinish)
RN_INSTANTIATE_CODEC(api::DeviceAnswer)
RN_INSTANTIATE_CODEC(api::ReclaimList)
RN_INSTANTIATE_CODEC(api::ReclaimRequest)
RN_INSTANTIATE_CODEC(api::ReclaimOrders)
RN_INSTANTIATE_CODEC(ReclaimOrder)
RN_INSTANTIATE_CODEC(api::SubmitAnswer)
RN_INSTANTIATE_CODEC(api::ArrayRequest)
RN_INSTANTIATE_CODEC(api::ArrayAnswer)
RN_INSTANTIATE_CODEC(api::ArrayStopped)
RN_INSTANTIATE_CODEC(api::JobList)
RN_INSTANTIATE_CODEC(api::StopRequest)
RN_INSTANTIATE_CODEC(api::WhyAnswer)
RN_INSTANTIATE_CODEC(api::NotebookAnswer)
RN_INSTANTIATE_CODEC(api::AttemptList)
RN_INSTANTIATE_CODEC(api::LogRange)
RN_INSTANTIATE_CODEC(api::GenerationList)
RN_INSTANTIATE_CODEC(api::EventInfo)
RN_INSTANTIATE_CODEC(api::EventList)
RN_INSTANTIATE_CODEC(api::StreamHello)
RN_INSTANTIATE_CODEC(api::StreamTouched)
RN_INSTANTIATE_CODEC(api::ImageList)
RN_INSTANTIATE_CODEC(api::ImageRequest)
RN_INSTANTIATE_CODEC(api::BlobQuery)
RN_INSTANTIATE_CODEC(api::BlobMissing)
RN_INSTANTIATE_CODEC(api::TokenRequest)
RN_INSTANTIATE_CODEC(api::TokenAnswer)
RN_INSTANTIATE_CODEC(api::TokenList)
RN_INSTANTIATE_CODEC(api::TelemetryList)
RN_INSTANTIATE_CODEC(api::Whoami)
RN_INSTANTIATE_CODEC(api::VersionAnswer)
RN_INSTANTIATE_CODEC(api::HealthAnswer)

}  // namespace rn
