/* base/memory.h over trees of files as systems have them. */
#include "test.h"

#include <sys/mman.h>

#include "base/memory.h"
#include "scratch.h"

#define MIB (INT64_C(1) << 20)

/* A machine of 8 GiB with 4 GiB available, and these groups; then what is read. */
static void is_read(const char *groups, int64_t available, int64_t total)
{
    int64_t a;
    int64_t t;
    scratch_folder("m/proc/self");
    scratch_text("m/proc/meminfo", "MemTotal:        8388608 kB\nMemFree:          100 kB\n"
                                   "MemAvailable:    4194304 kB\n");
    if (groups != NULL) {
        scratch_text("m/proc/self/cgroup", groups);
    }
    oz_memory_read(scratch_path("m"), &a, &t);
    assert_int_equal(a, available);
    assert_int_equal(t, total);
    scratch_remove("m");
}

static void the_machine(void **state)
{
    is_read(NULL, 4096 * MIB, 8192 * MIB);
    is_read("garbage\n", 4096 * MIB, 8192 * MIB);
    int64_t a;
    int64_t t;
    oz_memory_read(scratch_path("nothing"), &a, &t);
    assert_true(a == -1 && t == -1);
    oz_memory_read("", &a, &t); /* this one */
    assert_true(a > 0 && t >= a);
    assert_int_equal(oz_memory_anonymous(scratch_path("nothing")), -1);
    assert_true(oz_memory_anonymous("") > 0);
    scratch_folder("m/proc/self");
    scratch_text("m/proc/self/status",
                 "Name:\tx\nVmRSS:\t 900 kB\nRssAnon:\t 17 kB\nRssFile:\t 8 kB\n");
    assert_int_equal(oz_memory_anonymous(scratch_path("m")), 17 * 1024);
    scratch_remove("m");
}

static void version_2(void **state)
{
    scratch_folder("m/sys/fs/cgroup/a/b");
    scratch_text("m/sys/fs/cgroup/a/b/memory.max", "max\n");
    scratch_text("m/sys/fs/cgroup/a/b/memory.current", "1048576\n");
    scratch_text("m/sys/fs/cgroup/a/memory.max", "1073741824\n");
    scratch_text("m/sys/fs/cgroup/a/memory.current", "629145600\n"); /* 600 MiB, of them */
    scratch_text("m/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 104857600\nfile 2\n");
    is_read("0::/a/b\n", (1024 - 500) * MIB, 1024 * MIB);
    /* A group of which we see no files: what is mounted counts. */
    scratch_folder("m/sys/fs/cgroup");
    scratch_text("m/sys/fs/cgroup/memory.max", "536870912\n");
    scratch_text("m/sys/fs/cgroup/memory.current", "536870913\n");
    is_read("0::/elsewhere/x\n", 0, 512 * MIB);
    scratch_folder("m/sys/fs/cgroup");
    scratch_text("m/sys/fs/cgroup/memory.max", "not a number\n");
    is_read("0::/\n", 4096 * MIB, 8192 * MIB);
}

static void version_1(void **state)
{
    scratch_folder("m/sys/fs/cgroup/memory/job");
    scratch_text("m/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2147483648\n");
    scratch_text("m/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1073741824\n");
    scratch_text("m/sys/fs/cgroup/memory/job/memory.stat",
                 "cache 5\ninactive_file 1\ntotal_inactive_file 536870912\n");
    is_read("12:cpu,cpuacct:/x\n7:memory:/job\n0::/\n", (2048 - 512) * MIB, 2048 * MIB);
    /* No limit is a very large number. */
    scratch_folder("m/sys/fs/cgroup/memory");
    scratch_text("m/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    scratch_text("m/sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n");
    is_read("7:memory:/\n", 4096 * MIB, 8192 * MIB);
}

/* A peak that has begun anew knows nothing of what was given back before. */
static void peak_begins_anew(void **state)
{
    size_t bytes = 64U << 20;
    /* A map of its own: what free() gives back is the allocator's matter (a sanitizer keeps it). */
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    memset(memory, 1, bytes);
    int64_t high = oz_memory_peak("");
    assert_int_equal(munmap(memory, bytes), 0);
    assert_false(oz_memory_peak_reset("/nowhere"));
    if (!oz_memory_peak_reset("")) {
        skip();
    }
    assert_true(oz_memory_peak("") <= high - ((int64_t)bytes >> 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine),
        cmocka_unit_test(version_2),
        cmocka_unit_test(version_1),
        cmocka_unit_test(peak_begins_anew),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
