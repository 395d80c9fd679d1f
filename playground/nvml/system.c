/* Calls about the driver, and from an index, a uuid or a PCI address to a handle. */
#include "session.h"

#include <stdio.h>
#include <string.h>

API const char *nvmlErrorString(nvmlReturn_t result) {
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported",
        "Insufficient Permissions", "Already Initialized", "Not Found", "Insufficient Size",
        "Insufficient External Power", "Driver Not Loaded", "Timeout", "Interrupt Request Issue",
        "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM",
        "GPU is lost", "GPU requires restart",
        "The operating system has blocked the request.",
        "RM has detected an NVML/RM version mismatch.",
        "GPU is currently in use", "Insufficient Memory", "No data",
        "The requested vgpu operation is not available on target device, because ECC is enabled.",
        "Insufficient Resources", "Frequency not supported", "Argument version mismatch",
        "Deprecated", "Not ready", "GPU not found", "Invalid state", "Reset type not supported"};
    if ((unsigned)result < sizeof texts / sizeof *texts)
        return texts[result];
    return "Unknown Error";
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    struct call call;
    nvmlReturn_t result = call_enter(&call, __func__);
    if (result != NVML_SUCCESS)
        return result;
    return call_leave(&call, copy_text(version, length, call.state->driver));
}

API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    struct call call;
    nvmlReturn_t result = call_enter(&call, __func__);
    if (result != NVML_SUCCESS)
        return result;
    return call_leave(&call, copy_text(version, length, call.state->nvml));
}

static nvmlReturn_t cuda_version(const char *name, int *version) {
    struct call call;
    nvmlReturn_t result = call_enter(&call, name);
    if (result != NVML_SUCCESS)
        return result;
    if (!version)
        return call_leave(&call, NVML_ERROR_INVALID_ARGUMENT);
    *version = (int)call.state->cuda;
    return call_leave(&call, NVML_SUCCESS);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    return cuda_version(__func__, version);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return cuda_version(__func__, version);
}

API nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
    struct call call;
    char path[64], text[1024] = "";
    nvmlReturn_t result = call_enter(&call, __func__);
    if (result != NVML_SUCCESS)
        return result;
    if (!name || length == 0)
        return call_leave(&call, NVML_ERROR_INVALID_ARGUMENT);
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return call_leave(&call, NVML_ERROR_NOT_FOUND);
    text[fread(text, 1, sizeof text - 1, file)] = '\0'; /* ends at the first argument's NUL */
    fclose(file);
    snprintf(name, length, "%s", text); /* documented: cut where the buffer is short */
    return call_leave(&call, NVML_SUCCESS);
}

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    struct call call;
    nvmlReturn_t result = call_enter(&call, __func__);
    if (result != NVML_SUCCESS)
        return result;
    if (!count)
        return call_leave(&call, NVML_ERROR_INVALID_ARGUMENT);
    *count = session_count();
    return call_leave(&call, NVML_SUCCESS);
}

/* Hand out `handle` if its card still answers. */
static nvmlReturn_t hand_out(struct call *call, nvmlDevice_t handle, nvmlDevice_t *device,
                             nvmlReturn_t missing) {
    if (!handle)
        return call_leave(call, missing);
    struct card *card = state_card(call->state, handle->uuid);
    if (!card || card->lost)
        return call_leave(call, NVML_ERROR_GPU_IS_LOST);
    *device = handle;
    return call_leave(call, NVML_SUCCESS);
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    struct call call;
    nvmlReturn_t result = call_enter(&call, __func__);
    if (result != NVML_SUCCESS)
        return result;
    if (!device)
        return call_leave(&call, NVML_ERROR_INVALID_ARGUMENT);
    return hand_out(&call, session_at(index), device, NVML_ERROR_INVALID_ARGUMENT);
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    struct call call;
    nvmlReturn_t result = call_enter(&call, __func__);
    if (result != NVML_SUCCESS)
        return result;
    if (!uuid || !device)
        return call_leave(&call, NVML_ERROR_INVALID_ARGUMENT);
    return hand_out(&call, session_find(uuid), device, NVML_ERROR_NOT_FOUND);
}

/* "0000:3b:00.0", "00000000:3B:00.0" and "3B:00.0" are all accepted by the real library. */
static bool read_hex(const char **text, char end, unsigned *value) {
    const char *at = *text;
    for (*value = 0; *at && *at != end; at++) {
        int digit = *at >= '0' && *at <= '9' ? *at - '0'
            : *at >= 'a' && *at <= 'f'       ? *at - 'a' + 10
            : *at >= 'A' && *at <= 'F'       ? *at - 'A' + 10
                                             : -1;
        if (digit < 0)
            return false;
        *value = *value * 16 + (unsigned)digit;
    }
    bool read = at != *text && *at == end;
    *text = *at ? at + 1 : at;
    return read;
}

static bool read_address(const char *text, unsigned *domain, unsigned *bus, unsigned *device) {
    const char *colon = strchr(text, ':');
    *domain = 0;
    if (!colon || (strchr(colon + 1, ':') && !read_hex(&text, ':', domain)))
        return false;
    return read_hex(&text, ':', bus) && read_hex(&text, '.', device);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice_t *device) {
    struct call call;
    unsigned domain, bus, slot;
    nvmlReturn_t result = call_enter(&call, __func__);
    if (result != NVML_SUCCESS)
        return result;
    if (!address || !device || !read_address(address, &domain, &bus, &slot))
        return call_leave(&call, NVML_ERROR_INVALID_ARGUMENT);
    for (size_t i = 0; i < call.state->card_count; i++) {
        struct card *card = &call.state->cards[i];
        if (card->pci_domain == domain && card->pci_bus == bus && card->pci_device == slot)
            return hand_out(&call, session_find(card->uuid), device, NVML_ERROR_NOT_FOUND);
    }
    return call_leave(&call, NVML_ERROR_NOT_FOUND);
}
