/*
 * The library's own state between nvmlInit and nvmlShutdown: which cards this process sees.
 *
 * As with the real library the list is made once, by nvmlInit: a card plugged in later needs a
 * shutdown and a new init, one that has gone answers NVML_ERROR_GPU_IS_LOST from then on.
 */
#ifndef GPUSHARE_SESSION_H
#define GPUSHARE_SESSION_H

#include "nvml.h"
#include "state.h"

/* A handle is one per uuid and process, and is never freed: stale ones are recognised. */
struct nvmlDevice_st {
    char uuid[TEXT];
    int index; /* in this session; -1: not visible in it */
};

/* What each call holds while it answers: a snapshot, and the card it is about. */
struct call {
    struct state *state;
    struct card *card;
};

/* Enter a call: injected faults, then "is the library initialised". Leave it if it succeeded. */
nvmlReturn_t call_enter(struct call *call, const char *name);
/* Likewise for a call about a card: also checks the handle, and that the card is there. */
nvmlReturn_t call_enter_card(struct call *call, const char *name, nvmlDevice_t device);
nvmlReturn_t call_leave(struct call *call, nvmlReturn_t result);

unsigned session_count(void);
/* The handle at an index or of a uuid among the visible cards, or NULL. */
nvmlDevice_t session_at(unsigned index);
nvmlDevice_t session_find(const char *uuid);

nvmlReturn_t copy_text(char *to, unsigned length, const char *from);

/* Injected faults, also for calls that need no initialised library. */
nvmlReturn_t faults_apply(const char *name, const char *uuid);

void events_close_all(void);

#endif
