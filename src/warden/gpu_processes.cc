// SPDX-License-Identifier: Apache-2.0
#include "warden/gpu_processes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include <dlfcn.h>

namespace rn::warden {
namespace {

/// The part of NVML's stable C interface that is used here (nvml.h is not packaged without the
/// driver).
using NvmlDevice = void*;
constexpr int kNvmlSuccess = 0;
constexpr int kNvmlInsufficientSize = 7;
constexpr int kNvmlDriverNotLoaded = 9;
constexpr std::size_t kMaxProcessesPerGpu = 256;
constexpr std::size_t kUuidSize = 96;  ///< NVML_DEVICE_UUID_V2_BUFFER_SIZE
constexpr std::uint64_t kNotAvailable = ~std::uint64_t{0};

struct NvmlProcessInfo {  // nvmlProcessInfo_t of the _v2 and _v3 calls
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};

static_assert(sizeof(NvmlProcessInfo) == 24);

struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device_count)(unsigned*) = nullptr;
  int (*device_by_index)(unsigned, NvmlDevice*) = nullptr;
  int (*compute_processes)(NvmlDevice, unsigned*, NvmlProcessInfo*) = nullptr;
  int (*graphics_processes)(NvmlDevice, unsigned*, NvmlProcessInfo*) = nullptr;  ///< may be missing
  int (*uuid)(NvmlDevice, char*, unsigned) = nullptr;                            ///< may be missing
};

template <class Function>
bool find(void* library, std::initializer_list<const char*> names, Function& function) {
  for (const char* name : names) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function != nullptr) return true;
  }
  return false;
}

Result<std::vector<GpuProcess>> read_device(
    unsigned gpu, NvmlDevice device, int (*call)(NvmlDevice, unsigned*, NvmlProcessInfo*)
) {
  std::array<NvmlProcessInfo, kMaxProcessesPerGpu> infos{};
  unsigned count = infos.size();
  const int result = call(device, &count, infos.data());
  if (result != kNvmlSuccess && result != kNvmlInsufficientSize) {
    return fail(
        ErrorCode::kUnavailable, "NVML cannot list the processes of GPU " + std::to_string(gpu)
    );
  }
  std::vector<GpuProcess> processes;
  for (unsigned i = 0; i < std::min<unsigned>(count, infos.size()); ++i) {
    const std::uint64_t used = infos[i].used_bytes == kNotAvailable ? 0 : infos[i].used_bytes;
    processes.push_back({gpu, static_cast<pid_t>(infos[i].pid), used});
  }
  return processes;
}

Result<Nvml> load(const std::string& library) {
  // NOTE: never closed; NVML's threads and our own may outlive any handle.
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return fail(ErrorCode::kNotFound, "no " + library + ": no NVIDIA driver here");
  Nvml nvml;
  const bool is_complete =
      find(handle, {"nvmlInit_v2"}, nvml.init) && find(handle, {"nvmlShutdown"}, nvml.shutdown) &&
      find(handle, {"nvmlDeviceGetCount_v2"}, nvml.device_count) &&
      find(handle, {"nvmlDeviceGetHandleByIndex_v2"}, nvml.device_by_index) &&
      find(
          handle,
          {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"},
          nvml.compute_processes
      );
  if (!is_complete)
    return fail(ErrorCode::kUnsupported, library + " lacks calls that every driver since 450 has");
  find(
      handle,
      {"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"},
      nvml.graphics_processes
  );
  find(handle, {"nvmlDeviceGetUUID"}, nvml.uuid);
  return nvml;
}

struct Opened {
  Nvml nvml;
  std::vector<NvmlDevice> devices;
};

/// Empty where the driver does not say.
std::string uuid_of(const Nvml& nvml, NvmlDevice device) {
  std::array<char, kUuidSize> text{};
  if (nvml.uuid == nullptr || nvml.uuid(device, text.data(), text.size()) != kNvmlSuccess)
    return {};
  text.back() = '\0';
  return text.data();
}

Result<Opened> open_library(const std::string& library) {
  Opened opened;
  RN_TRY(opened.nvml, load(library));
  const int result = opened.nvml.init();
  if (result == kNvmlDriverNotLoaded)
    return fail(ErrorCode::kNotFound, "the NVIDIA driver is not loaded", "run nvidia-smi");
  if (result != kNvmlSuccess) {
    return fail(
        ErrorCode::kUnavailable,
        "NVML does not start: code " + std::to_string(result),
        "run nvidia-smi"
    );
  }
  unsigned count = 0;
  bool is_readable = opened.nvml.device_count(&count) == kNvmlSuccess;
  for (unsigned i = 0; is_readable && i < count; ++i) {
    NvmlDevice device = nullptr;
    is_readable = opened.nvml.device_by_index(i, &device) == kNvmlSuccess;
    opened.devices.push_back(device);
  }
  if (is_readable) return opened;
  opened.nvml.shutdown();
  return fail(ErrorCode::kUnavailable, "NVML does not show the GPUs", "run nvidia-smi");
}

/// NVML calls may hang with the driver, so they run on a thread that can be left behind.
class NvmlProcesses final : public GpuProcesses {
 public:
  explicit NvmlProcesses(Opened opened) : shared_(std::make_shared<Shared>()) {
    std::thread([shared = shared_, opened = std::move(opened)] {
      serve(*shared, opened);
      opened.nvml.shutdown();
    }).detach();
  }

  /// Starts NVML on that thread, too: what is asked before it has is answered when it has.
  explicit NvmlProcesses(const std::string& library) : shared_(std::make_shared<Shared>()) {
    std::thread([shared = shared_, library] {
      const auto opened = open_library(library);
      if (!opened && opened.error().code == ErrorCode::kNotFound) shared->has_no_driver = true;
      serve(*shared, opened);
      if (opened) opened->nvml.shutdown();
    }).detach();
  }

  ~NvmlProcesses() override {
    // NOTE: the thread is detached and owns the shared state with us: one that hangs in the driver
    // stays behind.
    const std::lock_guard lock(shared_->mutex);
    shared_->is_stopping = true;
    shared_->changed.notify_all();
  }

  Result<std::vector<GpuProcess>> list(milliseconds limit) override {
    // Without waiting for a thread of ordinary precedence: an order has a higher one.
    if (shared_->has_no_driver) return std::vector<GpuProcess>{};
    std::unique_lock lock(shared_->mutex);
    if (shared_->is_asked) return hanging();
    shared_->is_asked = true;
    shared_->changed.notify_all();
    if (!shared_->changed.wait_for(lock, limit, [&] { return !shared_->is_asked; }))
      return hanging();
    return shared_->answer;
  }

  Result<std::string> uuid(std::uint32_t gpu, milliseconds limit) override {
    RN_CHECK(list(limit));  // NVML has started
    const std::lock_guard lock(shared_->mutex);
    if (gpu >= shared_->uuids.size())
      return fail(
          ErrorCode::kNotFound,
          "the driver shows no GPU " + std::to_string(gpu),
          "nvidia-smi -L lists those that there are"
      );
    if (shared_->uuids[gpu].empty())
      return fail(
          ErrorCode::kUnsupported, "the driver does not say what GPU " + std::to_string(gpu) + " is"
      );
    return shared_->uuids[gpu];
  }

 private:
  struct Shared {
    std::atomic<bool> has_no_driver = false;
    std::mutex mutex;  ///< guards all below
    std::condition_variable changed;
    bool is_asked = false;
    bool is_stopping = false;
    Result<std::vector<GpuProcess>> answer;
    std::vector<std::string> uuids;  ///< of all devices; empty where NVML has not started
  };

  static tl::unexpected<Error> hanging() {
    return fail(
        ErrorCode::kTimeout,
        "the GPU driver does not answer",
        "look at dmesg; the node may need a reboot"
    );
  }

  static void serve(Shared& shared, const Result<Opened>& opened) {
    std::vector<std::string> uuids;
    if (opened)
      for (NvmlDevice device : opened->devices) uuids.push_back(uuid_of(opened->nvml, device));
    std::unique_lock lock(shared.mutex);
    shared.uuids = std::move(uuids);
    for (;;) {
      shared.changed.wait(lock, [&] { return shared.is_asked || shared.is_stopping; });
      if (shared.is_stopping) return;
      lock.unlock();
      auto answer = opened ? read_all(opened->nvml, opened->devices) : without(opened.error());
      lock.lock();
      shared.answer = std::move(answer);
      shared.is_asked = false;
      shared.changed.notify_all();
    }
  }

  /// Without a driver nobody holds anything; one that refuses may.
  static Result<std::vector<GpuProcess>> without(const Error& error) {
    if (error.code == ErrorCode::kNotFound) return std::vector<GpuProcess>{};
    return fail(error);
  }

  static Result<std::vector<GpuProcess>> read_all(
      const Nvml& nvml, const std::vector<NvmlDevice>& devices
  ) {
    std::vector<GpuProcess> all;
    for (unsigned gpu = 0; gpu < devices.size(); ++gpu) {
      for (auto* call : {nvml.compute_processes, nvml.graphics_processes}) {
        if (call == nullptr) continue;
        RN_TRY(const auto some, read_device(gpu, devices[gpu], call));
        all.insert(all.end(), some.begin(), some.end());
      }
    }
    const auto place = [](const GpuProcess& p) { return std::pair(p.gpu, p.pid); };
    std::sort(all.begin(), all.end(), [&](const auto& a, const auto& b) {
      return std::tuple(a.gpu, a.pid, b.used_bytes) < std::tuple(b.gpu, b.pid, a.used_bytes);
    });
    const auto is_same = [&](const auto& a, const auto& b) { return place(a) == place(b); };
    all.erase(std::unique(all.begin(), all.end(), is_same), all.end());
    return all;
  }

  std::shared_ptr<Shared> shared_;
};

class NoGpus final : public GpuProcesses {
 public:
  Result<std::vector<GpuProcess>> list(milliseconds) override { return std::vector<GpuProcess>{}; }

  Result<std::string> uuid(std::uint32_t gpu, milliseconds) override {
    return fail(ErrorCode::kNotFound, "there is no GPU " + std::to_string(gpu));
  }
};

}  // namespace

Result<std::unique_ptr<GpuProcesses>> open_nvml(const std::string& library) {
  RN_TRY(Opened opened, open_library(library));
  return std::unique_ptr<GpuProcesses>(std::make_unique<NvmlProcesses>(std::move(opened)));
}

std::unique_ptr<GpuProcesses> nvml_when_asked(const std::string& library) {
  return std::make_unique<NvmlProcesses>(library);
}

std::unique_ptr<GpuProcesses> no_gpus() {
  return std::make_unique<NoGpus>();
}

}  // namespace rn::warden
