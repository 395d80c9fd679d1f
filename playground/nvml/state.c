#include "state.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "parse.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char path[PATH_MAX], folder[PATH_MAX], library_folder[PATH_MAX];
static struct state *current;
/* The file that `current` was read from stays open: while it is, no later file can have its inode
   number, so "same device and inode" means the same file even within one clock tick. */
static int current_file = -1;
static struct stat current_stat;

double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void cut_last_part(char *text) {
    char *slash = strrchr(text, '/');
    if (slash)
        *slash = '\0';
}

static void find_library_folder(void) {
    Dl_info info;
    if (!dladdr((void *)find_library_folder, &info) || !realpath(info.dli_fname, library_folder))
        strcpy(library_folder, ".");
    cut_last_part(library_folder);
}

void state_locate(void) {
    const char *given = getenv("GPUSHARE_NVML_STATE");
    char found[PATH_MAX];
    pthread_mutex_lock(&lock);
    find_library_folder();
    if (given && *given)
        snprintf(found, sizeof found, "%s", given);
    else if (snprintf(found, sizeof found, "%s/gpushare-nvml/state", library_folder)
             >= (int)sizeof found)
        found[0] = '\0';
    if (strcmp(found, path) != 0) {
        strcpy(path, found);
        strcpy(folder, found);
        cut_last_part(folder);
        if (current_file >= 0)
            close(current_file);
        current_file = -1;
    }
    pthread_mutex_unlock(&lock);
}

const char *state_folder(void) {
    return folder;
}

static void drop(struct state *state) { /* lock held */
    if (!state || --state->references > 0)
        return;
    free(state->cards);
    free(state->processes);
    free(state->events);
    free(state->faults);
    free(state);
}

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size
        && a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static char *read_all(int file, size_t size) {
    char *text = malloc(size + 1);
    size_t have = 0;
    while (text && have < size) {
        ssize_t got = pread(file, text + have, size - have, (off_t)have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        have += (size_t)got;
    }
    if (text)
        text[have] = '\0';
    return text;
}

static void read_again(void) { /* lock held */
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat stat_now;
    if (file < 0 || fstat(file, &stat_now) != 0 || !S_ISREG(stat_now.st_mode)) {
        if (file >= 0)
            close(file);
        drop(current);
        current = NULL;
        return;
    }
    char *text = read_all(file, (size_t)stat_now.st_size);
    struct state *fresh = text ? state_parse(text) : NULL;
    free(text);
    drop(current);
    current = fresh;
    if (current_file >= 0)
        close(current_file);
    current_file = file;
    current_stat = stat_now;
}

struct state *state_acquire(void) {
    struct stat now;
    pthread_mutex_lock(&lock);
    if (stat(path, &now) != 0) {
        drop(current);
        current = NULL;
        if (current_file >= 0)
            close(current_file);
        current_file = -1;
    } else if (current_file < 0 || !same_file(&now, &current_stat)) {
        read_again();
    }
    struct state *state = current;
    if (state)
        state->references++;
    pthread_mutex_unlock(&lock);
    return state;
}

void state_release(struct state *state) {
    pthread_mutex_lock(&lock);
    drop(state);
    pthread_mutex_unlock(&lock);
}

void state_wait(double seconds) {
    /* Atomic replacement shows as IN_MOVED_TO in the folder. The limit on each wait covers what
       inotify cannot see: a change between the caller's last look and the watch, or a network
       file system. */
    int notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    bool watched = notify >= 0
        && inotify_add_watch(notify, folder, IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE) >= 0;
    double longest = watched ? 0.25 : 0.05;
    struct pollfd descriptor = {.fd = watched ? notify : -1, .events = POLLIN};
    struct stat now;
    pthread_mutex_lock(&lock);
    bool changed = stat(path, &now) != 0 || current_file < 0 || !same_file(&now, &current_stat);
    pthread_mutex_unlock(&lock);
    if (!changed && seconds > 0)
        poll(&descriptor, 1, (int)((seconds < longest ? seconds : longest) * 1000) + 1);
    if (notify >= 0)
        close(notify);
}

struct card *state_card(struct state *state, const char *uuid) {
    for (size_t i = 0; i < state->card_count; i++)
        if (strcmp(state->cards[i].uuid, uuid) == 0)
            return &state->cards[i];
    return NULL;
}

void state_devices(const struct state *state, char *found, size_t size) {
    const char *given = getenv("GPUSHARE_NVML_DEV");
    if (!given || !*given)
        given = state->devices;
    if (*given) {
        snprintf(found, size, "%s", given);
        return;
    }
    /* In a driver root the library is ROOT/usr/lib/<triplet>/ and its devices are ROOT/dev; in a
       container ROOT is "/". One rule serves both. */
    char root[PATH_MAX];
    struct stat control;
    strcpy(root, library_folder);
    for (int i = 0; i < 3; i++)
        cut_last_part(root);
    if ((size_t)snprintf(found, size, "%.*s/dev/nvidiactl", (int)size - 16, root) < size
        && stat(found, &control) == 0)
        cut_last_part(found);
    else
        snprintf(found, size, "/dev");
}
