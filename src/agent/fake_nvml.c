/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library with NVML's interface that replays a recording: the text file named by RN_FAKE_NVML, one device a
 * line: name uuid major minor total_mib used_mib util temp_c power_mw {pid:mib ...} [reserved:mib] [older]. What is
 * reserved is the driver's own, which the first version of the memory query counts as used; "older" has no other
 * version. A name of "gone" answers every query with NVML_ERROR_GPU_IS_LOST (15). [ecc:errors] are those that were not
 * corrected, [remap_failed], [remap_pending], [page_pending] what became of its memory, [hot] slows it down, and each
 * [xid:number] is told once. Read anew at each query, so that a test may change it.
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
	int is_older, has_remap_failed, is_remap_pending, is_page_pending, is_hot;
	unsigned long long ecc;
	unsigned xids, xid[PROCESSES];
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
			d->has_remap_failed |= strcmp(rest, "remap_failed") == 0;
			d->is_remap_pending |= strcmp(rest, "remap_pending") == 0;
			d->is_page_pending |= strcmp(rest, "page_pending") == 0;
			d->is_hot |= strcmp(rest, "hot") == 0;
			sscanf(rest, "ecc:%llu", &d->ecc);
			if (d->xids < PROCESSES && sscanf(rest, "xid:%u", &d->xid[d->xids]) == 1)
				d->xids++;
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

int nvmlDeviceGetTotalEccErrors(void *h, int type, int counter, unsigned long long *errors)
{
	struct device *d = get(h);
	if (!d)
		return LOST;
	*errors = type == 1 && counter == 0 ? d->ecc : 0; /* uncorrected, volatile */
	return 0;
}

int nvmlDeviceGetRemappedRows(void *h, unsigned *corrected, unsigned *uncorrected, unsigned *is_pending,
			      unsigned *has_failed)
{
	struct device *d = get(h);
	if (!d)
		return LOST;
	*corrected = *uncorrected = 0;
	*is_pending = (unsigned)d->is_remap_pending;
	*has_failed = (unsigned)d->has_remap_failed;
	return 0;
}

int nvmlDeviceGetRetiredPagesPendingStatus(void *h, int *is_pending)
{
	struct device *d = get(h);
	if (!d)
		return LOST;
	*is_pending = d->is_page_pending;
	return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, unsigned long long *reasons)
{
	struct device *d = get(h);
	if (!d)
		return LOST;
	*reasons = 0x4 | (d->is_hot ? 0x40 : 0); /* a cap of its power, which is no sickness */
	return 0;
}

struct event {
	void *device;
	unsigned long long type, data;
	unsigned gpu_instance, compute_instance;
};

static int events;
static unsigned told[DEVICES];
static int is_watched[DEVICES];

int nvmlEventSetCreate(void **set)
{
	*set = &events;
	return 0;
}

int nvmlEventSetFree(void *set)
{
	memset(told, 0, sizeof told);
	memset(is_watched, 0, sizeof is_watched);
	return set == &events ? 0 : 2;
}

int nvmlDeviceRegisterEvents(void *h, unsigned long long types, void *set)
{
	if (set != &events || types != 8)
		return 2; /* NVML_ERROR_INVALID_ARGUMENT */
	is_watched[(struct device *)h - devices] = 1;
	return 0;
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned timeout_ms)
{
	unsigned i;

	if (set != &events || timeout_ms != 0 || load() != 0)
		return 2;
	for (i = 0; i < count; i++) {
		if (told[i] > devices[i].xids)
			told[i] = devices[i].xids;
		if (!is_watched[i] || told[i] == devices[i].xids)
			continue;
		event->device = &devices[i];
		event->type = 8;
		event->data = devices[i].xid[told[i]++];
		return 0;
	}
	return 10; /* NVML_ERROR_TIMEOUT */
}
