/* Event sets: XIDs, ECC errors and the like, as they are appended to the state file. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

enum { MAX_REGISTRATIONS = 64 };

struct registration {
    nvmlDevice_t device;
    unsigned long long types;
    unsigned long long seen; /* sequence number of the newest event that is no longer news */
};

struct nvmlEventSet_st {
    struct registration registrations[MAX_REGISTRATIONS];
    unsigned count;
    bool open;
    struct nvmlEventSet_st *next; /* sets are kept for ever: a stale handle is recognised */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvmlEventSet_st *sets;

static bool is_open(nvmlEventSet_t wanted) { /* lock held */
    for (struct nvmlEventSet_st *set = sets; set; set = set->next)
        if (set == wanted)
            return set->open;
    return false;
}

void events_close_all(void) {
    pthread_mutex_lock(&lock);
    for (struct nvmlEventSet_st *set = sets; set; set = set->next)
        set->open = false;
    pthread_mutex_unlock(&lock);
}

API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *created) {
    struct call call;
    nvmlReturn_t result = call_enter(&call, __func__);
    if (result != NVML_SUCCESS)
        return result;
    if (!created)
        return call_leave(&call, NVML_ERROR_INVALID_ARGUMENT);
    struct nvmlEventSet_st *set = calloc(1, sizeof *set);
    if (!set)
        return call_leave(&call, NVML_ERROR_MEMORY);
    pthread_mutex_lock(&lock);
    set->open = true;
    set->next = sets;
    sets = set;
    pthread_mutex_unlock(&lock);
    *created = set;
    return call_leave(&call, NVML_SUCCESS);
}

API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    struct call call;
    nvmlReturn_t result = call_enter(&call, __func__);
    if (result != NVML_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    if (is_open(set))
        set->open = false;
    else
        result = NVML_ERROR_INVALID_ARGUMENT;
    pthread_mutex_unlock(&lock);
    return call_leave(&call, result);
}

static unsigned long long supported(const struct card *card) {
    unsigned long long types =
        nvmlEventTypeXidCriticalError | nvmlEventTypePState | nvmlEventTypeClock;
    if (card->ecc)
        types |= nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError;
    return types;
}

API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    struct call call;
    nvmlReturn_t result = call_enter_card(&call, __func__, device);
    if (result != NVML_SUCCESS)
        return result;
    if (!types)
        return call_leave(&call, NVML_ERROR_INVALID_ARGUMENT);
    *types = supported(call.card);
    return call_leave(&call, NVML_SUCCESS);
}

static unsigned long long newest(const struct state *state) {
    unsigned long long seq = 0;
    for (size_t i = 0; i < state->event_count; i++)
        if (state->events[i].seq > seq)
            seq = state->events[i].seq;
    return seq;
}

static nvmlReturn_t add(struct call *call, nvmlDevice_t device, unsigned long long types,
                        nvmlEventSet_t set) { /* lock held */
    if (!is_open(set))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (types & ~supported(call->card))
        return NVML_ERROR_NOT_SUPPORTED;
    for (unsigned i = 0; i < set->count; i++)
        if (set->registrations[i].device == device) {
            set->registrations[i].types |= types;
            return NVML_SUCCESS;
        }
    if (set->count == MAX_REGISTRATIONS)
        return NVML_ERROR_MEMORY;
    /* Documented: only what happens after this call is reported. */
    set->registrations[set->count++] =
        (struct registration){.device = device, .types = types, .seen = newest(call->state)};
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                          nvmlEventSet_t set) {
    struct call call;
    nvmlReturn_t result = call_enter_card(&call, __func__, device);
    if (result != NVML_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    result = add(&call, device, types, set);
    pthread_mutex_unlock(&lock);
    return call_leave(&call, result);
}

/* Take the oldest event that `set` has not seen. Without one: NVML_ERROR_GPU_IS_LOST when a
   registered card is, else NVML_ERROR_TIMEOUT. */
static nvmlReturn_t take(struct state *state, nvmlEventSet_t set,
                         nvmlEventData_t *data) { /* lock held */
    struct registration *owner = NULL;
    struct event *oldest = NULL;
    bool lost = false;
    if (!is_open(set))
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned r = 0; r < set->count; r++) {
        struct registration *registration = &set->registrations[r];
        struct card *card = state_card(state, registration->device->uuid);
        lost = lost || !card || card->lost;
        for (size_t i = 0; i < state->event_count; i++) {
            struct event *event = &state->events[i];
            if (event->seq > registration->seen && (event->type & registration->types)
                && strcmp(event->uuid, registration->device->uuid) == 0
                && (!oldest || event->seq < oldest->seq)) {
                oldest = event;
                owner = registration;
            }
        }
    }
    if (!oldest)
        return lost ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_TIMEOUT;
    owner->seen = oldest->seq;
    *data = (nvmlEventData_t){.device = owner->device,
                              .eventType = oldest->type,
                              .eventData = oldest->data,
                              .gpuInstanceId = NVML_NO_INSTANCE,
                              .computeInstanceId = NVML_NO_INSTANCE};
    return NVML_SUCCESS;
}

static nvmlReturn_t wait_for(const char *name, nvmlEventSet_t set, nvmlEventData_t *data,
                             unsigned milliseconds) {
    double end = now_seconds() + milliseconds / 1000.0;
    for (bool first = true;; first = false) {
        struct call call;
        nvmlReturn_t result = first ? call_enter(&call, name) : NVML_SUCCESS;
        if (result != NVML_SUCCESS)
            return result;
        if (!first && !(call.state = state_acquire()))
            return NVML_ERROR_UNKNOWN;
        pthread_mutex_lock(&lock);
        result = take(call.state, set, data);
        pthread_mutex_unlock(&lock);
        call_leave(&call, result);
        double left = end - now_seconds();
        if (result != NVML_ERROR_TIMEOUT || left <= 0)
            return result;
        state_wait(left);
    }
}

API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data,
                                     unsigned int milliseconds) {
    return data ? wait_for(__func__, set, data, milliseconds) : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_v1_t *data,
                                  unsigned int milliseconds) {
    nvmlEventData_t full;
    nvmlReturn_t result = data ? wait_for(__func__, set, &full, milliseconds)
                               : NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *data = (nvmlEventData_v1_t){full.device, full.eventType, full.eventData};
    return result;
}
