import torch, fedge
from torch import nn
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
data = fedge.data.idx("images.gz", "labels.gz")
app = fedge.Client(model)                      # names, shapes and types are checked against the job

@app.train
def train(model, task):
    opt = torch.optim.SGD(model.parameters(), lr=task.learning_rate)
    for x, y in task.batches(data):            # the job's epochs, batch size and seed; ends when the task is cancelled
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
    return len(data), {"loss": loss.item()}

if __name__ == "__main__":
    app.run("/etc/fedge")
