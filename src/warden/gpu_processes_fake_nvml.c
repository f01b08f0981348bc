/* SPDX-License-Identifier: Apache-2.0 */
/* A libnvidia-ml for tests: two GPUs with recorded processes. RN_FAKE_NVML chooses: "hang" never
 * answers a process list, "hang-at-start" never starts, "refuse" and "differ" do not start. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct process_info {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance;
  unsigned compute_instance;
};

static int is_mode(const char* mode) {
  const char* chosen = getenv("RN_FAKE_NVML");

  return chosen && strcmp(chosen, mode) == 0;
}

int nvmlInit_v2(void) {
  while (is_mode("hang-at-start")) usleep(1000);
  if (is_mode("differ")) return 18; /* library and driver */
  return is_mode("refuse") ? 9 /* driver not loaded */ : 0;
}

int nvmlShutdown(void) {
  return 0;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = (void*)(size_t)(index + 1);
  return 0;
}

int nvmlDeviceGetUUID(void* device, char* text, unsigned length) {
  snprintf(text, length, "GPU-recorded-%u", (unsigned)(size_t)device - 1);
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(
    void* device, unsigned* count, struct process_info* infos
) {
  while (is_mode("hang")) usleep(1000); /* until the test lets it go on, without a busy loop */
  if (device != (void*)1) {
    *count = 0;
    return 0;
  }
  infos[0] = (struct process_info){5000, 1073741824ull, ~0u, ~0u};
  infos[1] = (struct process_info){4711, ~0ull, ~0u, ~0u};
  *count = 2;
  return 0;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(
    void* device, unsigned* count, struct process_info* infos
) {
  *count = 1;
  infos[0] = (struct process_info){device == (void*)1 ? 5000 : 6000, 4096, ~0u, ~0u};
  return 0;
}
