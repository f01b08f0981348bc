// SPDX-License-Identifier: Apache-2.0
#include "warden/gpu_driver.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "io/read_text.h"

namespace rn::warden {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKernelModule = "/proc/driver/nvidia/gpus";

/// Of the driver, what a computing program loads. Those after the first two may be missing: the
/// set differs from driver to driver.
constexpr const char* kDriverLibraries[] = {
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-nvvm70.so.4",
    "libnvidia-gpucomp.so",
    "libcudadebugger.so.1",
};
constexpr std::size_t kNeededLibraries = 2;

/// Debian's and Ubuntu's folders, Red Hat's, and where machines of clouds have it.
constexpr const char* kDriverFolders[] = {
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
};

/// The file itself, below `root`, for a name that is mostly a link; empty where there is none.
std::string find_library(const std::string& root, const std::string& name) {
  for (const char* folder : kDriverFolders) {
    std::error_code failed;
    const fs::path real = fs::canonical(root + folder + "/" + name, failed);
    if (failed || !fs::is_regular_file(real, failed)) continue;
    return real.string().substr(root.size());
  }
  return {};
}

/// "Device Minor:    0" → "0", of the lines of one card's file; empty where there is none.
std::string field_of(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + ":")) continue;
    const auto first = line.find_first_not_of(" \t", name.size() + 1);
    if (first == std::string::npos) return {};
    return line.substr(first, line.find_last_not_of(" \t\r") + 1 - first);
  }
  return {};
}

Result<std::string> device_of(const std::string& root, const std::string& uuid) {
  std::error_code failed;
  for (const auto& card : fs::directory_iterator(root + kKernelModule, failed)) {
    const std::string about = io::read_text(card.path() / "information");
    if (field_of(about, "GPU UUID") != uuid) continue;
    const std::string minor = field_of(about, "Device Minor");
    if (!minor.empty() && minor.find_first_not_of("0123456789") == std::string::npos)
      return "/dev/nvidia" + minor;
  }
  return fail(
      ErrorCode::kNotFound,
      "the NVIDIA kernel module shows no GPU " + uuid,
      "nvidia-smi -L lists those that there are"
  );
}

}  // namespace

Result<GpuDriver> find_gpu_driver(const std::vector<std::string>& uuids, const std::string& root) {
  GpuDriver found;
  if (uuids.empty()) return found;
  for (const std::string& uuid : uuids) {
    RN_TRY(std::string device, device_of(root, uuid));
    found.devices.push_back(std::move(device));
  }
  for (const char* shared : {"/dev/nvidiactl", "/dev/nvidia-uvm"})
    found.devices.emplace_back(shared);
  for (const std::string& device : found.devices) {
    std::error_code failed;
    if (fs::exists(root + device, failed)) continue;
    return fail(
        ErrorCode::kNotFound,
        "there is no " + device,
        "run nvidia-modprobe -u -c0, or any program of CUDA's, as root; it makes them"
    );
  }
  std::size_t number = 0;
  for (const char* name : kDriverLibraries) {
    const std::string file = find_library(root, name);
    if (file.empty() && number < kNeededLibraries)
      return fail(
          ErrorCode::kNotFound,
          std::string("the driver's ") + name + " is in no folder of libraries",
          "install the driver's libraries (Debian: libcuda1 and libnvidia-ml1)"
      );
    if (!file.empty())
      found.libraries.emplace_back(file, std::string(kGpuDriverFolder) + "/" + name);
    ++number;
  }
  return found;
}

}  // namespace rn::warden
