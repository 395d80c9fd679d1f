/* The processes of a card that are alive now. */
#ifndef GPUSHARE_PROCESS_H
#define GPUSHARE_PROCESS_H

#include "nvml.h"
#include "state.h"

/* MiB that the processes of `card` hold. */
unsigned long long process_memory(const struct state *state, const struct card *card);

/* How busy the card is, %: its processes together, and what the state adds to that. */
nvmlUtilization_t process_load(const struct state *state, const struct card *card);

#endif
