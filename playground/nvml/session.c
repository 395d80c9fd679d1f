#include "session.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_CARDS = 64, MAX_HANDLES = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users; /* nvmlInit calls not yet undone */
static nvmlDevice_t visible[MAX_CARDS];
static unsigned visible_count;
static nvmlDevice_t handles[MAX_HANDLES];
static unsigned handle_count;

/* The name without its version: a fault on "nvmlInit" meets nvmlInit_v2, nvmlInitWithFlags too. */
static void plain_name(const char *name, char *plain) {
    snprintf(plain, CALL, "%s", strncmp(name, "nvmlInit", 8) == 0 ? "nvmlInit" : name);
    char *version = strrchr(plain, '_');
    if (version && version[1] == 'v')
        *version = '\0';
}

static struct fault *find_fault(struct state *state, const char *name, const char *uuid) {
    char wanted[CALL], have[CALL];
    plain_name(name, wanted);
    for (size_t i = 0; state && i < state->fault_count; i++) {
        struct fault *fault = &state->faults[i];
        plain_name(fault->call, have);
        if ((strcmp(have, wanted) == 0 || strcmp(have, "*") == 0)
            && (!*fault->uuid || (uuid && strcmp(fault->uuid, uuid) == 0)))
            return fault;
    }
    return NULL;
}

nvmlReturn_t faults_apply(const char *name, const char *uuid) {
    double began = now_seconds();
    for (;;) {
        struct state *state = state_acquire();
        struct fault *fault = find_fault(state, name, uuid);
        double left = fault ? began + fault->hang - now_seconds() : 0;
        nvmlReturn_t result = fault ? (nvmlReturn_t)fault->result : NVML_SUCCESS;
        if (state)
            state_release(state);
        if (left <= 0)
            return result;
        state_wait(left); /* a fault taken back meanwhile lets the call go on at once */
    }
}

static nvmlDevice_t handle_of(const char *uuid) { /* lock held */
    for (unsigned i = 0; i < handle_count; i++)
        if (strcmp(handles[i]->uuid, uuid) == 0)
            return handles[i];
    if (handle_count == MAX_HANDLES)
        return NULL;
    nvmlDevice_t handle = calloc(1, sizeof *handle);
    if (handle) {
        strcpy(handle->uuid, uuid);
        handles[handle_count++] = handle;
    }
    return handle;
}

static unsigned long long pci_order(const struct card *card) {
    return (unsigned long long)card->pci_domain << 16 | card->pci_bus << 8 | card->pci_device;
}

static int by_pci_address(const void *left, const void *right) {
    unsigned long long a = pci_order(*(struct card *const *)left);
    unsigned long long b = pci_order(*(struct card *const *)right);
    return (a > b) - (a < b);
}

static nvmlReturn_t enumerate(struct state *state) { /* lock held */
    char devices[PATH_MAX], node[PATH_MAX + 32];
    struct card *found[MAX_CARDS];
    unsigned count = 0;
    struct stat status;
    state_devices(state, devices, sizeof devices);
    snprintf(node, sizeof node, "%s/nvidiactl", devices);
    if (stat(node, &status) != 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    for (size_t i = 0; i < state->card_count && count < MAX_CARDS; i++) {
        snprintf(node, sizeof node, "%s/nvidia%u", devices, state->cards[i].minor);
        if (stat(node, &status) == 0)
            found[count++] = &state->cards[i];
    }
    qsort(found, count, sizeof *found, by_pci_address);
    for (unsigned i = 0; i < handle_count; i++)
        handles[i]->index = -1;
    for (unsigned i = 0; i < count; i++) {
        visible[i] = handle_of(found[i]->uuid);
        if (!visible[i])
            return NVML_ERROR_MEMORY;
        visible[i]->index = (int)i;
    }
    visible_count = count;
    return NVML_SUCCESS;
}

static nvmlReturn_t start(const char *name) {
    pthread_mutex_lock(&lock);
    bool first = users == 0;
    pthread_mutex_unlock(&lock);
    if (first)
        state_locate();
    nvmlReturn_t result = faults_apply(name, NULL);
    if (result != NVML_SUCCESS)
        return result;
    struct state *state = state_acquire();
    if (!state)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    pthread_mutex_lock(&lock);
    if (users == 0)
        result = enumerate(state);
    if (result == NVML_SUCCESS)
        users++;
    pthread_mutex_unlock(&lock);
    state_release(state);
    return result;
}

API nvmlReturn_t nvmlInit_v2(void) {
    return start(__func__);
}

API nvmlReturn_t nvmlInit(void) {
    return start(__func__);
}

API nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    return flags > 7 ? NVML_ERROR_INVALID_ARGUMENT : start(__func__);
}

API nvmlReturn_t nvmlShutdown(void) {
    nvmlReturn_t result = faults_apply(__func__, NULL);
    if (result != NVML_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    bool last = users == 1;
    if (users == 0)
        result = NVML_ERROR_UNINITIALIZED;
    else
        users--;
    pthread_mutex_unlock(&lock);
    if (last)
        events_close_all();
    return result;
}

nvmlReturn_t call_enter(struct call *call, const char *name) {
    pthread_mutex_lock(&lock);
    bool ready = users > 0;
    pthread_mutex_unlock(&lock);
    if (!ready)
        return NVML_ERROR_UNINITIALIZED;
    nvmlReturn_t result = faults_apply(name, NULL);
    if (result != NVML_SUCCESS)
        return result;
    call->card = NULL;
    call->state = state_acquire();
    return call->state ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t call_enter_card(struct call *call, const char *name, nvmlDevice_t device) {
    bool known = false;
    pthread_mutex_lock(&lock);
    bool ready = users > 0;
    for (unsigned i = 0; i < visible_count; i++)
        known = known || visible[i] == device;
    pthread_mutex_unlock(&lock);
    if (!ready)
        return NVML_ERROR_UNINITIALIZED;
    if (!known)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = faults_apply(name, device->uuid);
    if (result != NVML_SUCCESS)
        return result;
    call->state = state_acquire();
    if (!call->state)
        return NVML_ERROR_UNKNOWN;
    call->card = state_card(call->state, device->uuid);
    if (!call->card || call->card->lost)
        return call_leave(call, NVML_ERROR_GPU_IS_LOST);
    return NVML_SUCCESS;
}

nvmlReturn_t call_leave(struct call *call, nvmlReturn_t result) {
    state_release(call->state);
    return result;
}

unsigned session_count(void) {
    return visible_count;
}

nvmlDevice_t session_at(unsigned index) {
    return index < visible_count ? visible[index] : NULL;
}

nvmlDevice_t session_find(const char *uuid) {
    for (unsigned i = 0; i < visible_count; i++)
        if (strcmp(visible[i]->uuid, uuid) == 0)
            return visible[i];
    return NULL;
}

nvmlReturn_t copy_text(char *to, unsigned length, const char *from) {
    if (!to)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(from) + 1 > length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, from);
    return NVML_SUCCESS;
}
