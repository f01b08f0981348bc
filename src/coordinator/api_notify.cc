// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api_answers.h"
#include "coordinator/core.h"
#include "coordinator/notify_desk.h"

namespace rn::coordinator {

namespace {

/// nullptr, and answered: they are off.
NotifyDesk* desk_of(const ApiContext& context, const io::Responder& responder) {
  if (context.notify == nullptr)
    responder.send_error(Error{
        ErrorCode::kUnavailable,
        "notifications are off: notify.db could not be opened",
        "the operator finds why in the coordinator's log (notify.off)"});
  return context.notify;
}

std::string rule_words(const api::NotifyRule& rule) {
  std::string words;
  for (const NotifyWord word : rule.on)
    words += (words.empty() ? "" : ", ") + std::string(to_string(word));
  const auto origin = rule.webhook.empty() ? std::string() : origin_of(rule.webhook).value_or("");
  return rule.id + " to " + (rule.mail.empty() ? origin : rule.mail) + " on " + words;
}

/// Into the audit log; who asked is answered all the same.
void audit_rule(
    ApiContext& context, const Caller& caller, const char* kind, const api::NotifyRule& rule
) {
  NoteJob note;
  note.owner = caller.user;
  note.lab = caller.lab;
  note.kind = kind;
  note.message = rule_words(rule);
  context.shell.command(Core::system_caller(), std::move(note), [](const Result<Answer>&) {});
}

void send_empty(const io::Responder& responder) {
  io::HttpResponse response;
  response.status = 204;
  responder.send(std::move(response));
}

void add_rule(
    ApiContext& context,
    NotifyDesk& desk,
    const Caller& caller,
    const api::NotifyRequest& body,
    const std::optional<Job>& job,
    const io::Responder& responder
) {
  on_worker(
      context,
      responder,
      [&desk, caller, body, job] { return desk.add(caller, body, job); },
      [&context, caller, responder](const api::NotifyAnswer& made) {
        audit_rule(context, caller, "notify.added", made.rule);
        answer(context, responder, made, 201);
      }
  );
}

}  // namespace

void add_notification(ApiContext& context, ApiRequest request, io::Responder responder) {
  NotifyDesk* const desk = desk_of(context, responder);
  if (desk == nullptr) return;
  api::NotifyRequest body;
  if (!read_body(request, responder, body)) return;
  if (body.job.empty())
    return add_rule(context, *desk, request.caller, body, std::nullopt, responder);
  request.path["id"] = body.job;
  with_job(
      context,
      request,
      responder,
      [&context, desk, caller = request.caller, body, responder](const Job& job, bool) {
        add_rule(context, *desk, caller, body, job, responder);
      }
  );
}

void list_notifications(ApiContext& context, ApiRequest request, io::Responder responder) {
  NotifyDesk* const desk = desk_of(context, responder);
  if (desk == nullptr) return;
  const bool all = query_flag(request, "all");
  on_worker(
      context,
      responder,
      [desk, caller = request.caller, all] { return desk->list(caller, all); },
      [&context, responder](const api::NotifyList& list) { answer(context, responder, list); }
  );
}

void confirm_notification(ApiContext& context, ApiRequest request, io::Responder responder) {
  NotifyDesk* const desk = desk_of(context, responder);
  if (desk == nullptr) return;
  api::NotifyConfirm body;
  if (!read_body(request, responder, body)) return;
  on_worker(
      context,
      responder,
      [desk, caller = request.caller, id = request.path.at("id"), code = body.code] {
        return desk->confirm(caller, id, code);
      },
      [&context, caller = request.caller, responder](const api::NotifyRule& rule) {
        audit_rule(context, caller, "notify.confirmed", rule);
        answer(context, responder, rule);
      }
  );
}

void test_notification(ApiContext& context, ApiRequest request, io::Responder responder) {
  NotifyDesk* const desk = desk_of(context, responder);
  if (desk == nullptr) return;
  on_worker(
      context,
      responder,
      [desk, caller = request.caller, id = request.path.at("id")] {
        return desk->test(caller, id);
      },
      [responder] { send_empty(responder); }
  );
}

void remove_notification(ApiContext& context, ApiRequest request, io::Responder responder) {
  NotifyDesk* const desk = desk_of(context, responder);
  if (desk == nullptr) return;
  on_worker(
      context,
      responder,
      [desk, caller = request.caller, id = request.path.at("id")] {
        return desk->remove(caller, id);
      },
      [&context, caller = request.caller, responder](const api::NotifyRule& rule) {
        audit_rule(context, caller, "notify.removed", rule);
        send_empty(responder);
      }
  );
}

}  // namespace rn::coordinator
