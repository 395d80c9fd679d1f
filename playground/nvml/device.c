/* Calls about one card. */
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "process.h"

static const unsigned long long MIB = 1024ull * 1024ull;

/* Every call below is: enter, check the pointer, answer from `card`, leave. */
#define DEVICE_CALL(name, arguments, usable, body)                                                 \
    API nvmlReturn_t name arguments {                                                              \
        struct call call;                                                                          \
        nvmlReturn_t result = call_enter_card(&call, __func__, device);                            \
        if (result != NVML_SUCCESS)                                                                \
            return result;                                                                         \
        struct card *card = call.card;                                                             \
        (void)card;                                                                                \
        if (!(usable))                                                                             \
            return call_leave(&call, NVML_ERROR_INVALID_ARGUMENT);                                 \
        body;                                                                                      \
        return call_leave(&call, result);                                                          \
    }

DEVICE_CALL(nvmlDeviceGetUUID, (nvmlDevice_t device, char *uuid, unsigned int length), uuid,
            result = copy_text(uuid, length, card->uuid))
DEVICE_CALL(nvmlDeviceGetName, (nvmlDevice_t device, char *name, unsigned int length), name,
            result = copy_text(name, length, card->name))
DEVICE_CALL(nvmlDeviceGetSerial, (nvmlDevice_t device, char *serial, unsigned int length), serial,
            result = *card->serial ? copy_text(serial, length, card->serial)
                                   : NVML_ERROR_NOT_SUPPORTED)
DEVICE_CALL(nvmlDeviceGetIndex, (nvmlDevice_t device, unsigned int *index), index,
            *index = (unsigned)device->index)
DEVICE_CALL(nvmlDeviceGetMinorNumber, (nvmlDevice_t device, unsigned int *minor), minor,
            *minor = card->minor)
DEVICE_CALL(nvmlDeviceGetBrand, (nvmlDevice_t device, unsigned int *brand), brand,
            *brand = strncmp(card->name, "Tesla", 5) == 0 ? NVML_BRAND_TESLA : NVML_BRAND_NVIDIA)
DEVICE_CALL(nvmlDeviceGetPersistenceMode, (nvmlDevice_t device, unsigned int *mode), mode,
            *mode = card->persistence)
DEVICE_CALL(nvmlDeviceGetPowerUsage, (nvmlDevice_t device, unsigned int *milliwatts), milliwatts,
            *milliwatts = card->power_mw)
DEVICE_CALL(nvmlDeviceGetEnforcedPowerLimit, (nvmlDevice_t device, unsigned int *limit), limit,
            *limit = card->power_limit_mw)
DEVICE_CALL(nvmlDeviceGetPerformanceState, (nvmlDevice_t device, unsigned int *level), level,
            *level = process_load(call.state, card).gpu ? NVML_PSTATE_0 : NVML_PSTATE_8)
DEVICE_CALL(nvmlDeviceGetCudaComputeCapability, (nvmlDevice_t device, int *major, int *minor),
            major &&minor, (*major = (int)card->cc_major, *minor = (int)card->cc_minor))
DEVICE_CALL(nvmlDeviceGetUtilizationRates, (nvmlDevice_t device, nvmlUtilization_t *utilization),
            utilization, *utilization = process_load(call.state, card))
DEVICE_CALL(nvmlDeviceGetTemperature,
            (nvmlDevice_t device, unsigned int sensor, unsigned int *temperature),
            temperature &&sensor == NVML_TEMPERATURE_GPU, *temperature = card->temperature)
/* The cards that people share one of (T4, A10, L4) have no MIG: these two say it as they do. */
DEVICE_CALL(nvmlDeviceGetMigMode,
            (nvmlDevice_t device, unsigned int *currentMode, unsigned int *pendingMode),
            currentMode &&pendingMode, result = NVML_ERROR_NOT_SUPPORTED)
DEVICE_CALL(nvmlDeviceGetMaxMigDeviceCount, (nvmlDevice_t device, unsigned int *count), count,
            *count = 0)
DEVICE_CALL(nvmlDeviceIsMigDeviceHandle, (nvmlDevice_t device, unsigned int *isMig), isMig,
            *isMig = 0)
/* Only on machines whose cards are NUMA nodes of the system themselves. */
DEVICE_CALL(nvmlDeviceGetNumaNodeId, (nvmlDevice_t device, unsigned int *node), node,
            result = NVML_ERROR_NOT_SUPPORTED)

DEVICE_CALL(nvmlDeviceGetTemperatureV, (nvmlDevice_t device, nvmlTemperature_v1_t *reading),
            reading, {
                if (reading->version != NVML_VERSION_OF(nvmlTemperature_v1_t, 1))
                    result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
                else if (reading->sensorType != NVML_TEMPERATURE_GPU)
                    result = NVML_ERROR_INVALID_ARGUMENT;
                else
                    reading->temperature = (int)card->temperature;
            })

static unsigned architecture(const struct card *card) {
    switch (card->cc_major) {
    case 6:
        return 4; /* Pascal */
    case 7:
        return card->cc_minor >= 5 ? 6 : 5; /* Turing, Volta */
    case 8:
        return card->cc_minor == 9 ? 8 : 7; /* Ada, Ampere */
    case 9:
        return 9; /* Hopper */
    default:
        return NVML_ARCH_UNKNOWN;
    }
}

DEVICE_CALL(nvmlDeviceGetArchitecture, (nvmlDevice_t device, unsigned int *family), family,
            *family = architecture(card))

DEVICE_CALL(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t device, nvmlPciInfo_t *pci), pci, {
    memset(pci, 0, sizeof *pci);
    pci->domain = card->pci_domain;
    pci->bus = card->pci_bus;
    pci->device = card->pci_device;
    pci->pciDeviceId = card->pci_id;
    pci->pciSubSystemId = card->pci_subsystem;
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0",
             card->pci_domain & 0xffff, card->pci_bus & 0xff, card->pci_device & 0xff);
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", card->pci_domain, card->pci_bus,
             card->pci_device);
})

/* The set of NUMA nodes as bits; on one-node machines and cards without affinity that is node 0. */
DEVICE_CALL(nvmlDeviceGetMemoryAffinity,
            (nvmlDevice_t device, unsigned int nodeSetSize, unsigned long *nodeSet,
             unsigned int scope),
            nodeSet &&nodeSetSize &&scope <= NVML_AFFINITY_SCOPE_SOCKET, {
                unsigned node = card->numa > 0 ? (unsigned)card->numa : 0;
                unsigned bits = 8 * sizeof *nodeSet;
                memset(nodeSet, 0, nodeSetSize * sizeof *nodeSet);
                if (node / bits < nodeSetSize)
                    nodeSet[node / bits] = 1ul << (node % bits);
            })

static unsigned long long least(unsigned long long a, unsigned long long b) {
    return a < b ? a : b;
}

/* Version 1 counts what the driver keeps for itself as used; version 2 shows it apart. */
DEVICE_CALL(nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, nvmlMemory_t *memory), memory, {
    unsigned long long used = card->reserved_mib + process_memory(call.state, card);
    memory->total = card->memory_mib * MIB;
    memory->used = least(used, card->memory_mib) * MIB;
    memory->free = memory->total - memory->used;
})

DEVICE_CALL(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t device, nvmlMemory_v2_t *memory), memory, {
    if (memory->version != NVML_VERSION_OF(nvmlMemory_v2_t, 2))
        return call_leave(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    memory->total = card->memory_mib * MIB;
    memory->reserved = least(card->reserved_mib, card->memory_mib) * MIB;
    memory->used = least(process_memory(call.state, card) * MIB, memory->total - memory->reserved);
    memory->free = memory->total - memory->reserved - memory->used;
})

DEVICE_CALL(nvmlDeviceGetEccMode,
            (nvmlDevice_t device, unsigned int *current, unsigned int *pending), current &&pending,
            (*current = *pending = card->ecc))

DEVICE_CALL(nvmlDeviceGetTotalEccErrors,
            (nvmlDevice_t device, unsigned int errorType, unsigned int counterType,
             unsigned long long *count),
            count &&errorType < 2 && counterType < 2, {
                if (card->ecc)
                    *count = card->ecc_counts[errorType][counterType];
                else
                    result = NVML_ERROR_NOT_SUPPORTED;
            })

DEVICE_CALL(nvmlDeviceGetRemappedRows,
            (nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
             unsigned int *isPending, unsigned int *failureOccurred),
            corrected &&uncorrected &&isPending &&failureOccurred, {
                if (!card->remapping)
                    return call_leave(&call, NVML_ERROR_NOT_SUPPORTED);
                *corrected = card->remap_corrected;
                *uncorrected = card->remap_uncorrected;
                *isPending = card->remap_pending != 0;
                *failureOccurred = card->remap_failure != 0;
            })

DEVICE_CALL(nvmlDeviceGetRetiredPages,
            (nvmlDevice_t device, unsigned int cause, unsigned int *count,
             unsigned long long *addresses),
            count &&cause < 2, {
                if (!card->retirement)
                    return call_leave(&call, NVML_ERROR_NOT_SUPPORTED);
                unsigned pages = cause ? card->retired_double : card->retired_single;
                unsigned room = *count;
                *count = pages;
                if (pages && (!addresses || room < pages))
                    return call_leave(&call, NVML_ERROR_INSUFFICIENT_SIZE);
                for (unsigned i = 0; i < pages; i++)
                    addresses[i] = 0x10000ull * (i + 1);
            })

DEVICE_CALL(nvmlDeviceGetRetiredPagesPendingStatus,
            (nvmlDevice_t device, unsigned int *isPending), isPending, {
                if (card->retirement)
                    *isPending = card->retired_pending != 0;
                else
                    result = NVML_ERROR_NOT_SUPPORTED;
            })

/* The mode belongs to the card, not to a process: it is kept in a file beside the state. */
static void mode_path(const struct card *card, char *path, size_t size) {
    snprintf(path, size, "%s/compute-mode.%s", state_folder(), card->uuid);
}

DEVICE_CALL(nvmlDeviceGetComputeMode, (nvmlDevice_t device, unsigned int *mode), mode, {
    char path[PATH_MAX + TEXT];
    char digit = '0';
    mode_path(card, path, sizeof path);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && read(file, &digit, 1) != 1)
        digit = '0';
    if (file >= 0)
        close(file);
    *mode = (unsigned)(digit - '0') % NVML_COMPUTEMODE_COUNT;
})

DEVICE_CALL(nvmlDeviceSetComputeMode, (nvmlDevice_t device, unsigned int mode),
            mode < NVML_COMPUTEMODE_COUNT, {
                char path[PATH_MAX + TEXT];
                char digit = (char)('0' + mode);
                if (geteuid() != 0)
                    return call_leave(&call, NVML_ERROR_NO_PERMISSION);
                mode_path(card, path, sizeof path);
                int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
                if (file < 0 || write(file, &digit, 1) != 1)
                    result = NVML_ERROR_NO_PERMISSION;
                if (file >= 0)
                    close(file);
            })
