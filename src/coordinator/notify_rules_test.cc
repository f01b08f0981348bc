// SPDX-License-Identifier: Apache-2.0
#include "coordinator/notify_rules.h"

#include <gtest/gtest.h>

#include "coordinator/notify_config.h"
#include "coordinator/store_fixture.h"

namespace rn::coordinator {
namespace {

constexpr std::int64_t kThen = 1'700'000'000'000;

NotifyRow a_rule(std::vector<NotifyWord> on = usual_words()) {
  NotifyRow row;
  row.id = "w-0123456789abcdef";
  row.user = UserId("ann");
  row.lab = LabId("lab-a");
  row.mail = "ann@example.org";
  row.on = std::move(on);
  row.is_confirmed = true;
  row.created_wall_ms = row.heard_from_wall_ms = kThen - 1000;
  return row;
}

StoredEvent a_job_event(const std::string& kind, const std::string& user = "ann") {
  StoredEvent event;
  event.seq = 17;
  event.row = an_event(kind, "j-1");
  event.row.user = UserId(user);
  return event;
}

StoredEvent a_node_event(const std::string& kind, const std::string& lab = "lab-a") {
  StoredEvent event;
  event.seq = 18;
  event.row = an_event(kind, "");
  event.row.node = NodeId("n-1");
  event.row.lab = LabId(lab);
  return event;
}

NotifyStanding everybody() {
  NotifyStanding standing;
  standing.users = {UserId("ann"), UserId("bob")};
  standing.owners = {{UserId("ann"), LabId("lab-a")}};
  standing.hosts[NodeId("n-1")] = "pc7";
  return standing;
}

bool is_told(const NotifyRow& rule, const StoredEvent& event, const NotifyStanding& standing) {
  const auto word = word_of(event.row.kind);
  return word && is_wanted(rule, *word, event.row, standing);
}

TEST(NotifyRules, a_user_is_told_of_own_jobs_and_only_what_was_asked_for) {
  const NotifyRow rule = a_rule({NotifyWord::kFinished});

  EXPECT_TRUE(is_told(rule, a_job_event("job.succeeded"), everybody()));
  EXPECT_FALSE(is_told(rule, a_job_event("job.succeeded", "bob"), everybody()));
  EXPECT_FALSE(is_told(rule, a_job_event("job.failed"), everybody()));
  EXPECT_FALSE(is_told(rule, a_job_event("job.placed"), everybody()));
}

TEST(NotifyRules, nobody_is_told_who_has_no_token_any_more) {
  NotifyStanding standing = everybody();
  standing.users.erase(UserId("ann"));
  standing.owners.clear();

  EXPECT_FALSE(is_told(a_rule(), a_job_event("job.failed"), standing));
  EXPECT_FALSE(is_told(a_rule({NotifyWord::kLost}), a_node_event("node.lost"), standing));
}

TEST(NotifyRules, owners_are_told_that_a_machine_is_lent_and_wanted_and_that_a_gpu_is_sick) {
  const NotifyRow rule = a_rule({NotifyWord::kLent, NotifyWord::kWanted, NotifyWord::kSick});

  for (const char* kind : {"node.lent", "node.wanted", "gpu.sick", "gpu.well"}) {
    EXPECT_TRUE(is_told(rule, a_node_event(kind), everybody())) << kind;
    EXPECT_FALSE(is_told(rule, a_node_event(kind, "lab-b"), everybody())) << kind;
    EXPECT_FALSE(is_told(a_rule(), a_node_event(kind), everybody())) << kind << " is not usual";
  }
  StoredEvent sick = a_node_event("gpu.sick");
  sick.row.message = "GPU 1 is sick: it has fallen off the bus";
  const auto told = notification_of(rule, NotifyWord::kSick, sick, {}, everybody());
  EXPECT_EQ(told.subject, "ReclaimNet: a GPU of pc7");
  EXPECT_NE(told.text.find("GPU 1 is sick: it has fallen off the bus"), std::string::npos);
  EXPECT_NE(told.text.find("next: reclaim-agent gpu ok N"), std::string::npos);
  const auto lent =
      notification_of(rule, NotifyWord::kLent, a_node_event("node.lent"), {}, everybody());
  EXPECT_EQ(lent.subject, "ReclaimNet: pc7 is lent");
}

TEST(NotifyRules, a_job_that_would_lose_work_is_told_to_its_user_in_its_nodes_words) {
  const std::string words =
      "its last checkpoint is more than 3 h old on a node whose owner comes back every 6 h on "
      "average; next: let it save more often";
  StoredEvent event = a_job_event("checkpoint.trouble");
  event.row.message = words;

  EXPECT_TRUE(is_told(a_rule(), event, everybody())) << "usual";
  EXPECT_FALSE(is_told(a_rule({NotifyWord::kFinished}), event, everybody()));
  EXPECT_FALSE(is_told(a_rule(), a_job_event("checkpoint.trouble", "bob"), everybody()));
  const auto told = notification_of(a_rule(), NotifyWord::kUnsaved, event, {}, everybody());
  EXPECT_EQ(told.what, "unsaved");
  EXPECT_EQ(told.subject, "ReclaimNet: job j-1 would lose work with its machine");
  EXPECT_NE(told.text.find(words), std::string::npos) << told.text;
  EXPECT_NE(told.text.find("next: reclaim why j-1"), std::string::npos) << told.text;
}

TEST(NotifyRules, owners_are_told_of_their_own_labs_machines) {
  const NotifyRow rule = a_rule({NotifyWord::kReclaimed, NotifyWord::kLost});

  EXPECT_TRUE(is_told(rule, a_node_event("reclaim.cleared"), everybody()));
  EXPECT_TRUE(is_told(rule, a_node_event("node.lost"), everybody()));
  EXPECT_FALSE(is_told(rule, a_node_event("node.lost", "lab-b"), everybody()));
  EXPECT_FALSE(is_told(rule, a_node_event("reclaim.cut"), everybody()));
}

TEST(NotifyRules, an_address_that_is_not_confirmed_is_told_nothing) {
  NotifyRow rule = a_rule();
  rule.is_confirmed = false;

  EXPECT_FALSE(is_told(rule, a_job_event("job.failed"), everybody()));
}

TEST(NotifyRules, what_came_before_the_rule_is_not_told) {
  NotifyRow rule = a_rule();
  rule.heard_from_wall_ms = kThen + 1;

  EXPECT_FALSE(is_told(rule, a_job_event("job.failed"), everybody()));
  rule.job = JobId("j-1");  // of one job, what counts is where it stands among the events
  EXPECT_TRUE(is_told(rule, a_job_event("job.failed"), everybody()));
  rule.job = JobId("j-2");
  EXPECT_FALSE(is_told(rule, a_job_event("job.failed"), everybody()));
}

TEST(NotifyRules, a_notification_says_which_job_on_which_machine_and_what_to_do) {
  Job job = a_job("j-1", 12).job;
  job.spec.name = "train";
  StoredEvent event = a_job_event("job.displaced");
  event.row.node = NodeId("n-1");
  event.row.message = "its owner took pc7 back; goes on from generation 4";

  const auto one = notification_of(a_rule(), NotifyWord::kMoved, event, job, everybody());

  EXPECT_EQ(one.subject, "ReclaimNet: job 12 (train) lost its machine and goes on elsewhere");
  EXPECT_EQ(
      one.text,
      "ReclaimNet: job 12 (train) lost its machine and goes on elsewhere\n"
      "its owner took pc7 back; goes on from generation 4\n"
      "2023-11-14 22:13 UTC\n"
      "next: reclaim why 12"
  );
  EXPECT_EQ(one.id, "17.w-0123456789abcdef") << "the same when it is sent again";
  EXPECT_EQ(one.what, "moved");
  EXPECT_EQ(one.host, "pc7");
}

TEST(NotifyRules, what_was_held_back_is_told_as_numbers) {
  NotifyRow rule = a_rule();
  for (int i = 0; i < 12; ++i) hold_back(rule, NotifyWord::kFinished, kThen);
  for (int i = 0; i < 5; ++i) hold_back(rule, NotifyWord::kFailed, kThen + 1);

  EXPECT_EQ(summary_of(rule, kThen).subject, "ReclaimNet: 17 more: 12 finished, 5 failed");
}

// ---- mail

std::string header_of(const std::string& mail, const std::string& name) {
  const std::size_t at = mail.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const std::size_t begin = at + name.size() + 4;
  return mail.substr(begin, mail.find("\r\n", begin) - begin);
}

TEST(MailText, a_job_name_with_line_breaks_makes_no_header) {
  Job job = a_job("j-1", 12).job;
  job.spec.name = "x\r\nBcc: eve@example.org\r\n\r\nhello";
  const auto one =
      notification_of(a_rule(), NotifyWord::kFailed, a_job_event("job.failed"), job, everybody());

  const std::string mail = mail_text("site@example.org", "ann@example.org", one);

  EXPECT_EQ(header_of(mail, "Bcc"), "") << mail;
  EXPECT_EQ(mail.find("\r\n\r\n"), mail.rfind("\r\n\r\n")) << "one empty line, before the body";
  EXPECT_EQ(header_of(mail, "To"), "<ann@example.org>");
  EXPECT_EQ(header_of(mail, "Date"), "Tue, 14 Nov 2023 22:13:20 +0000");
  EXPECT_EQ(header_of(mail, "Message-ID"), "<17.w-0123456789abcdef@example.org>");
}

TEST(MailText, a_subject_beyond_ascii_is_encoded_in_words_that_are_short_enough) {
  EXPECT_EQ(header_text("plain text"), "plain text");
  EXPECT_EQ(header_text("Zürich"), "=?UTF-8?B?WsO8cmljaA==?=");
  std::string umlauts;
  for (int i = 0; i < 60; ++i) umlauts += "ü";

  const std::string encoded = header_text(umlauts);

  for (std::size_t at = 0; at < encoded.size();) {
    const std::size_t end = std::min(encoded.find("\r\n ", at), encoded.size());
    EXPECT_LE(end - at, 75u);
    EXPECT_EQ(encoded.substr(at, 10), "=?UTF-8?B?");
    at = end + 3;
  }
}

TEST(HookSignature, is_the_hmac_of_time_and_body) {
  // printf '1700000000.{}' | openssl dgst -sha256 -hmac secret
  EXPECT_EQ(
      hook_signature("secret", "1700000000", "{}"),
      "sha256=b8569b78799ff9e3cbff0fc2d63a33a2b57f3282abd07c37ae5e8e7d79a5f163"
  );
  EXPECT_NE(
      hook_signature("secret", "1700000000", "{}"), hook_signature("secret", "1700000001", "{}")
  );
  EXPECT_NE(
      hook_signature("secret", "1700000000", "{}"), hook_signature("other", "1700000000", "{}")
  );
}

// ---- receivers

TEST(NotifyConfig, an_address_is_nothing_but_an_address) {
  for (const char* good : {"ann@example.org", "a.b+c_d@mail.uni-x.example", "o'neil@x.org"})
    EXPECT_TRUE(check_address(good).has_value()) << good;
  for (const char* bad :
       {"",
        "ann",
        "@example.org",
        "ann@",
        "ann@10.1.2.3",
        "ann@[10.1.2.3]",
        "ann@exa mple.org",
        "ann@example.org\r\nRCPT TO:<eve@example.org>",
        "ann@example.org>",
        "ann@example.org,eve@example.org",
        "\"a b\"@example.org",
        "a..b@example.org",
        ".a@example.org"})
    EXPECT_FALSE(check_address(bad).has_value()) << bad;
  EXPECT_FALSE(check_address(std::string("ann@example.org\0x", 17)).has_value());
  EXPECT_FALSE(check_address(std::string(65, 'a') + "@example.org").has_value());
}

TEST(NotifyConfig, an_origin_has_one_form) {
  EXPECT_EQ(
      origin_of("https://Chat.Example.org/hooks/x?y=1").value(), "https://chat.example.org:443"
  );
  EXPECT_EQ(origin_of("http://127.0.0.1:9000").value(), "http://127.0.0.1:9000");
  EXPECT_EQ(origin_of("https://[fd00::7]/x").value(), "https://[fd00::7]:443");
  for (const char* bad :
       {"ftp://example.org",
        "https://ann:pw@example.org",
        "https://example.org@evil.org",
        "https://exa%6dple.org",
        "https://example.org\\@evil.org",
        "https://",
        "example.org",
        "https://example.org/a#b"})
    EXPECT_FALSE(origin_of(bad).has_value()) << bad;
}

TEST(NotifyConfig, what_an_operator_wrote_is_checked_before_anything_starts) {
  const auto complaint_of = [](const NotifyConfig& given) {
    NotifyConfig config = given;
    const Status status = finish_notify_config(config);
    return status ? std::string() : status.error().message;
  };
  SmtpConfig smtp;
  smtp.url = "smtp://mail.example.org:587";
  smtp.from = "site@example.org";

  EXPECT_EQ(complaint_of({smtp, {"https://chat.example.org"}, ""}), "");
  SmtpConfig wrong = smtp;
  wrong.url = "mail.example.org";
  EXPECT_EQ(
      complaint_of({wrong, {}, ""}), "smtp: url: 'mail.example.org' is no address of a mail server"
  );
  wrong = smtp;
  wrong.user = "site";
  EXPECT_EQ(complaint_of({wrong, {}, ""}), "smtp: user and password_file go together");
  wrong.password_file = "/etc/password";
  wrong.requires_tls = false;
  EXPECT_NE(complaint_of({wrong, {}, ""}).find("in the clear"), std::string::npos);
  wrong = smtp;
  wrong.from = "nobody";
  EXPECT_EQ(complaint_of({wrong, {}, ""}), "smtp: from: 'nobody' is no address of mail");
  EXPECT_NE(
      complaint_of({std::nullopt, {"https://chat.example.org/hooks"}, ""}).find("more than scheme"),
      std::string::npos
  );
}

}  // namespace
}  // namespace rn::coordinator
