#include "base/mapguard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* One guarded range. The handler reads `begin` first and writes it last. */
struct guard {
    atomic_uintptr_t begin, end; /* begin 0: free */
    atomic_bool lost;
};

static struct guard guards[OZ_MAPGUARD_MAX]; /* untouched pages cost nothing */
static atomic_int used;                      /* guards ever taken: the handler looks no further */
static uintptr_t page_bytes;
static struct sigaction before; /* whom other faults belong to */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The guard that an address belongs to, or NULL. */
static struct guard *find(uintptr_t address)
{
    int n = atomic_load(&used);
    for (int i = 0; i < n; i++) {
        uintptr_t begin = atomic_load(&guards[i].begin);
        if (begin != 0 && address >= begin && address < atomic_load(&guards[i].end)) {
            return &guards[i];
        }
    }
    return NULL;
}

/* Puts zeros in place of the rest of the range: behind the first lost page lie others, and each would
 * fault. System calls alone: this runs in a signal handler. */
static bool replace(struct guard *g, uintptr_t address)
{
    uintptr_t begin = address / page_bytes * page_bytes;
    uintptr_t end = (atomic_load(&g->end) + page_bytes - 1) / page_bytes * page_bytes;
    long at = syscall(SYS_mmap, begin, end - begin, PROT_READ,
                      MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);
    return at == (long)begin;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    int error = errno;
    uintptr_t address = (uintptr_t)info->si_addr;
    struct guard *g = info->si_code > 0 ? find(address) : NULL; /* sent by kill: not ours */
    if (g != NULL) {
        atomic_store(&g->lost, true);
        if (replace(g, address)) {
            errno = error;
            return;
        }
    }
    errno = error;
    if ((before.sa_flags & SA_SIGINFO) != 0) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        /* The fault comes again and does what it would have done without us. */
        (void)sigaction(SIGBUS, &before, NULL);
        if (info->si_code <= 0) {
            (void)raise(number);
        }
    }
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = on_fault};
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    action.sa_flags = (int)(SA_SIGINFO | SA_ONSTACK | SA_RESTART);
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGBUS, &action, &before);
}

int32_t oz_mapguard_add(const void *begin, size_t bytes)
{
    int32_t found = 0;
    (void)pthread_once(&once, install);
    pthread_mutex_lock(&lock);
    for (int32_t i = 0; i < OZ_MAPGUARD_MAX && found == 0; i++) {
        struct guard *g = &guards[i];
        if (atomic_load(&g->begin) != 0) {
            continue;
        }
        found = i + 1;
        atomic_store(&g->lost, false);
        atomic_store(&g->end, (uintptr_t)begin + bytes);
        atomic_store(&g->begin, (uintptr_t)begin);
        if (found > atomic_load(&used)) {
            atomic_store(&used, found);
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void oz_mapguard_remove(int32_t guard)
{
    if (guard > 0) {
        pthread_mutex_lock(&lock);
        atomic_store(&guards[guard - 1].begin, 0);
        pthread_mutex_unlock(&lock);
    }
}

bool oz_mapguard_lost(int32_t guard)
{
    return guard > 0 && atomic_load(&guards[guard - 1].lost);
}
