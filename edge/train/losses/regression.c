/* MSELoss, L1Loss, HuberLoss and SmoothL1Loss of d = y − t, the mean over an example's outputs:
 *   d²;   |d|;   d²/2 where |d| ≤ delta, else delta · (|d| − delta/2);
 *   d²/2/beta where |d| < beta, else |d| − beta/2 */
#include <math.h>

#include "edge/train/losses/losses.h"

/* The loss of one difference; and its derivative. */
typedef double (*distance_fn)(double d, double delta, double *derivative);

static double run(const fedge_loss_run *at, distance_fn distance, uint32_t *correct)
{
    double loss = 0.0;
    const double scale = 1.0 / ((double)at->batch * (double)at->outputs);
    *correct = 0;
    for (size_t b = 0; b < at->batch; b++) {
        double sum = 0.0;
        for (uint32_t o = 0; o < at->outputs; o++) {
            const size_t i = b * at->outputs + o;
            double derivative;
            sum += distance((double)at->y[i] - (double)fedge_loss_target(at, b, o),
                            (double)at->argument, &derivative);
            if (at->dy)
                at->dy[i] = (float)(derivative * scale);
        }
        loss += sum / (double)at->outputs;
    }
    return loss;
}

static double squared(double d, double delta, double *derivative)
{
    (void)delta;
    *derivative = 2.0 * d;
    return d * d;
}

static double absolute(double d, double delta, double *derivative)
{
    (void)delta;
    *derivative = d > 0.0 ? 1.0 : d < 0.0 ? -1.0 : 0.0;
    return fabs(d);
}

static double huber(double d, double delta, double *derivative)
{
    if (fabs(d) <= delta) {
        *derivative = d;
        return 0.5 * d * d;
    }
    *derivative = d > 0.0 ? delta : -delta;
    return delta * (fabs(d) - 0.5 * delta);
}

#if FEDGE_WITH_TARGETS
static double smooth_l1(double d, double beta, double *derivative)
{
    if (fabs(d) < beta) {
        *derivative = d / beta;
        return 0.5 * d * d / beta;
    }
    *derivative = d > 0.0 ? 1.0 : -1.0;
    return fabs(d) - 0.5 * beta;
}
#endif

static double run_mse(const fedge_loss_run *at, uint32_t *correct)
{
    return run(at, squared, correct);
}

static double run_l1(const fedge_loss_run *at, uint32_t *correct)
{
    return run(at, absolute, correct);
}

static double run_huber(const fedge_loss_run *at, uint32_t *correct)
{
    return run(at, huber, correct);
}

#if FEDGE_WITH_TARGETS
static double run_smooth_l1(const fedge_loss_run *at, uint32_t *correct)
{
    return run(at, smooth_l1, correct);
}
#endif

#define WIDTH(argument)                                                                            \
    {                                                                                              \
        {.name = (argument),                                                                       \
         .kind = FEDGE_ARGUMENT_F32,                                                               \
         .offset = offsetof(fedge_model_spec, loss_delta),                                         \
         .min = 1e-30,                                                                             \
         .max = 1e30,                                                                              \
         .fallback = 1,                                                                            \
         .zero_is_default = true},                                                                 \
            FEDGE_NO_ARGUMENT,                                                                     \
    }

static const fedge_argument HUBER[] = WIDTH("delta");

const fedge_loss_ops fedge_loss_mse = {.run = run_mse};
const fedge_loss_ops fedge_loss_l1 = {.run = run_l1};
const fedge_loss_ops fedge_loss_huber = {.arguments = HUBER, .run = run_huber};

#if FEDGE_WITH_TARGETS
static const fedge_argument SMOOTH_L1[] = WIDTH("beta");

const fedge_loss_ops fedge_loss_smooth_l1 = {.arguments = SMOOTH_L1, .run = run_smooth_l1};
#endif
