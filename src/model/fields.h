// SPDX-License-Identifier: Apache-2.0
#pragma once

// One table of fields per structure serves REST (JSON), the wire (CBOR) and the database (JSON
// bodies). See ADR 0002.
//
//   struct Lease { JobId job; std::uint32_t ttl_ms = 0; RN_FIELDS(Lease, job, ttl_ms) };
//
// A member's name is its name on the wire, so a quantity carries its unit last in its name. Every
// field may be missing and then keeps its default: that is what makes versions compatible one back
// and one forward.

#include <string_view>

namespace rn {

template <class Class, class Member>
struct Field {
  std::string_view name;
  Member Class::*member;
};

template <class Class, class Member>
constexpr Field<Class, Member> field(std::string_view name, Member Class::*member) {
  return {name, member};
}

/// Specialised by RN_ENUM: the words of an enumeration, in the order of its values from 0.
template <class Enum>
struct EnumWords;

}  // namespace rn

#define RN_PARENS ()
#define RN_EXPAND(...) RN_EXPAND3(RN_EXPAND3(RN_EXPAND3(RN_EXPAND3(__VA_ARGS__))))
#define RN_EXPAND3(...) RN_EXPAND2(RN_EXPAND2(RN_EXPAND2(RN_EXPAND2(__VA_ARGS__))))
#define RN_EXPAND2(...) RN_EXPAND1(RN_EXPAND1(RN_EXPAND1(RN_EXPAND1(__VA_ARGS__))))
#define RN_EXPAND1(...) __VA_ARGS__
#define RN_EACH(macro, type, ...) __VA_OPT__(RN_EXPAND(RN_EACH_STEP(macro, type, __VA_ARGS__)))
#define RN_EACH_STEP(macro, type, first, ...) \
  macro(type, first) __VA_OPT__(, RN_EACH_AGAIN RN_PARENS(macro, type, __VA_ARGS__))
#define RN_EACH_AGAIN() RN_EACH_STEP
#define RN_FIELD_OF(type, name) ::rn::field(#name, &type::name)

/// Inside a structure: names the fields that travel, and makes the structure comparable.
/// `T::with_fields(visit)` calls visit(Field…) with one argument per field and returns its result.
/// NOTE: a template, so that a file which only includes the structure pays nothing for it.
#define RN_FIELDS(Type, ...)                                   \
  using Described = Type;                                      \
  template <class Visit>                                       \
  static constexpr decltype(auto) with_fields(Visit&& visit) { \
    return visit(RN_EACH(RN_FIELD_OF, Type, __VA_ARGS__));     \
  }                                                            \
  friend bool operator==(const Type&, const Type&) = default;

/// At namespace rn scope, after the enumeration: RN_ENUM(JobState, "submitted", "queued", ...).
#define RN_ENUM(Type, ...)                                           \
  template <>                                                        \
  struct EnumWords<Type> {                                           \
    static constexpr std::string_view kName = #Type;                 \
    static constexpr std::string_view kWords[] = {__VA_ARGS__};      \
  };                                                                 \
  inline std::string_view to_string(Type value) {                    \
    return EnumWords<Type>::kWords[static_cast<std::size_t>(value)]; \
  }
