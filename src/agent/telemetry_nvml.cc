// SPDX-License-Identifier: Apache-2.0
#include "agent/telemetry_nvml.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>

#include <dlfcn.h>

#include "base/log.h"

namespace rn::agent {

namespace {

// The part of NVML's stable C interface that is used here (nvml.h is not packaged without the
// driver).
using NvmlDevice = void*;
constexpr int kSuccess = 0;
constexpr int kInsufficientSize = 7;
constexpr int kGpuIsLost = 15;
constexpr int kUncorrectedErrors = 1;                      // nvmlMemoryErrorType_t
constexpr int kSinceDriverStart = 0;                       // nvmlEccCounterType_t
constexpr unsigned long long kXidEvents = 8;               // nvmlEventTypeXidCriticalError
constexpr unsigned long long kSlowedByHeat = 0x20 | 0x40;  // by software, by hardware
constexpr int kXidsAtALook = 64;
constexpr std::size_t kProcessesMax = 256;
constexpr std::uint64_t kNotAvailable = ~std::uint64_t{0};

struct NvmlUtilization {
  unsigned gpu;
  unsigned memory;
};

struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct NvmlMemoryV2 {  // nvmlMemory_v2_t; the caller sets the version
  unsigned version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};

static_assert(sizeof(NvmlMemoryV2) == 40);
constexpr unsigned kNvmlMemoryV2 = sizeof(NvmlMemoryV2) | (2U << 24);

struct NvmlProcessInfo {  // of the _v2 and _v3 calls
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};

static_assert(sizeof(NvmlProcessInfo) == 24);

struct NvmlEvent {  // nvmlEventData_t
  NvmlDevice device;
  unsigned long long type;
  unsigned long long data;
  unsigned gpu_instance;
  unsigned compute_instance;
};

static_assert(sizeof(NvmlEvent) == 32);

std::uint64_t mib(unsigned long long bytes) {
  return bytes >> 20;
}

struct DeviceMemory {
  std::uint64_t total_mib = 0;
  std::uint64_t reserved_mib = 0;
  std::uint64_t used_mib = 0;
};

}  // namespace

struct NvmlSampler::State {
  void* library = nullptr;
  std::vector<NvmlDevice> devices;

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, NvmlDevice*) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned) = nullptr;
  int (*uuid)(NvmlDevice, char*, unsigned) = nullptr;
  int (*capability)(NvmlDevice, int*, int*) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*memory_v2)(NvmlDevice, NvmlMemoryV2*) = nullptr;  // since driver 510
  int (*utilisation)(NvmlDevice, NvmlUtilization*) = nullptr;
  int (*temperature)(NvmlDevice, int, unsigned*) = nullptr;
  int (*power)(NvmlDevice, unsigned*) = nullptr;
  int (*compute)(NvmlDevice, unsigned*, NvmlProcessInfo*) = nullptr;
  int (*graphics)(NvmlDevice, unsigned*, NvmlProcessInfo*) = nullptr;
  int (*ecc)(NvmlDevice, int, int, unsigned long long*) = nullptr;
  int (*remapped)(NvmlDevice, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  int (*pages_pending)(NvmlDevice, int*) = nullptr;
  int (*slowed)(NvmlDevice, unsigned long long*) = nullptr;
  int (*make_events)(void**) = nullptr;
  int (*free_events)(void*) = nullptr;
  int (*watch_events)(NvmlDevice, unsigned long long, void*) = nullptr;
  int (*next_event)(void*, NvmlEvent*, unsigned) = nullptr;
  void* events = nullptr;  ///< none: the driver tells no numbers of errors

  ~State() {
    if (events != nullptr) free_events(events);
    if (shutdown != nullptr && !devices.empty()) shutdown();
    if (library != nullptr) dlclose(library);
  }

  template <class Function>
  bool find(Function& function, std::initializer_list<const char*> names) {
    for (const char* symbol : names) {
      function = reinterpret_cast<Function>(dlsym(library, symbol));
      if (function != nullptr) return true;
    }
    return false;
  }

  bool bind() {
    find(name, {"nvmlDeviceGetName"});
    find(uuid, {"nvmlDeviceGetUUID"});
    find(memory_v2, {"nvmlDeviceGetMemoryInfo_v2"});
    find(capability, {"nvmlDeviceGetCudaComputeCapability"});
    find(utilisation, {"nvmlDeviceGetUtilizationRates"});
    find(temperature, {"nvmlDeviceGetTemperature"});
    find(power, {"nvmlDeviceGetPowerUsage"});
    find(ecc, {"nvmlDeviceGetTotalEccErrors"});
    find(remapped, {"nvmlDeviceGetRemappedRows"});
    find(pages_pending, {"nvmlDeviceGetRetiredPagesPendingStatus"});
    find(
        slowed,
        {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"}
    );
    find(make_events, {"nvmlEventSetCreate"});
    find(free_events, {"nvmlEventSetFree"});
    find(watch_events, {"nvmlDeviceRegisterEvents"});
    find(next_event, {"nvmlEventSetWait_v2"});
    find(
        graphics,
        {"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"}
    );
    return find(init, {"nvmlInit_v2"}) && find(shutdown, {"nvmlShutdown"}) &&
           find(count, {"nvmlDeviceGetCount_v2"}) &&
           find(by_index, {"nvmlDeviceGetHandleByIndex_v2"}) &&
           find(memory, {"nvmlDeviceGetMemoryInfo"}) &&
           find(
               compute,
               {"nvmlDeviceGetComputeRunningProcesses_v3",
                "nvmlDeviceGetComputeRunningProcesses_v2"}
           );
  }

  /// What is in use is told as nvidia-smi does, without what the driver keeps for itself. An older
  /// driver, and a device that cannot tell the two apart, counts both as used. False if the device
  /// does not answer.
  bool memory_of(NvmlDevice device, DeviceMemory& out) const {
    NvmlMemoryV2 told{};
    told.version = kNvmlMemoryV2;
    if (memory_v2 != nullptr && memory_v2(device, &told) == kSuccess) {
      out = {mib(told.total), mib(told.reserved), mib(told.used)};
      return true;
    }
    NvmlMemory both{};
    if (memory(device, &both) != kSuccess) return false;
    out = {mib(both.total), 0, mib(both.used)};
    return true;
  }

  void begin_events() {
    if (make_events == nullptr || free_events == nullptr || watch_events == nullptr ||
        next_event == nullptr || make_events(&events) != kSuccess) {
      events = nullptr;
      return;
    }
    for (NvmlDevice device : devices) {
      if (device != nullptr) (void)watch_events(device, kXidEvents, events);
    }
  }

  /// Those since the last call.
  std::map<NvmlDevice, std::vector<std::uint32_t>> new_xids() const {
    std::map<NvmlDevice, std::vector<std::uint32_t>> xids;
    NvmlEvent event{};
    for (int i = 0; events != nullptr && i < kXidsAtALook; ++i) {
      if (next_event(events, &event, 0) != kSuccess) break;
      if (event.type == kXidEvents)
        xids[event.device].push_back(static_cast<std::uint32_t>(event.data));
    }
    return xids;
  }

  /// All of it without the numbers of errors.
  GpuSigns signs_of(NvmlDevice device) const {
    GpuSigns signs;
    NvmlMemory both{};
    signs.is_lost = memory(device, &both) == kGpuIsLost;
    if (signs.is_lost) return signs;
    unsigned long long number = 0;
    if (ecc != nullptr && ecc(device, kUncorrectedErrors, kSinceDriverStart, &number) == kSuccess)
      signs.uncorrected = number;
    unsigned corrected = 0;
    unsigned uncorrected = 0;
    unsigned is_pending = 0;
    unsigned has_failed = 0;
    if (remapped != nullptr &&
        remapped(device, &corrected, &uncorrected, &is_pending, &has_failed) == kSuccess) {
      signs.is_remap_failed = has_failed != 0;
      signs.needs_reset = is_pending != 0;
    }
    int pages = 0;
    if (pages_pending != nullptr && pages_pending(device, &pages) == kSuccess && pages != 0)
      signs.needs_reset = true;
    if (slowed != nullptr && slowed(device, &number) == kSuccess)
      signs.is_slowed_by_heat = (number & kSlowedByHeat) != 0;
    return signs;
  }

  /// pid → bytes; a process with both a compute and a graphics context counts once. False if the
  /// device does not answer.
  bool processes(NvmlDevice device, std::map<unsigned, std::uint64_t>& out) const {
    for (auto* const call : {compute, graphics}) {
      if (call == nullptr) continue;
      std::array<NvmlProcessInfo, kProcessesMax> infos{};
      unsigned number = infos.size();
      const int result = call(device, &number, infos.data());
      if (result != kSuccess && result != kInsufficientSize) {
        if (call == compute) return false;
        continue;
      }
      for (unsigned i = 0; i < std::min<unsigned>(number, infos.size()); ++i) {
        const std::uint64_t used = infos[i].used_bytes == kNotAvailable ? 0 : infos[i].used_bytes;
        std::uint64_t& known = out[infos[i].pid];
        known = std::max(known, used);
      }
    }
    return true;
  }
};

NvmlSampler::NvmlSampler(std::unique_ptr<State> state) : state_(std::move(state)) {}

NvmlSampler::~NvmlSampler() = default;

Result<std::unique_ptr<NvmlSampler>> NvmlSampler::open(const std::string& library) {
  auto state = std::make_unique<State>();
  state->library = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (state->library == nullptr && library.find('/') != std::string::npos) {
    const char* const why = dlerror();  // begins with the path
    return fail(
        ErrorCode::kInvalid,
        "nvml_library: " + std::string(why == nullptr ? library.c_str() : why),
        "the agent's user must be able to read it; without the line the driver's own is taken"
    );
  }
  if (state->library == nullptr)
    return fail(ErrorCode::kNotFound, "there is no " + library + " (no NVIDIA driver)");
  if (!state->bind())
    return fail(
        ErrorCode::kUnsupported,
        library + " lacks calls that are needed",
        "update the NVIDIA driver"
    );
  if (state->init() != kSuccess)
    return fail(
        ErrorCode::kUnavailable,
        "NVML does not start",
        "nvidia-smi shows why; after a driver update the machine needs a reboot"
    );
  unsigned number = 0;
  if (state->count(&number) != kSuccess) number = 0;
  if (number > kMaxGpus) {
    log::warning("telemetry.gpus_left_out", {{"from", kMaxGpus}, {"to", number - 1}});
    number = kMaxGpus;
  }
  for (unsigned i = 0; i < number; ++i) {
    NvmlDevice device = nullptr;
    if (state->by_index(i, &device) != kSuccess) device = nullptr;
    state->devices.push_back(device);
  }
  state->begin_events();
  return std::make_unique<NvmlSampler>(std::move(state));
}

std::vector<Gpu> NvmlSampler::gpus() const {
  std::vector<Gpu> out;
  for (std::size_t i = 0; i < state_->devices.size(); ++i) {
    Gpu gpu;
    gpu.index = static_cast<std::uint32_t>(i);
    NvmlDevice const device = state_->devices[i];
    if (device != nullptr) {
      std::array<char, 96> text{};
      if (state_->name != nullptr && state_->name(device, text.data(), text.size()) == kSuccess)
        gpu.model = text.data();
      if (state_->uuid != nullptr && state_->uuid(device, text.data(), text.size()) == kSuccess)
        gpu.uuid = text.data();
      int major = 0;
      int minor = 0;
      if (state_->capability != nullptr && state_->capability(device, &major, &minor) == kSuccess)
        gpu.compute_capability = std::to_string(major) + "." + std::to_string(minor);
      DeviceMemory memory;
      if (state_->memory_of(device, memory)) gpu.memory_mib = memory.total_mib;
    }
    out.push_back(std::move(gpu));
  }
  return out;
}

std::vector<GpuTelemetry> NvmlSampler::sample(const std::function<bool(pid_t)>& is_guest) const {
  std::vector<GpuTelemetry> out;
  for (std::size_t i = 0; i < state_->devices.size(); ++i) {
    GpuTelemetry gpu;
    gpu.index = static_cast<std::uint32_t>(i);
    NvmlDevice const device = state_->devices[i];
    DeviceMemory memory;
    std::map<unsigned, std::uint64_t> processes;
    if (device == nullptr || !state_->memory_of(device, memory) ||
        !state_->processes(device, processes)) {
      gpu.is_wedged = true;
    } else {
      gpu.memory_used_mib = memory.used_mib;
      gpu.memory_reserved_mib = memory.reserved_mib;
      NvmlUtilization rates{};
      if (state_->utilisation != nullptr && state_->utilisation(device, &rates) == kSuccess)
        gpu.utilisation_percent = rates.gpu;
      unsigned value = 0;
      if (state_->temperature != nullptr && state_->temperature(device, 0, &value) == kSuccess)
        gpu.temperature_c = static_cast<std::int32_t>(value);
      if (state_->power != nullptr && state_->power(device, &value) == kSuccess)
        gpu.power_mw = value;
      std::uint64_t foreign_bytes = 0;
      for (const auto& [pid, bytes] : processes) {
        if (is_guest(static_cast<pid_t>(pid))) continue;
        ++gpu.foreign_processes;
        foreign_bytes += bytes;
      }
      gpu.foreign_vram_mib = mib(foreign_bytes);
    }
    out.push_back(gpu);
  }
  return out;
}

std::vector<GpuSigns> NvmlSampler::signs() const {
  const auto xids = state_->new_xids();
  std::vector<GpuSigns> out;
  for (std::size_t i = 0; i < state_->devices.size(); ++i) {
    NvmlDevice const device = state_->devices[i];
    GpuSigns one;
    if (device != nullptr) one = state_->signs_of(device);
    one.index = static_cast<std::uint32_t>(i);
    if (const auto told = xids.find(device); told != xids.end()) one.xids = told->second;
    out.push_back(std::move(one));
  }
  return out;
}

bool is_in_group(const std::string& root, pid_t pid, const std::string& guest_group) {
  std::ifstream file(root + "/proc/" + std::to_string(pid) + "/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.find("/" + guest_group) != std::string::npos) return true;
  }
  return false;
}

}  // namespace rn::agent
