// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api.h"

#include <algorithm>
#include <cctype>

#include <nlohmann/json.hpp>

#include "coordinator/api_schema.h"

namespace rn::coordinator {

namespace {

using nlohmann::json;

json reference(std::string_view schema) {
  return {{"$ref", "#/components/schemas/" + std::string(schema)}};
}

json content_of(std::string_view schema) {
  if (schema == "bytes")
    return {{"application/octet-stream", {{"schema", {{"type", "string"}, {"format", "binary"}}}}}};
  if (schema == "page") return {{"text/html", {{"schema", {{"type", "string"}}}}}};
  if (schema == "events") return {{"text/event-stream", {{"schema", {{"type", "string"}}}}}};
  if (schema == "text") return {{"text/plain", {{"schema", {{"type", "string"}}}}}};
  return {{"application/json", {{"schema", reference(schema)}}}};
}

json parameter(std::string_view name, std::string_view place) {
  return {
      {"name", name},
      {"in", place},
      {"required", place == "path"},
      {"schema", {{"type", "string"}}}};
}

json parameters_of(const Route& route) {
  json list = json::array();
  for (std::size_t at = route.pattern.find('{'); at != std::string_view::npos;
       at = route.pattern.find('{', at + 1)) {
    const std::size_t end = route.pattern.find('}', at);
    list.push_back(parameter(route.pattern.substr(at + 1, end - at - 1), "path"));
  }
  for (const auto name : route.query) list.push_back(parameter(name, "query"));
  if (route.id == "submitJob") list.push_back(parameter("Idempotency-Key", "header"));
  if (route.id == "streamEvents") list.push_back(parameter("Last-Event-ID", "header"));
  return list;
}

json security_of(Access access) {
  const json token = {{"token", json::array()}};
  const json node = {{"nodeCertificate", json::array()}};
  switch (access) {
    case Access::kPublic:
      return json::array();
    case Access::kNode:
      return json::array({node});
    case Access::kViewerOrNode:
    case Access::kUserOrNode:
      return json::array({token, node});
    case Access::kViewer:
    case Access::kUser:
    case Access::kOwner:
    case Access::kAdmin:
      return json::array({token});
  }
  return json::array();
}

std::string role_text(Access access) {
  switch (access) {
    case Access::kPublic:
      return "Anybody.";
    case Access::kNode:
      return "Nodes, by their client certificate.";
    case Access::kViewer:
      return "Role viewer or higher.";
    case Access::kUser:
      return "Role user or higher.";
    case Access::kOwner:
      return "Role owner or higher.";
    case Access::kAdmin:
      return "Role admin.";
    case Access::kViewerOrNode:
      return "Role viewer or higher, and nodes.";
    case Access::kUserOrNode:
      return "Role user or higher, and nodes.";
  }
  return "";
}

std::string success_of(const Route& route) {
  for (const std::string_view upgrade :
       {"connectAgent", "connectTunnels", "forwardPort", "visitGuest"})
    if (route.id == upgrade) return "101";
  if (route.id == "openDashboard" || route.id == "returnFromSignIn") return "303";
  const bool creates = route.id == "submitJob" || route.id == "addImage" ||
                       route.id == "makeToken" || route.id == "finishSignIn" ||
                       route.id == "addNotification";
  if (creates) return "201";
  return route.answer.empty() && route.method != "HEAD" && route.id != "showOpenapi" ? "204"
                                                                                     : "200";
}

json operation_of(const Route& route) {
  json operation = {
      {"operationId", route.id},
      {"summary", route.summary},
      {"description", role_text(route.access)},
      {"security", security_of(route.access)}};
  if (const json parameters = parameters_of(route); !parameters.empty())
    operation["parameters"] = parameters;
  if (!route.request.empty())
    operation["requestBody"] = {{"required", true}, {"content", content_of(route.request)}};
  json good = {{"description", "Done."}};
  if (!route.answer.empty()) good["content"] = content_of(route.answer);
  operation["responses"] = {
      {success_of(route), good},
      {"default",
       {{"description", "What went wrong, and what to do next."},
        {"content", content_of("ErrorAnswer")}}}};
  if (route.id == "submitJob") operation["responses"]["200"] = good;
  return operation;
}

}  // namespace

json openapi_document(const std::string& version) {
  json paths = json::object();
  for (const Route& route : routes()) {
    std::string method(route.method);
    std::transform(method.begin(), method.end(), method.begin(), [](unsigned char c) {
      return static_cast<char>(std::tolower(c));
    });
    paths[std::string(route.pattern)][method] = operation_of(route);
  }
  return {
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "ReclaimNet coordinator"},
        {"version", version},
        {"description",
         "Every body is bounded, unknown fields are refused, and every error says what to do "
         "next."},
        {"license", {{"name", "Apache-2.0"}, {"identifier", "Apache-2.0"}}}}},
      {"paths", paths},
      {"components",
       {{"schemas", api_schemas()},
        {"securitySchemes",
         {{"token", {{"type", "http"}, {"scheme", "bearer"}}},
          {"nodeCertificate", {{"type", "mutualTLS"}}}}}}}};
}

}  // namespace rn::coordinator
