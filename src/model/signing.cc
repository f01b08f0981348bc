// SPDX-License-Identifier: Apache-2.0
#include "model/signing.h"

#include <algorithm>
#include <string_view>

#include "model/codec.h"

namespace rn {

namespace {

constexpr std::string_view kReceiptPurpose = "reclaimnet receipt v1";
constexpr std::string_view kTicketPurpose = "reclaimnet ticket v1";

template <class T>
Blob unsigned_message(T value, std::string_view purpose) {
  value.signature.clear();
  const Blob body = to_cbor(value);
  Blob message(purpose.begin(), purpose.end());
  message.push_back(0);
  message.insert(message.end(), body.begin(), body.end());
  return message;
}

template <class T>
T with_signature(T value, const crypto::SigningKey& key, std::string_view purpose) {
  const crypto::Signature signature = crypto::sign(key, unsigned_message(value, purpose));
  value.signature.assign(signature.begin(), signature.end());
  return value;
}

template <class T>
bool verifies(const T& value, const crypto::PublicKey& key, std::string_view purpose) {
  crypto::Signature signature{};
  if (value.signature.size() != signature.size()) return false;
  std::copy(value.signature.begin(), value.signature.end(), signature.begin());
  return crypto::verify(key, unsigned_message(value, purpose), signature);
}

}  // namespace

Receipt signed_receipt(Receipt receipt, const crypto::SigningKey& holder) {
  return with_signature(std::move(receipt), holder, kReceiptPurpose);
}

bool verify_receipt(const Receipt& receipt, const crypto::PublicKey& holder) {
  return verifies(receipt, holder, kReceiptPurpose);
}

Ticket signed_ticket(Ticket ticket, const crypto::SigningKey& coordinator) {
  return with_signature(std::move(ticket), coordinator, kTicketPurpose);
}

bool verify_ticket(const Ticket& ticket, const crypto::PublicKey& coordinator) {
  return verifies(ticket, coordinator, kTicketPurpose);
}

}  // namespace rn
