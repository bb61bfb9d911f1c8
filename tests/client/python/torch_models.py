"""Models of test_layers.py, as users write them."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(1)


class Residual(nn.Module):
    """Images [3, 2, 2], with functions between the modules."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding="same", bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.conv = nn.Conv2d(4, 4, (1, 1))
        self.norm = nn.GroupNorm(2, 4)
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        x = self.stem(x)
        x = x + F.relu(self.norm(self.conv(x)))
        x = F.dropout(x, 0.1, training=self.training)
        x = F.adaptive_avg_pool2d(F.max_pool2d(x, 2, stride=1, padding=1), 1)
        return self.head(x.view(x.size(0), -1))


class Means(nn.Module):
    """Images [3, 2, 2]; one module without weights is used twice, and the stem is frozen."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1).requires_grad_(False)
        self.relu = nn.ReLU()
        self.conv = nn.Conv2d(4, 5, 1)
        self.head = nn.Linear(5, 4)

    def forward(self, x):
        return self.head(self.relu(self.conv(self.relu(self.stem(x)))).mean(dim=(2, 3)))


class LastStep(nn.Module):
    """Whole numbers [5], one for each word."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.lstm = nn.LSTM(6, 8, num_layers=2, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        out, _ = self.lstm(self.embed(x.long()))
        return self.head(out[:, -1])


class LastState(nn.Module):
    """Sequences [3, 4]; the state after the last step."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 5, batch_first=True)
        self.lstm = nn.LSTM(5, 5, batch_first=True)
        self.head = nn.Linear(5, 4)

    def forward(self, x):
        x, _ = self.gru(x)
        _, (state, _) = self.lstm(x)
        return self.head(state[-1])


class Attention(nn.Module):
    """Sequences [3, 4]."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, activation="gelu", batch_first=True, norm_first=True)
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(torch.flatten(self.encoder(x), 1))


class Gates(nn.Module):
    """Sequences [4, 6]: activations as modules and as functions."""

    def __init__(self):
        super().__init__()
        self.act = nn.Sequential(nn.Linear(6, 6), nn.PReLU(4, init=0.1), nn.ELU(0.5), nn.Softplus(2.0), nn.GLU(1), nn.Softmax(dim=-1))
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = F.softplus(F.elu(self.act(x), alpha=2.0), beta=3)
        x = F.hardsigmoid(F.hardswish(F.glu(x, dim=-1)))
        return self.head(torch.flatten(x.softmax(2), 1))


class Joins(nn.Module):
    """Images [3, 4, 6]: a small U-Net with squeeze-and-excitation."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 4, 3, padding=1)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 4, 1), nn.Hardsigmoid())
        self.up = nn.ConvTranspose2d(4, 3, 2, stride=2)
        self.wide = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.norm = nn.BatchNorm1d(11 * 24)
        self.head = nn.Linear(11 * 24, 4)

    def forward(self, x):
        x = F.interpolate(F.relu(self.down(x)), size=(4, 6))
        x = x * self.gate(x)
        low = F.max_pool2d(x, 2)
        x = torch.cat([x, self.up(low), self.wide(low)], dim=1)
        return self.head(self.norm(torch.flatten(x, 1)))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        return self.fc(self.fc(x))


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 4)

    def forward(self, x):
        return self.fc(x) if x.sum() > 0 else self.fc(-x)


class Joined(Branch):
    def forward(self, x):
        return self.fc(torch.cat([x[:, :6], x[:, 6:]], dim=1))


class LastFirst(Branch):
    """The first example of a batch for all."""

    def forward(self, x):
        return self.fc(x[0])


class Unused(Branch):
    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(x)


def tied():
    model = nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 12), nn.Linear(12, 4))
    model[2].weight = model[0].weight
    return model


plain = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.Sequential(nn.GELU(approximate="tanh"), nn.Dropout(0.1)),
                      nn.LayerNorm(6), nn.Linear(6, 4, bias=False))
residual = Residual()
means = Means()
last_step = LastStep()
last_state = LastState()
attention = Attention()
gates = Gates()
joins = Joins()
