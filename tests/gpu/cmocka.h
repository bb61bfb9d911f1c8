/* The part of cmocka that the tests of GPU code use, for machines without it: tests run one after
 * another, and the first that fails says where and ends the program. A test that was given none of
 * the machines that it asked for has not run; a program of which that is true of all tests fails.
 */
#ifndef FEDGE_TESTS_GPU_CMOCKA_H
#define FEDGE_TESTS_GPU_CMOCKA_H

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};
#define cmocka_unit_test(function)                                                                 \
    {                                                                                              \
#function, function                                                                        \
    }

enum { TEST_PASSED, TEST_FAILED, TEST_SKIPPED };
/* real_gpus.c */
extern jmp_buf test_end;
extern unsigned machines_asked, machines_given; /* by emulator_start, since the program began */

#define fail_msg(...)                                                                              \
    do {                                                                                           \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                            \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fputc('\n', stderr);                                                                       \
        longjmp(test_end, TEST_FAILED);                                                            \
    } while (0)
#define skip() longjmp(test_end, TEST_SKIPPED)
#define assert_true(x)                                                                             \
    do {                                                                                           \
        if (!(x))                                                                                  \
            fail_msg("not so: %s", #x);                                                            \
    } while (0)
#define assert_false(x) assert_true(!(x))
#define assert_null(p) assert_true(!(p))
#define assert_non_null(p) assert_true((p) != NULL)
#define assert_int_equal(a, b)                                                                     \
    do {                                                                                           \
        const long long left_ = (long long)(a), right_ = (long long)(b);                           \
        if (left_ != right_)                                                                       \
            fail_msg("%s is %lld and %s is %lld", #a, left_, #b, right_);                          \
    } while (0)
#define assert_int_not_equal(a, b) assert_true((long long)(a) != (long long)(b))
#define assert_string_equal(a, b)                                                                  \
    do {                                                                                           \
        const char *left_ = (a), *right_ = (b);                                                    \
        if (strcmp(left_, right_) != 0)                                                            \
            fail_msg("%s is \"%s\" and %s \"%s\"", #a, left_, #b, right_);                         \
    } while (0)
#define assert_in_range(x, least, most) assert_true((x) >= (least) && (x) <= (most))
#define assert_memory_equal(a, b, size) assert_true(memcmp((a), (b), (size)) == 0)
#define assert_memory_not_equal(a, b, size) assert_true(memcmp((a), (b), (size)) != 0)

static inline int run_all_tests(const struct CMUnitTest *tests, size_t count)
{
    static const char *const words[] = {"passed", "FAILED", "not run here"};
    /* The first that fails is the last: memory and errors of the GPU stay, and would be the next
     * one's. */
    volatile int result = TEST_PASSED;
    for (volatile size_t i = 0; i < count && result != TEST_FAILED; i++) {
        void *state = NULL;
        const unsigned asked = machines_asked, given = machines_given;
        result = setjmp(test_end);
        if (result == TEST_PASSED) {
            tests[i].run(&state);
            if (machines_asked > asked && machines_given == given)
                result = TEST_SKIPPED;
        }
        fprintf(stderr, "%s: %s", tests[i].name, words[result]);
        if (result == TEST_PASSED && machines_asked > asked) {
            fprintf(stderr, ", on %u of %u machines", machines_given - given,
                    machines_asked - asked);
        }
        fputc('\n', stderr);
    }
    if (result != TEST_FAILED && machines_asked > 0 && machines_given == 0) {
        fprintf(stderr, "nothing ran on a GPU: CUDA's runtime finds none\n");
        result = TEST_FAILED;
    }
    return result == TEST_FAILED;
}
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    run_all_tests(tests, sizeof(tests) / sizeof((tests)[0]))

#endif
