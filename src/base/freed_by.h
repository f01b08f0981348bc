// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rn {

/// Of a std::unique_ptr to what a C library frees: `std::unique_ptr<BIO, FreedBy<BIO_free_all>>`.
template <auto Free>
struct FreedBy {
  template <class T>
  void operator()(T* thing) const {
    Free(thing);
  }
};

}  // namespace rn
