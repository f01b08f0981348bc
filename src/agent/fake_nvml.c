/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library with NVML's interface that replays a recording: the text file named by RN_FAKE_NVML, one device a
 * line: name uuid major minor total_mib used_mib util temp_c power_mw {pid:mib ...} [reserved:mib] [older]. What is
 * reserved is the driver's own, which the first version of the memory query counts as used; "older" has no other
 * version. A name of "gone" answers every query with NVML_ERROR_GPU_IS_LOST (15). Read anew at each query, so that a
 * test may change it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES 8
#define PROCESSES 16

struct device {
	char name[64], uuid[64];
	int major, minor;
	unsigned long long total, used, reserved;
	int is_older;
	unsigned util, temp, power;
	unsigned processes;
	unsigned pids[PROCESSES];
	unsigned long long mib[PROCESSES];
};

static struct device devices[DEVICES];
static unsigned count;

static int load(void)
{
	const char *path = getenv("RN_FAKE_NVML");
	FILE *file = path ? fopen(path, "r") : NULL;
	char line[1024];

	if (!file)
		return 9; /* NVML_ERROR_DRIVER_NOT_LOADED */
	count = 0;
	while (count < DEVICES && fgets(line, sizeof line, file)) {
		struct device *d = &devices[count];
		int used = 0;
		char *rest;

		memset(d, 0, sizeof *d);
		if (sscanf(line, "%63s %63s %d %d %llu %llu %u %u %u%n", d->name, d->uuid, &d->major,
			   &d->minor, &d->total, &d->used, &d->util, &d->temp, &d->power, &used) < 9)
			continue;
		rest = strtok(line + used, " \n");
		while (rest && d->processes < PROCESSES) {
			if (sscanf(rest, "%u:%llu", &d->pids[d->processes], &d->mib[d->processes]) == 2)
				d->processes++;
			sscanf(rest, "reserved:%llu", &d->reserved);
			d->is_older |= strcmp(rest, "older") == 0;
			rest = strtok(NULL, " \n");
		}
		count++;
	}
	fclose(file);
	return 0;
}

static struct device *get(void *handle)
{
	struct device *d = handle;

	if (load() != 0 || strcmp(d->name, "gone") == 0)
		return NULL;
	return d;
}

#define LOST 15

int nvmlInit_v2(void) { return load(); }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **handle) { *handle = &devices[i]; return 0; }

int nvmlDeviceGetName(void *h, char *text, unsigned length)
{
	struct device *d = get(h);
	if (!d)
		return LOST;
	snprintf(text, length, "%s", d->name);
	return 0;
}

int nvmlDeviceGetUUID(void *h, char *text, unsigned length)
{
	struct device *d = get(h);
	if (!d)
		return LOST;
	snprintf(text, length, "%s", d->uuid);
	return 0;
}

int nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor)
{
	struct device *d = get(h);
	if (!d)
		return LOST;
	*major = d->major;
	*minor = d->minor;
	return 0;
}

int nvmlDeviceGetMemoryInfo(void *h, unsigned long long *memory)
{
	struct device *d = get(h);
	if (!d)
		return LOST;
	memory[0] = d->total << 20;
	memory[1] = (d->total - d->used - d->reserved) << 20;
	memory[2] = (d->used + d->reserved) << 20;
	return 0;
}

struct memory_v2 {
	unsigned version;
	unsigned long long total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo_v2(void *h, struct memory_v2 *memory)
{
	struct device *d = get(h);
	if (!d)
		return LOST;
	if (d->is_older)
		return 3; /* NVML_ERROR_NOT_SUPPORTED */
	if (memory->version != (sizeof *memory | 2u << 24))
		return 25; /* NVML_ERROR_ARGUMENT_VERSION_MISMATCH */
	memory->total = d->total << 20;
	memory->reserved = d->reserved << 20;
	memory->free = (d->total - d->used - d->reserved) << 20;
	memory->used = d->used << 20;
	return 0;
}

int nvmlDeviceGetUtilizationRates(void *h, unsigned *rates)
{
	struct device *d = get(h);
	if (!d)
		return LOST;
	rates[0] = d->util;
	rates[1] = 0;
	return 0;
}

int nvmlDeviceGetTemperature(void *h, int sensor, unsigned *value)
{
	struct device *d = get(h);
	if (!d || sensor != 0)
		return LOST;
	*value = d->temp;
	return 0;
}

int nvmlDeviceGetPowerUsage(void *h, unsigned *value)
{
	struct device *d = get(h);
	if (!d)
		return LOST;
	*value = d->power;
	return 0;
}

struct info {
	unsigned pid;
	unsigned long long bytes;
	unsigned gpu_instance, compute_instance;
};

int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, struct info *infos)
{
	struct device *d = get(h);
	unsigned i;

	if (!d)
		return LOST;
	for (i = 0; i < d->processes && i < *n; i++) {
		infos[i].pid = d->pids[i];
		infos[i].bytes = d->mib[i] << 20;
	}
	*n = i;
	return 0;
}
