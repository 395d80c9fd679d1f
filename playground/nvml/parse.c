#include "parse.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Numbers are read by hand: strtol of a newer C library is a symbol that the older one inside an
   image does not have. */
static unsigned long long number(const char *text, unsigned base) {
    unsigned long long value = 0;
    for (; *text; text++) {
        int digit = *text >= '0' && *text <= '9' ? *text - '0'
            : *text >= 'a' && *text <= 'f'       ? *text - 'a' + 10
            : *text >= 'A' && *text <= 'F'       ? *text - 'A' + 10
                                                 : 99;
        if (digit >= (int)base)
            break;
        value = value * base + (unsigned)digit;
    }
    return value;
}

static double seconds(const char *text) {
    double value = (double)number(text, 10);
    const char *point = strchr(text, '.');
    double scale = 0.1;
    for (point = point ? point + 1 : ""; *point >= '0' && *point <= '9'; point++, scale /= 10)
        value += (*point - '0') * scale;
    return value;
}

static void unescape(char *to, size_t size, const char *from) {
    size_t length = 0;
    while (*from && length + 1 < size) {
        if (from[0] == '%' && from[1] && from[2]) {
            char digits[3] = {from[1], from[2], '\0'};
            to[length++] = (char)number(digits, 16);
            from += 3;
        } else {
            to[length++] = *from++;
        }
    }
    to[length] = '\0';
}

enum field_kind { WORD, COUNT, WIDE, SIGNED, FLAG, HEX, SECONDS };

struct field {
    const char *key;
    enum field_kind kind;
    size_t offset, size;
};

#define FIELD(type, key, kind, member)                                                             \
    {key, kind, offsetof(struct type, member), sizeof(((struct type *)0)->member)}
#define END {NULL, WORD, 0, 0}

static const struct field system_fields[] = {
    FIELD(state, "driver", WORD, driver),   FIELD(state, "nvml", WORD, nvml),
    FIELD(state, "devices", WORD, devices), FIELD(state, "cuda", COUNT, cuda),
    FIELD(state, "pidns", WIDE, pid_namespace), END};

static const struct field card_fields[] = {
    FIELD(card, "uuid", WORD, uuid),
    FIELD(card, "name", WORD, name),
    FIELD(card, "serial", WORD, serial),
    FIELD(card, "minor", COUNT, minor),
    FIELD(card, "pci_domain", HEX, pci_domain),
    FIELD(card, "pci_bus", HEX, pci_bus),
    FIELD(card, "pci_device", HEX, pci_device),
    FIELD(card, "pci_id", HEX, pci_id),
    FIELD(card, "pci_subsystem", HEX, pci_subsystem),
    FIELD(card, "cc_major", COUNT, cc_major),
    FIELD(card, "cc_minor", COUNT, cc_minor),
    FIELD(card, "memory", WIDE, memory_mib),
    FIELD(card, "reserved", WIDE, reserved_mib),
    FIELD(card, "numa", SIGNED, numa),
    FIELD(card, "gpu_util", COUNT, gpu_util),
    FIELD(card, "memory_util", COUNT, memory_util),
    FIELD(card, "temperature", COUNT, temperature),
    FIELD(card, "power_mw", COUNT, power_mw),
    FIELD(card, "power_limit_mw", COUNT, power_limit_mw),
    FIELD(card, "persistence", FLAG, persistence),
    FIELD(card, "lost", FLAG, lost),
    FIELD(card, "ecc", FLAG, ecc),
    FIELD(card, "ecc_corrected_volatile", WIDE, ecc_counts[0][0]),
    FIELD(card, "ecc_corrected_aggregate", WIDE, ecc_counts[0][1]),
    FIELD(card, "ecc_uncorrected_volatile", WIDE, ecc_counts[1][0]),
    FIELD(card, "ecc_uncorrected_aggregate", WIDE, ecc_counts[1][1]),
    FIELD(card, "remapping", FLAG, remapping),
    FIELD(card, "remap_corrected", COUNT, remap_corrected),
    FIELD(card, "remap_uncorrected", COUNT, remap_uncorrected),
    FIELD(card, "remap_pending", COUNT, remap_pending),
    FIELD(card, "remap_failure", COUNT, remap_failure),
    FIELD(card, "retirement", FLAG, retirement),
    FIELD(card, "retired_single", COUNT, retired_single),
    FIELD(card, "retired_double", COUNT, retired_double),
    FIELD(card, "retired_pending", COUNT, retired_pending),
    END};

static const struct field process_fields[] = {
    FIELD(process, "uuid", WORD, uuid),   FIELD(process, "kind", WORD, kind),
    FIELD(process, "pid", COUNT, pid),    FIELD(process, "start", WIDE, start),
    FIELD(process, "sm", COUNT, sm),      FIELD(process, "mem", COUNT, mem),
    FIELD(process, "enc", COUNT, enc),    FIELD(process, "dec", COUNT, dec),
    FIELD(process, "memory", WIDE, memory_mib), END};

static const struct field event_fields[] = {
    FIELD(event, "uuid", WORD, uuid), FIELD(event, "seq", WIDE, seq),
    FIELD(event, "type", WIDE, type), FIELD(event, "data", WIDE, data), END};

static const struct field fault_fields[] = {
    FIELD(fault, "call", WORD, call), FIELD(fault, "uuid", WORD, uuid),
    FIELD(fault, "result", COUNT, result), FIELD(fault, "hang", SECONDS, hang), END};

static void set(char *object, const struct field *field, const char *value) {
    void *member = object + field->offset;
    switch (field->kind) {
    case WORD:
        unescape(member, field->size, value);
        break;
    case COUNT:
        *(unsigned *)member = (unsigned)number(value, 10);
        break;
    case HEX:
        *(unsigned *)member = (unsigned)number(value, 16);
        break;
    case WIDE:
        *(unsigned long long *)member = number(value, 10);
        break;
    case SIGNED:
        *(long long *)member = *value == '-' ? -(long long)number(value + 1, 10)
                                             : (long long)number(value, 10);
        break;
    case FLAG:
        *(bool *)member = *value == '1';
        break;
    case SECONDS:
        *(double *)member = seconds(value);
        break;
    }
}

static void fill(void *object, const struct field *fields, char *words) {
    char *rest = words, *word;
    while ((word = strsep(&rest, " "))) {
        char *value = strchr(word, '=');
        if (!value)
            continue;
        *value++ = '\0';
        for (const struct field *field = fields; field->key; field++)
            if (strcmp(field->key, word) == 0)
                set(object, field, value);
    }
}

/* One more zeroed element at the end of `*array`, or NULL. */
static void *append(void **array, size_t *count, size_t size) {
    char *grown = realloc(*array, (*count + 1) * size);
    if (!grown)
        return NULL;
    *array = grown;
    memset(grown + *count * size, 0, size);
    return grown + (*count)++ * size;
}

struct state *state_parse(char *text) {
    struct state *state = calloc(1, sizeof *state);
    char *rest = text, *line;
    if (!state)
        return NULL;
    state->references = 1;
    while ((line = strsep(&rest, "\n"))) {
        char *words = line, *kind = strsep(&words, " ");
        const struct field *fields = NULL;
        void *object = NULL;
        if (!words)
            continue;
        if (strcmp(kind, "system") == 0) {
            fields = system_fields;
            object = state;
        } else if (strcmp(kind, "card") == 0) {
            fields = card_fields;
            object = append((void **)&state->cards, &state->card_count, sizeof *state->cards);
            if (object)
                ((struct card *)object)->numa = -1;
        } else if (strcmp(kind, "process") == 0) {
            fields = process_fields;
            object = append((void **)&state->processes, &state->process_count,
                            sizeof *state->processes);
        } else if (strcmp(kind, "event") == 0) {
            fields = event_fields;
            object = append((void **)&state->events, &state->event_count, sizeof *state->events);
        } else if (strcmp(kind, "fault") == 0) {
            fields = fault_fields;
            object = append((void **)&state->faults, &state->fault_count, sizeof *state->faults);
        }
        if (object)
            fill(object, fields, words);
    }
    return state;
}
