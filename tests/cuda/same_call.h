// SPDX-License-Identifier: Apache-2.0
// Whether a function as we declare it takes and returns what a library's does (C++17).
#pragma once

#include <type_traits>

// The same value as an argument of a call: a pointer, structs or whole numbers of
// one size.
template <class A, class B>
constexpr bool same_value() {
  if (std::is_pointer_v<A> || std::is_pointer_v<B>)
    return std::is_pointer_v<A> && std::is_pointer_v<B>;
  if (std::is_class_v<A> || std::is_class_v<B>)
    return std::is_class_v<A> && std::is_class_v<B> && sizeof(A) == sizeof(B);
  constexpr bool whole =
      (std::is_integral_v<A> || std::is_enum_v<A>)&&(std::is_integral_v<B> || std::is_enum_v<B>);
  return whole && sizeof(A) == sizeof(B);
}

template <class Ours, class Theirs>
struct same_call : std::false_type {};
template <class R, class... A, class S, class... B>
struct same_call<R (*)(A...), S (*)(B...)> {
  static constexpr bool arguments() {
    if constexpr (sizeof...(A) == sizeof...(B)) {
      return (same_value<A, B>() && ...);
    } else {
      return false;
    }
  }
  static constexpr bool value = same_value<R, S>() && arguments();
};

template <class Ours, class Theirs>
constexpr bool same = same_call<Ours, Theirs>::value;
