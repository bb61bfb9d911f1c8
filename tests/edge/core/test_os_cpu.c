/* What the CPU can do, against what Linux says of it in /proc/cpuinfo. The level that
 * FEDGE_CPU_LEVEL allows is the test's own environment: CMakeLists.txt has a test per level. */
#include "tests/edge/core/cmocka_all.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"

static char flags[8192];

/* The line "flags : …" of the first CPU, with a space on both sides of each word. */
static int read_flags(void **state)
{
    (void)state;
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[sizeof(flags) - 1];
    while (file && flags[0] == '\0' && fgets(line, sizeof(line), file)) {
        if (strncmp(line, "flags\t", 6) == 0) {
            line[strcspn(line, "\n")] = ' ';
            memcpy(flags, line, sizeof(line));
        }
    }
    if (file)
        (void)fclose(file);
    return 0;
}

static bool has(const char *flag)
{
    char word[32];
    (void)snprintf(word, sizeof(word), " %s ", flag);
    return strstr(flags, word) != NULL;
}

static unsigned features_by_flags(void)
{
    unsigned features = has("aes") && has("pclmulqdq") ? FEDGE_CPU_AES : 0;
    if (has("avx2") && has("fma"))
        features |= FEDGE_CPU_AVX2;
    if (!has("fma") || !has("avx512f") || !has("avx512bw") || !has("avx512dq") || !has("avx512vl"))
        return features;
    features |= FEDGE_CPU_AVX512;
    features |= has("avx512_vnni") ? FEDGE_CPU_AVX512VNNI : 0;
    features |= has("avx512_bf16") ? FEDGE_CPU_AVX512BF16 : 0;
    return features;
}

static unsigned allowed(void)
{
    const char *level = getenv("FEDGE_CPU_LEVEL");
    if (!level || level[0] == '\0')
        return ~0u;
    if (strcmp(level, "scalar") == 0)
        return 0;
    return FEDGE_CPU_AES | FEDGE_CPU_AVX2 | (strcmp(level, "avx2") == 0 ? 0 : FEDGE_CPU_AVX512);
}

static void the_level_is_that_of_the_cpu_and_no_more_than_allowed(void **state)
{
    (void)state;
#if !defined(__x86_64__) && !defined(__i386__)
    skip();
#endif
    if (flags[0] == '\0')
        skip();
    assert_int_equal(fedge_os_cpu_features(), features_by_flags() & allowed());
    assert_int_equal(fedge_os_cpu_features(), features_by_flags() & allowed()); /* remembered */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_level_is_that_of_the_cpu_and_no_more_than_allowed),
    };
    return cmocka_run_group_tests(tests, read_flags, NULL);
}
