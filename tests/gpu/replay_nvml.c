/* SPDX-License-Identifier: Apache-2.0 */
/* A libnvidia-ml that answers, byte by byte, what record_nvml.py recorded of a real one. The file RN_NVML_RECORDING is
 * the recording, and the first word of the file RN_NVML_STATE is the state that counts now; both are read anew at each
 * call, so that a test goes on from state to state. What is not recorded of a device is not supported. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  kSuccess = 0,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kVersionMismatch = 25,
  kUnknown = 999, /* the test names a file or a state that is not there, or the recording is broken */
};

enum { kBytesMax = 4096, kLineMax = 2 * kBytesMax + 256, kProcessBytes = 24, kMemoryV2Bytes = 40 };

struct answer {
  int code;
  size_t size;
  unsigned char bytes[kBytesMax];
};

static int is_broken(const char* what, const char* which) {
  fprintf(stderr, "replay_nvml: %s%s\n", what, which ? which : "");
  return kUnknown;
}

static int read_state(char state[64]) {
  const char* path = getenv("RN_NVML_STATE");
  FILE* file = path ? fopen(path, "r") : NULL;
  int words = 0;

  if (!file) return is_broken("RN_NVML_STATE names no file: ", path);
  words = fscanf(file, "%63s", state);
  fclose(file);
  return words == 1 ? kSuccess : is_broken("no state in ", path);
}

static int decode(const char* hex, struct answer* answer) {
  unsigned byte = 0;

  answer->size = 0;
  if (strcmp(hex, "-") == 0) return kSuccess;
  for (; hex[0] && hex[1]; hex += 2) {
    if (answer->size == kBytesMax || sscanf(hex, "%2x", &byte) != 1) break;
    answer->bytes[answer->size++] = (unsigned char)byte;
  }
  return *hex ? is_broken("no hex: ", hex) : kSuccess;
}

/* The line of this call, before the first state (what holds in all of them) or in this one. */
static int find(FILE* file, const char* state, const char* call, unsigned device, struct answer* answer) {
  static const char kState[] = "state ";
  char line[kLineMax], name[96], hex[kLineMax];
  unsigned number = 0;
  int is_now = 1, was_there = 0, code = 0;

  while (fgets(line, sizeof line, file)) {
    if (strncmp(line, kState, sizeof kState - 1) == 0) {
      is_now = sscanf(line, "state %95s", name) == 1 && strcmp(name, state) == 0;
      was_there = was_there || is_now;
      continue;
    }
    if (!is_now || line[0] == '#' || sscanf(line, "%95s %u %d %s", name, &number, &code, hex) != 4) continue;
    if (strcmp(name, call) != 0 || number != device) continue;
    answer->code = code;
    return decode(hex, answer);
  }
  answer->code = kNotSupported;
  return was_there ? kSuccess : is_broken("the recording has no state ", state);
}

/* The code recorded for the call, and in `answer` its bytes. */
static int ask(const char* call, unsigned device, struct answer* answer) {
  const char* path = getenv("RN_NVML_RECORDING");
  FILE* file = path ? fopen(path, "r") : NULL;
  char state[64] = "";
  int failed = 0;

  if (!file) return kDriverNotLoaded;
  failed = read_state(state);
  if (!failed) failed = find(file, state, call, device, answer);
  fclose(file);
  return failed ? failed : answer->code;
}

/* A device's handle is its number and one, so that none is NULL. */
static unsigned device_of(const void* handle) {
  return (unsigned)((size_t)handle - 1);
}

/* A structure of this size, as it was. */
static int give(const char* call, const void* handle, void* out, size_t size) {
  struct answer answer;
  const int code = ask(call, device_of(handle), &answer);

  if (code) return code;
  if (answer.size != size) return is_broken("another size than the caller's: ", call);
  memcpy(out, answer.bytes, size);
  return kSuccess;
}

static int give_text(const char* call, const void* handle, char* out, unsigned length) {
  struct answer answer;
  const int code = ask(call, device_of(handle), &answer);

  if (code) return code;
  if (answer.size > length) return kInsufficientSize;
  memcpy(out, answer.bytes, answer.size);
  return kSuccess;
}

static int give_processes(const char* call, const void* handle, unsigned* count, void* out) {
  struct answer answer;
  const unsigned room = *count;
  const int code = ask(call, device_of(handle), &answer);

  if (code) return code;
  if (answer.size < sizeof *count) return is_broken("no number of processes: ", call);
  memcpy(count, answer.bytes, sizeof *count);
  if (answer.size != sizeof *count + (size_t)*count * kProcessBytes) return is_broken("no whole list: ", call);
  if (*count > room) return kInsufficientSize;
  memcpy(out, answer.bytes + sizeof *count, (size_t)*count * kProcessBytes);
  return kSuccess;
}

int nvmlInit_v2(void) {
  unsigned count = 0;

  return give("nvmlDeviceGetCount_v2", (void*)1, &count, sizeof count);
}

int nvmlShutdown(void) {
  return kSuccess;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  return give("nvmlDeviceGetCount_v2", (void*)1, count, sizeof *count);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  unsigned count = 0;
  const int code = nvmlDeviceGetCount_v2(&count);

  if (code) return code;
  if (index >= count) return kInvalidArgument;
  *handle = (void*)((size_t)index + 1);
  return kSuccess;
}

int nvmlDeviceGetName(void* handle, char* text, unsigned length) {
  return give_text("nvmlDeviceGetName", handle, text, length);
}

int nvmlDeviceGetUUID(void* handle, char* text, unsigned length) {
  return give_text("nvmlDeviceGetUUID", handle, text, length);
}

int nvmlDeviceGetCudaComputeCapability(void* handle, int* major, int* minor) {
  int both[2] = {0, 0};
  const int code = give("nvmlDeviceGetCudaComputeCapability", handle, both, sizeof both);

  if (code) return code;
  *major = both[0];
  *minor = both[1];
  return kSuccess;
}

int nvmlDeviceGetMemoryInfo(void* handle, void* memory) {
  return give("nvmlDeviceGetMemoryInfo", handle, memory, 24);
}

/* The real one, too, refuses a structure whose version it does not know. */
int nvmlDeviceGetMemoryInfo_v2(void* handle, void* memory) {
  unsigned char recorded[kMemoryV2Bytes];
  const int code = give("nvmlDeviceGetMemoryInfo_v2", handle, recorded, sizeof recorded);

  if (code) return code;
  if (memcmp(memory, recorded, sizeof(unsigned)) != 0) return kVersionMismatch;
  memcpy(memory, recorded, sizeof recorded);
  return kSuccess;
}

int nvmlDeviceGetUtilizationRates(void* handle, void* rates) {
  return give("nvmlDeviceGetUtilizationRates", handle, rates, 8);
}

int nvmlDeviceGetTemperature(void* handle, int sensor, unsigned* value) {
  if (sensor != 0) return kInvalidArgument; /* 0: the one of the GPU */
  return give("nvmlDeviceGetTemperature", handle, value, sizeof *value);
}

int nvmlDeviceGetPowerUsage(void* handle, unsigned* value) {
  return give("nvmlDeviceGetPowerUsage", handle, value, sizeof *value);
}

int nvmlDeviceGetTotalEccErrors(void* handle, int type, int counter, unsigned long long* errors) {
  if (type != 1 || counter != 0) return kInvalidArgument; /* 1: not corrected, 0: since the driver's start */
  return give("nvmlDeviceGetTotalEccErrors", handle, errors, sizeof *errors);
}

int nvmlDeviceGetRemappedRows(void* handle, unsigned* corrected, unsigned* uncorrected, unsigned* is_pending,
                              unsigned* has_failed) {
  unsigned all[4] = {0, 0, 0, 0};
  const int code = give("nvmlDeviceGetRemappedRows", handle, all, sizeof all);

  if (code) return code;
  *corrected = all[0];
  *uncorrected = all[1];
  *is_pending = all[2];
  *has_failed = all[3];
  return kSuccess;
}

int nvmlDeviceGetRetiredPagesPendingStatus(void* handle, int* is_pending) {
  return give("nvmlDeviceGetRetiredPagesPendingStatus", handle, is_pending, sizeof *is_pending);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void* handle, unsigned long long* reasons) {
  return give("nvmlDeviceGetCurrentClocksThrottleReasons", handle, reasons, sizeof *reasons);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, void* processes) {
  return give_processes("nvmlDeviceGetComputeRunningProcesses_v3", handle, count, processes);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void* handle, unsigned* count, void* processes) {
  return give_processes("nvmlDeviceGetGraphicsRunningProcesses_v3", handle, count, processes);
}
