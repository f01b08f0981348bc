// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api_schema.h"

#include <limits>
#include <string>

#include "model/api.h"
#include "model/codec_detail.h"
#include "model/notify.h"
#include "model/plan.h"
#include "model/quota.h"
#include "model/sign_in.h"
#include "reclaim/hazard_state.h"

namespace rn::coordinator {

namespace {

using nlohmann::json;

/// "SubmitAnswer" of rn::api::SubmitAnswer.
template <class T>
std::string name_of() {
  const std::string_view full = __PRETTY_FUNCTION__;
  const std::size_t begin = full.find("T = ") + 4;
  std::string_view type = full.substr(begin, full.find_first_of(";]", begin) - begin);
  const std::size_t colons = type.rfind("::");
  return std::string(colons == std::string_view::npos ? type : type.substr(colons + 2));
}

template <class T>
json schema_of(json& components);

template <class T>
json whole_number() {
  json schema = {{"type", "integer"}, {"minimum", std::numeric_limits<T>::min()}};
  // NOTE: 64-bit bounds don't survive readers that use doubles.
  if constexpr (sizeof(T) < 8) schema["maximum"] = std::numeric_limits<T>::max();
  if constexpr (sizeof(T) == 8 && std::is_signed_v<T>) schema.erase("minimum");
  return schema;
}

template <class T>
json structure(json& components) {
  const std::string name = name_of<T>();
  if (!components.contains(name)) {
    components[name] = nullptr;  // a structure that holds itself would end here
    json properties = json::object();
    T::with_fields([&](const auto&... f) {
      ((properties[std::string(f.name)] =
            schema_of<std::remove_reference_t<decltype(std::declval<T&>().*(f.member))>>(components)
       ),
       ...);
    });
    components[name] = {
        {"type", "object"}, {"additionalProperties", false}, {"properties", properties}};
  }
  return {{"$ref", "#/components/schemas/" + name}};
}

template <class T>
json schema_of(json& components) {
  if constexpr (detail::Described<T>) {
    return structure<T>(components);
  } else if constexpr (detail::Enumerated<T>) {
    json words = json::array();
    for (const auto word : EnumWords<T>::kWords) words.push_back(word);
    return {{"type", "string"}, {"enum", words}};
  } else if constexpr (std::is_same_v<T, bool>) {
    return {{"type", "boolean"}};
  } else if constexpr (std::integral<T>) {
    return whole_number<T>();
  } else if constexpr (std::floating_point<T>) {
    return {{"type", "number"}};
  } else if constexpr (std::is_same_v<T, LeaseEpoch>) {
    return {{"type", "string"}, {"pattern", "^[0-9]+[.][0-9]+$"}};
  } else if constexpr (std::is_same_v<T, Digest>) {
    return {{"type", "string"}, {"pattern", "^[0-9a-f]{64}$"}};
  } else if constexpr (std::is_same_v<T, Blob>) {
    return {{"type", "string"}, {"contentEncoding", "base64"}};
  } else if constexpr (detail::IsVector<T>::value) {
    return {{"type", "array"}, {"items", schema_of<typename T::value_type>(components)}};
  } else if constexpr (detail::IsOptional<T>::value) {
    return {{"oneOf", {schema_of<typename T::value_type>(components), {{"type", "null"}}}}};
  } else if constexpr (std::is_same_v<T, std::map<std::string, std::string>>) {
    return {{"type", "object"}, {"additionalProperties", {{"type", "string"}}}};
  } else {
    return {{"type", "string"}};  // std::string and strong ids
  }
}

template <class... T>
void add(json& components) {
  (schema_of<T>(components), ...);
}

}  // namespace

json api_schemas() {
  json components = json::object();
  add<JobSpec,
      Job,
      Listing,
      Image,
      api::ErrorAnswer,
      api::JoinRequest,
      api::JoinAnswer,
      api::RenewRequest,
      api::RenewAnswer,
      api::NodeInfo,
      api::NodeList,
      reclaim::HazardExplanation,
      api::ReclaimList,
      api::ReclaimRequest,
      ReclaimOrder,
      api::ContractEditRequest,
      api::ContractPreview,
      ContractEdit,
      api::SubmitAnswer,
      api::ArrayRequest,
      api::ArrayAnswer,
      api::ArrayStopped,
      api::GangRequest,
      api::GangAnswer,
      api::GangInfo,
      api::GangStopped,
      api::JobList,
      api::StopRequest,
      api::Plan,
      api::WhyAnswer,
      api::NotebookAnswer,
      api::AttemptList,
      api::LogRange,
      api::GenerationList,
      api::EventList,
      api::StreamHello,
      api::StreamTouched,
      api::ImageList,
      api::ImageRequest,
      api::BlobQuery,
      api::BlobMissing,
      api::TokenRequest,
      api::TokenAnswer,
      api::TokenList,
      api::NotifyRequest,
      api::NotifyAnswer,
      api::NotifyList,
      api::NotifyConfirm,
      api::Notification,
      Quota,
      api::QuotaRequest,
      api::QuotaList,
      api::TelemetryList,
      api::Whoami,
      api::SignInOffer,
      api::SignInBegin,
      api::SignInBegun,
      api::SignInFinish,
      api::DeviceSignIn,
      api::DeviceFinish,
      api::DeviceAnswer,
      api::VersionAnswer,
      api::HealthAnswer>(components);
  return components;
}

}  // namespace rn::coordinator
