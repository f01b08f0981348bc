// SPDX-License-Identifier: Apache-2.0
#include "agent/renewal.h"

#include <algorithm>

namespace rn::agent {

namespace {

constexpr int kPartOfLife = 7;
constexpr int kTriesInLife = 168;
constexpr nanoseconds kRetryMin = std::chrono::seconds(1);

}  // namespace

nanoseconds Renewal::life_of(const io::CertificateInfo& certificate) {
  const milliseconds whole = certificate.not_after - certificate.not_before;
  return whole > kBackdating ? whole - kBackdating : whole;
}

void Renewal::loaded(const io::CertificateInfo& certificate, Now now) {
  life_ = life_of(certificate);
  const nanoseconds left = certificate.not_after - now.wall;
  const nanoseconds part = life_ / kPartOfLife;
  due_ = now.boot + std::clamp(left - (life_ - part), nanoseconds(0), part);
}

void Renewal::renewed(const io::CertificateInfo& certificate, Now now) {
  life_ = life_of(certificate);
  due_ = now.boot + life_ / kPartOfLife;
}

void Renewal::tried(Now now) {
  due_ = now.boot + std::max(kRetryMin, life_ / kTriesInLife);
}

}  // namespace rn::agent
