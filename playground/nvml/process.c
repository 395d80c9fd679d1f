/*
 * Process lists and per-process utilisation.
 *
 * As with the real driver a process that has ended is gone from every list, and a caller in another
 * pid namespace (a container without hostPID) gets no processes at all: pids mean nothing there.
 */
#include "process.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "session.h"

static bool same_pid_namespace(const struct state *state) {
    struct stat own;
    return !state->pid_namespace || stat("/proc/self/ns/pid", &own) != 0
        || own.st_ino == state->pid_namespace;
}

/* Clock ticks after boot at which `pid` started; 0 when it is gone or a zombie. The tick tells one
   process from the next that gets its number. */
static unsigned long long started(unsigned pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    char *at = strrchr(text, ')'); /* the command name may hold anything, even ')' */
    if (!at || !at[1] || at[2] == 'Z' || at[2] == 'X')
        return 0;
    for (int field = 2; field < 22 && at; field++)
        at = strchr(at + 1, ' ');
    unsigned long long ticks = 0;
    for (at = at ? at + 1 : ""; *at >= '0' && *at <= '9'; at++)
        ticks = ticks * 10 + (unsigned)(*at - '0');
    return ticks;
}

static bool holds(const struct process *process, const struct card *card) {
    return strcmp(process->uuid, card->uuid) == 0
        && (!process->start || started(process->pid) == process->start);
}

/* The totals of a card are true in every pid namespace. From another one nobody's end can be seen:
   there, what is written down counts. */
static bool counts(const struct process *process, const struct card *card, bool visible) {
    return strcmp(process->uuid, card->uuid) == 0 && (!visible || holds(process, card));
}

unsigned long long process_memory(const struct state *state, const struct card *card) {
    bool visible = same_pid_namespace(state);
    unsigned long long sum = 0;
    for (size_t i = 0; i < state->process_count; i++)
        if (counts(&state->processes[i], card, visible))
            sum += state->processes[i].memory_mib;
    return sum;
}

nvmlUtilization_t process_load(const struct state *state, const struct card *card) {
    bool visible = same_pid_namespace(state);
    nvmlUtilization_t load = {.gpu = card->gpu_util, .memory = card->memory_util};
    for (size_t i = 0; i < state->process_count; i++)
        if (counts(&state->processes[i], card, visible)) {
            load.gpu += state->processes[i].sm;
            load.memory += state->processes[i].mem;
        }
    load.gpu = load.gpu > 100 ? 100 : load.gpu;
    load.memory = load.memory > 100 ? 100 : load.memory;
    return load;
}

enum layout { SHORT, LONG };

static nvmlReturn_t list(const char *name, nvmlDevice_t device, const char *kind,
                         enum layout layout, unsigned *count, void *infos) {
    struct call call;
    unsigned found = 0;
    nvmlReturn_t result = call_enter_card(&call, name, device);
    if (result != NVML_SUCCESS)
        return result;
    if (!count)
        return call_leave(&call, NVML_ERROR_INVALID_ARGUMENT);
    unsigned room = infos ? *count : 0;
    for (size_t i = 0; same_pid_namespace(call.state) && i < call.state->process_count; i++) {
        const struct process *process = &call.state->processes[i];
        if (strcmp(process->kind, kind) != 0 || !holds(process, call.card))
            continue;
        unsigned long long bytes = process->memory_mib << 20;
        if (found < room && layout == SHORT)
            ((nvmlProcessInfo_v1_t *)infos)[found] =
                (nvmlProcessInfo_v1_t){.pid = process->pid, .usedGpuMemory = bytes};
        else if (found < room)
            ((nvmlProcessInfo_v2_t *)infos)[found] =
                (nvmlProcessInfo_v2_t){.pid = process->pid,
                                       .usedGpuMemory = bytes,
                                       .gpuInstanceId = NVML_NO_INSTANCE,
                                       .computeInstanceId = NVML_NO_INSTANCE};
        found++;
    }
    *count = found;
    return call_leave(&call, found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

#define LIST_CALLS(name, kind)                                                                     \
    API nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos) { \
        return list(__func__, device, kind, SHORT, count, infos);                                  \
    }                                                                                              \
    API nvmlReturn_t name##_v2(nvmlDevice_t device, unsigned int *count,                           \
                               nvmlProcessInfo_v2_t *infos) {                                      \
        return list(__func__, device, kind, LONG, count, infos);                                   \
    }                                                                                              \
    API nvmlReturn_t name##_v3(nvmlDevice_t device, unsigned int *count,                           \
                               nvmlProcessInfo_v2_t *infos) {                                      \
        return list(__func__, device, kind, LONG, count, infos);                                   \
    }

LIST_CALLS(nvmlDeviceGetComputeRunningProcesses, "compute")
LIST_CALLS(nvmlDeviceGetGraphicsRunningProcesses, "graphics")
LIST_CALLS(nvmlDeviceGetMPSComputeRunningProcesses, "mps")

/* The driver keeps one sample per period; its own is between 1/6 s and 1 s. */
static unsigned long long last_sample(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long tenths = (unsigned long long)now.tv_sec * 10;
    tenths += (unsigned long long)now.tv_nsec / 100000000;
    return tenths * 100000; /* microseconds */
}

/* Documented: a sample of each process "that had some non-zero utilization", newer than `since`. */
static bool sampled(const struct process *process, const struct card *card,
                    unsigned long long since) {
    return (process->sm || process->mem || process->enc || process->dec) && last_sample() > since
        && holds(process, card);
}

static nvmlReturn_t outcome(unsigned found, unsigned room) {
    if (found == 0)
        return NVML_ERROR_NOT_FOUND;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                 nvmlProcessUtilizationSample_t *samples,
                                                 unsigned int *count, unsigned long long since) {
    struct call call;
    unsigned found = 0;
    nvmlReturn_t result = call_enter_card(&call, __func__, device);
    if (result != NVML_SUCCESS)
        return result;
    if (!count)
        return call_leave(&call, NVML_ERROR_INVALID_ARGUMENT);
    unsigned room = samples ? *count : 0;
    for (size_t i = 0; same_pid_namespace(call.state) && i < call.state->process_count; i++) {
        const struct process *process = &call.state->processes[i];
        if (!sampled(process, call.card, since))
            continue;
        if (found < room)
            samples[found] = (nvmlProcessUtilizationSample_t){.pid = process->pid,
                                                              .timeStamp = last_sample(),
                                                              .smUtil = process->sm,
                                                              .memUtil = process->mem,
                                                              .encUtil = process->enc,
                                                              .decUtil = process->dec};
        found++;
    }
    *count = found;
    return call_leave(&call, outcome(found, room));
}

API nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                       nvmlProcessesUtilizationInfo_v1_t *info) {
    struct call call;
    unsigned found = 0;
    nvmlReturn_t result = call_enter_card(&call, __func__, device);
    if (result != NVML_SUCCESS)
        return result;
    if (!info)
        return call_leave(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (info->version != NVML_VERSION_OF(nvmlProcessesUtilizationInfo_v1_t, 1))
        return call_leave(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    unsigned room = info->procUtilArray ? info->processSamplesCount : 0;
    for (size_t i = 0; same_pid_namespace(call.state) && i < call.state->process_count; i++) {
        const struct process *process = &call.state->processes[i];
        if (!sampled(process, call.card, info->lastSeenTimeStamp))
            continue;
        if (found < room)
            info->procUtilArray[found] =
                (nvmlProcessUtilizationInfo_v1_t){.timeStamp = last_sample(),
                                                  .pid = process->pid,
                                                  .smUtil = process->sm,
                                                  .memUtil = process->mem,
                                                  .encUtil = process->enc,
                                                  .decUtil = process->dec};
        found++;
    }
    info->processSamplesCount = found;
    return call_leave(&call, outcome(found, room));
}
