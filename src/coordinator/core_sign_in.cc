// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_sign_in.h"

#include <string_view>
#include <utility>

#include "base/log.h"
#include "coordinator/core_commands.h"

namespace rn::coordinator {

namespace {

/// Tokens of sign-ins begin so; others with "t-".
constexpr std::string_view kSignInPrefix = "s-";
constexpr std::size_t kSignInsOfUser = 200;
/// Of the table: administrators go on making join tokens and users' when the others are used up.
constexpr std::size_t kLeftToAdministrators = 1000;
/// What was begun by a token (a notebook's session) is over a week after its end at the latest, so
/// that its id can be another one's then, and the table does not grow with each day. Of one that
/// was revoked the end that it would have had counts.
constexpr std::int64_t kIdRestsMs = 8LL * 86'400'000;
constexpr std::int64_t kToldAfterMs = 30LL * 86'400'000;

/// The user as the table has them; who is not in it is put in if a group says so.
Result<UserRow> user_signing_in(State& state, const SignIn& command) {
  const auto found = state.users.find(command.user);
  if (found == state.users.end()) {
    if (command.lab_if_new.empty())
      return fail(
          ErrorCode::kDenied,
          "you are signed in as " + command.user.str() + ", who has no account at this site",
          "ask " + command.contact + " for one"
      );
    const UserRow made{
        .user = command.user,
        .lab = command.lab_if_new,
        .role = Role::kUser,
        .created_wall_ms = state.wall_ms()};
    state.users[command.user] = made;
    state.write(PutUser{made});
    return made;
  }
  if (found->second.role == Role::kAdmin && !command.may_be_admin)
    return fail(
        ErrorCode::kDenied,
        command.user.str() +
            " is an administrator, and those sign in here only if the operator "
            "named them",
        "use your token; or ask " + command.contact +
            " to name you in the coordinator's oidc: users"
    );
  return found->second;
}

/// An id of an old sign-in of the user that ended; empty if there is none. kExhausted.
Result<std::string> id_to_use_again(const State& state, const UserId& user) {
  std::size_t count = 0;
  std::string again;
  const std::int64_t now = state.wall_ms();
  for (auto at = state.tokens.lower_bound(std::string(kSignInPrefix));
       at != state.tokens.end() && at->first.starts_with(kSignInPrefix);
       ++at) {
    const TokenRow& row = at->second;
    if (row.user != user) continue;
    ++count;
    const bool is_over = row.is_revoked || (row.expires_wall_ms != 0 && now >= row.expires_wall_ms);
    if (is_over && now - row.expires_wall_ms > kIdRestsMs) again = row.id;
  }
  if (again.empty() && count >= kSignInsOfUser)
    return fail(
        ErrorCode::kExhausted,
        "you have signed in " + std::to_string(count) + " times within eight days",
        "use a token that you have; the old ones make room in a few days"
    );
  return again;
}

}  // namespace

Result<Answer> sign_in(State& state, const Caller& caller, const SignIn& command) {
  if (caller.role != Role::kAdmin)
    return fail(ErrorCode::kDenied, "only the coordinator itself takes a provider's word", "");
  if (!is_name(command.user.str()) || command.ttl_s == 0)
    return fail(ErrorCode::kInvalid, "user: expected a short name of letters, digits, -_.@", "");
  if (command.user == caller.user)
    return fail(
        ErrorCode::kDenied,
        command.user.str() + " is what the coordinator calls itself here, and nobody's name",
        "ask " + command.contact + " to name you otherwise in the coordinator's oidc: users"
    );
  RN_TRY(std::string id, id_to_use_again(state, command.user));
  if (id.empty() && state.tokens.size() + kLeftToAdministrators >= kMaxTokens)
    return fail(ErrorCode::kExhausted, "too many tokens", "ask " + command.contact);
  RN_TRY(const UserRow user, user_signing_in(state, command));
  if (id.empty()) {
    id = std::string(kSignInPrefix) + state.rng.hex(8);
  } else {
    state.token_by_secret.erase(state.tokens.at(id).secret_hash);
  }
  TokenRow row;
  row.id = id;
  row.user = user.user;
  row.lab = user.lab;
  row.role = user.role;
  row.expires_wall_ms = state.wall_ms() + std::int64_t{command.ttl_s} * 1000;
  TokenMade made = put_token(state, std::move(row));
  log::info("token.signed_in", {{"user", user.user.str()}, {"token", made.token.id}});
  EventRow event;
  event.kind = "token.signed_in";
  event.message = made.token.id + " for " + user.user.str() + " as " +
                  std::string(to_string(user.role)) + ", by the identity provider";
  event.user = user.user;
  event.lab = user.lab;
  event.at_wall_ms = state.wall_ms();
  state.write(AppendEvent{std::move(event)});
  return made;
}

bool is_told_by(const TokenRow& token, std::int64_t now_wall_ms) {
  if (token.kind != TokenKind::kUser || token.is_revoked) return false;
  const std::int64_t more_ms = token.id.starts_with(kSignInPrefix) ? kToldAfterMs : 0;
  return token.expires_wall_ms == 0 || token.expires_wall_ms + more_ms > now_wall_ms;
}

}  // namespace rn::coordinator
