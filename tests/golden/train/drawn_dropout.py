"""Dropout that keeps what fedge keeps: its random numbers again, in Python, and a PyTorch layer that draws them.

Philox4x32-10 (edge/core/rng.h). The stream of a training step is (seed, purpose, round, client, step); all but the step
are 0 here. Layers draw from it in their order, one number for each value: kept where it is at least p.
"""

import torch

PURPOSE_DROPOUT = 5
WORD = 0xFFFFFFFF


def philox(counter, key):
    x, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(b >> 32) ^ x[1] ^ k[0], b & WORD, (a >> 32) ^ x[3] ^ k[1], a & WORD]
        k = [(k[0] + 0x9E3779B9) & WORD, (k[1] + 0xBB67AE85) & WORD]
    return x


def stream(step):
    """Numbers in [0, 1), of 24 bits."""
    block = 0
    while True:
        for word in philox([block, PURPOSE_DROPOUT << 16 | step, 0, 0], [0, 0]):
            yield (word >> 8) * 2.0**-24
        block += 1


class DrawnDropout(torch.nn.Dropout):
    numbers = None  # of the step; shared by all layers, which draw in turn

    def forward(self, x):
        if not self.training or DrawnDropout.numbers is None:
            return super().forward(x)
        drawn = torch.tensor([next(DrawnDropout.numbers) for _ in range(x.numel())], dtype=torch.float64)
        p = float(torch.tensor(self.p, dtype=torch.float32))
        return x * (drawn.reshape(x.shape) >= p) / (1.0 - p)
