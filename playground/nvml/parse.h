/* The state file's text to a snapshot. */
#ifndef GPUSHARE_PARSE_H
#define GPUSHARE_PARSE_H

#include "state.h"

/* A new snapshot with one reference, or NULL when memory is short. Writes into `text`. */
struct state *state_parse(char *text);

#endif
