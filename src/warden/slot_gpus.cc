// SPDX-License-Identifier: Apache-2.0
#include "warden/slot_gpus.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

namespace rn::warden {
namespace {

static_assert(sizeof(SlotGpus) == kSlots * sizeof(std::uint64_t), "the file's layout");
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "others read the file");

void* map_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return MAP_FAILED;
  void* const mapped =
      ftruncate(fd, sizeof(SlotGpus)) == 0
          ? mmap(nullptr, sizeof(SlotGpus), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
          : MAP_FAILED;
  const int error = errno;
  close(fd);
  errno = error;
  return mapped;
}

}  // namespace

SlotGpusFile::SlotGpusFile(const std::string& path) {
  void* const mapped = map_file(path);
  if (mapped != MAP_FAILED) {
    masks_ = static_cast<SlotGpus*>(mapped);
  } else {
    log::warning("warden.no_masks_of_slots", {{"path", path}, {"why", std::strerror(errno)}});
    own_ = std::make_unique<SlotGpus>();
    masks_ = own_.get();
  }
  for (auto& mask : *masks_) mask = 0;
}

SlotGpusFile::~SlotGpusFile() {
  if (own_ == nullptr) munmap(masks_, sizeof(SlotGpus));
}

}  // namespace rn::warden
