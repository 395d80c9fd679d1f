/*
 * What the stand-in answers from: one text file, parsed into an immutable snapshot.
 *
 * A line is a kind followed by key=value fields, separated by single spaces; bytes that a value
 * cannot hold as they are (space, '%', newline) are written %XX. Lines of an unknown kind and
 * unknown keys are ignored, so that older libraries in running containers read newer files.
 *
 *   system driver=… cuda=12040 nvml=… [devices=/path/of/dev] [pidns=4026531836]
 *   card uuid=… minor=0 name=… memory=15360 pci_bus=3b …
 *   process uuid=… pid=… memory=512 kind=compute|graphics|mps [start=…] [sm=…] [mem=…] …
 *   event seq=1 uuid=… type=8 data=79
 *   fault call=nvmlInit [uuid=…] [result=999] [hang=30]
 */
#ifndef GPUSHARE_STATE_H
#define GPUSHARE_STATE_H

#include <stdbool.h>
#include <stddef.h>

enum { TEXT = 96, CALL = 64, KIND = 16 };

struct card {
    char uuid[TEXT];
    char name[TEXT];
    char serial[TEXT];
    unsigned minor;
    unsigned pci_domain, pci_bus, pci_device;
    unsigned pci_id, pci_subsystem;
    unsigned cc_major, cc_minor;
    unsigned long long memory_mib, reserved_mib;
    long long numa; /* -1: unknown */
    unsigned gpu_util, memory_util;
    unsigned temperature, power_mw, power_limit_mw;
    bool persistence, lost;
    bool ecc;       /* error counters exist */
    unsigned long long ecc_counts[2][2]; /* [corrected, uncorrected][volatile, aggregate] */
    bool remapping; /* the card has a row remapper (Ampere and later) */
    unsigned remap_corrected, remap_uncorrected, remap_pending, remap_failure;
    bool retirement; /* the card retires pages instead (before Ampere) */
    unsigned retired_single, retired_double, retired_pending;
};

struct process {
    char uuid[TEXT];
    char kind[KIND];
    unsigned pid;
    unsigned long long start; /* clock ticks since boot; 0: reported whether or not it runs */
    unsigned long long memory_mib;
    unsigned sm, mem, enc, dec; /* utilisation, % */
};

struct event {
    char uuid[TEXT];
    unsigned long long seq, type, data;
};

struct fault {
    char call[CALL];
    char uuid[TEXT]; /* "" : whichever card */
    unsigned result;
    double hang; /* seconds */
};

struct state {
    char driver[TEXT], nvml[TEXT], devices[TEXT * 4];
    unsigned cuda;
    unsigned long long pid_namespace; /* 0: processes are reported to everyone */
    struct card *cards;
    struct process *processes;
    struct event *events;
    struct fault *faults;
    size_t card_count, process_count, event_count, fault_count;
    int references;
};

/* Point the reader at its file; NULL takes $GPUSHARE_NVML_STATE or the file beside the library. */
void state_locate(void);
/* The folder that holds the state file: compute modes that callers set are kept there. */
const char *state_folder(void);
/* The newest readable snapshot (NULL: no such file, or not readable). Release each one got. */
struct state *state_acquire(void);
void state_release(struct state *state);
/* Wait until the file may have changed or `seconds` have passed. */
void state_wait(double seconds);

struct card *state_card(struct state *state, const char *uuid);
/* Where the card's device nodes are looked for. */
void state_devices(const struct state *state, char *path, size_t size);

double now_seconds(void); /* monotonic */

#endif
