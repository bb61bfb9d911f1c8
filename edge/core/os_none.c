/* The operating system functions that the training core needs without an operating system: a
 * formatter for messages, and the CPU features. The others of os.h are missing, so that their use
 * fails at link time. */
#include "edge/core/os.h"

#include <string.h>

/* Output of a message; [used] also counts what does not fit. */
typedef struct output {
    char *out;
    size_t size, used;
} output;

static void put(output *to, char c)
{
    if (to->used + 1 < to->size)
        to->out[to->used] = c;
    to->used++;
}

/* [n] characters, right-aligned in [width]. */
static void put_padded(output *to, const char *s, size_t n, size_t width, char pad)
{
    for (; width > n; width--)
        put(to, pad);
    for (size_t i = 0; i < n; i++)
        put(to, s[i]);
}

#define MAX_DIGITS 20 /* digits of a 64-bit number */

static void put_number(output *to, uint64_t value, unsigned base, bool negative, size_t width,
                       char pad)
{
    char digits[MAX_DIGITS + 1];
    size_t first = sizeof(digits);
    do {
        digits[--first] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value > 0);
    if (negative)
        digits[--first] = '-';
    put_padded(to, digits + first, sizeof(digits) - first, width, pad);
}

/* d.ddddde±dd: six digits, the last one may be off by one. */
static void put_real(output *to, double value)
{
    if (value != value) {
        put_padded(to, "nan", 3, 0, ' ');
        return;
    }
    if (value < 0) {
        put(to, '-');
        value = -value;
    }
    if (value > 1.7976931348623157e308) {
        put_padded(to, "inf", 3, 0, ' ');
        return;
    }
    int exponent = 0;
    for (; value >= 10.0; value /= 10.0)
        exponent++;
    for (; value > 0.0 && value < 1.0; value *= 10.0)
        exponent--;
    uint32_t scaled = (uint32_t)(value * 1e5 + 0.5);
    if (scaled >= 1000000) {
        scaled /= 10;
        exponent++;
    }
    put_number(to, scaled / 100000, 10, false, 0, ' ');
    put(to, '.');
    put_number(to, scaled % 100000, 10, false, 5, '0');
    put(to, 'e');
    put(to, exponent < 0 ? '-' : '+');
    put_number(to, (uint64_t)(exponent < 0 ? -exponent : exponent), 10, false, 2, '0');
}

/* A parsed conversion. */
typedef struct conversion {
    char pad;
    size_t width;
    size_t precision; /* SIZE_MAX: none */
    unsigned longs;   /* l: 1, ll: 2; z counts as the width of size_t */
    char type;
} conversion;

static const char *read_digits(const char *at, size_t *value)
{
    for (*value = 0; *at >= '0' && *at <= '9'; at++)
        *value = *value * 10 + (size_t)(*at - '0');
    return at;
}

/* Parses a conversion after its '%'; returns the position after it. */
static const char *read_conversion(const char *at, conversion *what)
{
    *what = (conversion){.pad = ' ', .precision = SIZE_MAX};
    if (*at == '0') {
        what->pad = '0';
        at++;
    }
    at = read_digits(at, &what->width);
    if (*at == '.')
        at = read_digits(at + 1, &what->precision);
    for (;; at++) {
        if (*at == 'l')
            what->longs++;
        else if (*at == 'z')
            what->longs = sizeof(size_t) > sizeof(long) ? 2 : 1;
        else if (*at != 'h')
            break;
    }
    what->type = *at;
    return *at == '\0' ? at : at + 1;
}

static uint64_t unsigned_argument(va_list *arguments, unsigned longs)
{
    return longs == 0   ? va_arg(*arguments, unsigned)
           : longs == 1 ? va_arg(*arguments, unsigned long)
                        : va_arg(*arguments, unsigned long long);
}

static int64_t signed_argument(va_list *arguments, unsigned longs)
{
    return longs == 0   ? va_arg(*arguments, int)
           : longs == 1 ? va_arg(*arguments, long)
                        : va_arg(*arguments, long long);
}

static void put_string(output *to, const char *s, const conversion *what)
{
    size_t n = 0;
    while (n < what->precision && s[n] != '\0')
        n++;
    put_padded(to, s, n, what->width, ' ');
}

static void convert(output *to, const conversion *what, va_list *arguments)
{
    switch (what->type) {
    case 'd': {
        const int64_t value = signed_argument(arguments, what->longs);
        put_number(to, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, 10, value < 0,
                   what->width, what->pad);
        break;
    }
    case 'u':
    case 'x':
        put_number(to, unsigned_argument(arguments, what->longs), what->type == 'x' ? 16 : 10,
                   false, what->width, what->pad);
        break;
    case 'g':
        put_real(to, va_arg(*arguments, double));
        break;
    case 'c':
        put(to, (char)va_arg(*arguments, int));
        break;
    case 's':
        put_string(to, va_arg(*arguments, const char *), what);
        break;
    default: /* "%%", or an unsupported conversion, which is printed as it is */
        put(to, what->type == '\0' ? '%' : what->type);
        break;
    }
}

int fedge_os_vformat(char *out, size_t size, const char *format, va_list arguments)
{
    output to = {.out = out, .size = size};
    va_list remaining;
    va_copy(remaining, arguments);
    while (*format != '\0') {
        if (*format != '%') {
            put(&to, *format++);
            continue;
        }
        conversion what;
        format = read_conversion(format + 1, &what);
        convert(&to, &what, &remaining);
    }
    va_end(remaining);
    if (size > 0)
        out[to.used < size ? to.used : size - 1] = '\0';
    return (int)to.used;
}

int fedge_os_format(char *out, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = fedge_os_vformat(out, size, format, arguments);
    va_end(arguments);
    return length;
}

unsigned fedge_os_cpu_features(void)
{
    return 0;
}

#if defined(__NEWLIB__)
/* Called by assert(); newlib's function would link all of stdio. A debugger stops here. */
void __assert_func(const char *file, int line, const char *function, const char *expression);

__attribute__((weak, noreturn)) void __assert_func(const char *file, int line, const char *function,
                                                   const char *expression)
{
    (void)file, (void)line, (void)function, (void)expression;
    for (;;)
        __builtin_trap();
}
#endif
