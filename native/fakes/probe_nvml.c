/* A libnvidia-ml.so.1 whose devices are said by the environment, for tests/probe.
 *
 *   PROBE_NVML_INIT      status of nvmlInit_v2, 0 when unset
 *   PROBE_NVML_DO        "segfault" or "hang": what nvmlInit_v2 does instead
 *   PROBE_NVML_DEVICES   name|major|minor|MiB|uuid|part,part - separated by ';'
 *                        MiB 0: the memory cannot be asked; major 0: nothing can be asked;
 *                        a sixth field, even empty: MIG is enabled
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER = 9, GPU_LOST = 15 };

typedef struct {
    char name[96], uuid[80], parts[8][80];
    int major, minor, divided, part_count;
    unsigned long long mebibytes;
} device;
typedef struct {
    unsigned long long total, free, used;
} memory;

static device devices[16];
static unsigned int device_count;
/* Handles of parts: any address that is not a device's. */
static char part_handles[16][8];

static void read_device(char *text, device *into)
{
    char *fields[6] = {0};
    int count = 0;
    for (char *field; count < 6 && (field = strsep(&text, "|")) != NULL;)
        fields[count++] = field;
    snprintf(into->name, sizeof into->name, "%s", fields[0]);
    into->major = atoi(fields[1]);
    into->minor = atoi(fields[2]);
    into->mebibytes = strtoull(fields[3], NULL, 10);
    snprintf(into->uuid, sizeof into->uuid, "%s", fields[4]);
    into->divided = count == 6;
    if (count == 6)
        for (char *part; (part = strsep(&fields[5], ",")) != NULL;)
            if (*part)
                snprintf(into->parts[into->part_count++], 80, "%s", part);
}

int nvmlInit_v2(void)
{
    const char *act = getenv("PROBE_NVML_DO"), *status = getenv("PROBE_NVML_INIT");
    const char *said = getenv("PROBE_NVML_DEVICES");
    if (act && !strcmp(act, "segfault"))
        raise(SIGSEGV);
    if (act && !strcmp(act, "hang"))
        for (;;)
            pause();
    if (status && atoi(status))
        return atoi(status);
    char *text = strdup(said ? said : ""), *rest = text;
    for (char *one; (one = strsep(&rest, ";")) != NULL;)
        if (*one)
            read_device(one, &devices[device_count++]);
    free(text);
    return SUCCESS;
}

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int status)
{
    switch (status) {
    case DRIVER: return "Driver Not Loaded";
    case GPU_LOST: return "GPU is lost";
    case NOT_SUPPORTED: return "Not Supported";
    default: return "Unknown Error";
    }
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
    *count = device_count;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle)
{
    if (index >= device_count)
        return INVALID;
    *handle = &devices[index];
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(device *of, int *major, int *minor)
{
    if (!of->major)
        return GPU_LOST;
    *major = of->major;
    *minor = of->minor;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(device *of, memory *into)
{
    if (!of->mebibytes)
        return NOT_SUPPORTED;
    into->total = of->mebibytes << 20;
    return SUCCESS;
}

int nvmlDeviceGetName(device *of, char *buffer, unsigned int length)
{
    snprintf(buffer, length, "%s", of->name);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *of, char *buffer, unsigned int length)
{
    for (unsigned int index = 0; index < device_count; index++)
        for (int part = 0; part < devices[index].part_count; part++)
            if (of == &part_handles[index][part]) {
                snprintf(buffer, length, "%s", devices[index].parts[part]);
                return SUCCESS;
            }
    snprintf(buffer, length, "%s", ((device *)of)->uuid);
    return SUCCESS;
}

int nvmlDeviceGetMigMode(device *of, unsigned int *now, unsigned int *pending)
{
    *now = *pending = (unsigned int)of->divided;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(device *of, unsigned int *count)
{
    (void)of;
    *count = 7;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device *of, unsigned int index, void **handle)
{
    if ((int)index >= of->part_count)
        return NOT_FOUND;
    *handle = &part_handles[of - devices][index];
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = 12040;
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *buffer, unsigned int length)
{
    snprintf(buffer, length, "%s", "550.144.03");
    return SUCCESS;
}
