#define _POSIX_C_SOURCE 200809L /* fileno, isatty */
#include "aggregator/rounds/progress.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/reduce/collective.h"

#define BAR_WIDTH 20
/* A bar that wraps to the next line could not be erased, so the terminal cuts it off. */
#define NO_WRAP "\033[?7l"
#define WRAP "\033[?7h"

char *fedge_bytes_text(uint64_t bytes, char text[FEDGE_BYTES_TEXT])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1000.0;
        unit++;
    }
    int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(text, FEDGE_BYTES_TEXT, "%.*f %s", decimals, value, units[unit]);
    return text;
}

void fedge_progress_clear(fedge_progress *progress)
{
    if (progress->barred) {
        fputs("\r\033[K", progress->out);
        fflush(progress->out);
        progress->barred = false;
        progress->bar[0] = '\0';
    }
}

static void print_percent(FILE *out, double fraction)
{
    if (isfinite(fraction))
        fprintf(out, " %8.2f%%", 100.0 * fraction);
    else
        fprintf(out, " %9s", "-");
}

static void print_number(FILE *out, double value)
{
    if (isfinite(value))
        fprintf(out, fabs(value) < 1000.0 ? " %8.4f" : " %8.3g", value);
    else
        fprintf(out, " %8s", "-");
}

void fedge_progress_round(fedge_progress *progress, const fedge_round_summary *summary)
{
    char up[FEDGE_BYTES_TEXT], down[FEDGE_BYTES_TEXT], round[32], clients[32];
    FILE *out = progress->out;
    fedge_progress_clear(progress);
    if (!progress->headed) {
        fprintf(out, "%12s %9s %8s %9s %9s %9s %8s\n", "round", "accuracy", "loss", "clients", "up",
                "down", "seconds");
        progress->headed = true;
    }
    snprintf(round, sizeof(round), "%s%u/%u", summary->kind == FEDGE_TASK_EVALUATE ? "eval " : "",
             summary->round, progress->num_rounds);
    snprintf(clients, sizeof(clients), "%u/%u", summary->reported, summary->asked);
    fprintf(out, "%12s", round);
    const bool tested =
        isfinite(summary->accuracy) || isfinite(summary->loss) || !summary->validation.present;
    print_percent(out, tested ? summary->accuracy : summary->validation.accuracy);
    print_number(out, tested ? summary->loss : summary->validation.loss);
    fprintf(out, " %9s %9s %9s %8.2f\n", clients, fedge_bytes_text(summary->bytes_up, up),
            fedge_bytes_text(summary->bytes_down, down), summary->seconds);
    fflush(out);
}

bool fedge_progress_on_terminal(FILE *out)
{
    return isatty(fileno(out)) == 1 && !fedge_collective_started();
}

void fedge_progress_draw(fedge_progress *progress, uint32_t rounds_closed, const char *state)
{
    if (!progress->terminal || progress->num_rounds == 0)
        return;
    char blocks[BAR_WIDTH + 1], bar[sizeof(progress->bar)];
    uint32_t closed = rounds_closed < progress->num_rounds ? rounds_closed : progress->num_rounds;
    size_t filled = (size_t)BAR_WIDTH * closed / progress->num_rounds;
    memset(blocks, '#', filled);
    memset(blocks + filled, '.', BAR_WIDTH - filled);
    blocks[BAR_WIDTH] = '\0';
    snprintf(bar, sizeof(bar), "[%s] %u/%u  %.100s", blocks, closed, progress->num_rounds, state);
    if (strcmp(bar, progress->bar) != 0) {
        memcpy(progress->bar, bar, sizeof(bar));
        fprintf(progress->out, "\r\033[K" NO_WRAP "%s" WRAP, bar);
        fflush(progress->out);
        progress->barred = true;
    }
}
