// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/crypto.h"
#include "model/checkpoint.h"

// Ed25519 signatures over the CBOR of a structure whose own signature field is empty, behind a word
// that names its kind ("reclaimnet receipt v1", NUL): a signature of one kind of thing never
// verifies as another's.
namespace rn {

Receipt signed_receipt(Receipt receipt, const crypto::SigningKey& holder);
bool verify_receipt(const Receipt& receipt, const crypto::PublicKey& holder);

Ticket signed_ticket(Ticket ticket, const crypto::SigningKey& coordinator);
bool verify_ticket(const Ticket& ticket, const crypto::PublicKey& coordinator);

}  // namespace rn
