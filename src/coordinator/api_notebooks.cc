// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api_answers.h"
#include "coordinator/notebooks.h"
#include "io/url.h"

namespace rn::coordinator {

namespace {

constexpr std::uint32_t kInvitationLivesS = 600;

/// The name by which people reach the site, without a port: as the operator says, else as the
/// caller got here.
std::string site_host(const ApiContext& context, const io::HttpRequest& http) {
  std::string host(http.header("Host"));
  const auto asked = io::parse_url("https://" + host + "/");
  if (host.empty() || !asked) host = context.place;
  const auto url = io::parse_url(context.url.empty() ? "https://" + host : context.url);
  const std::string name = url ? url->host : host;
  return name.find(':') == std::string::npos ? name : "[" + name + "]";
}

void give_address(
    ApiContext& context, const ApiRequest& request, const io::Responder& responder, const Job& job
) {
  if (context.notebooks == nullptr)
    return responder.send_error(Error{
        ErrorCode::kUnsupported,
        "this site has no address for notebooks",
        "its operator sets notebooks_listen (docs/coordinator.md); `reclaim forward " +
            std::to_string(job.number) + " PORT` reaches a port of the job without it"});
  const auto invited = context.notebooks->invite(
      request.caller.user, parts_of_token(bearer_of(request.http)).id, job
  );
  if (!invited) return responder.send_error(invited.error());
  const std::string origin = "https://" + site_host(context, request.http) + ":" +
                             std::to_string(context.notebooks->port());
  api::NotebookAnswer body;
  body.url = origin + *invited;
  body.place = origin + notebook::folder_of(job.number) + "/";
  body.lives_s = kInvitationLivesS;
  body.port = Notebooks::port_in_guest(job).value_or(0);
  answer(context, responder, body);
}

}  // namespace

void open_notebook(ApiContext& context, ApiRequest request, io::Responder responder) {
  with_job(context, request, responder, [&context, request, responder](const Job& job, bool) {
    give_address(context, request, responder, job);
  });
}

}  // namespace rn::coordinator
