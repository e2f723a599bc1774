"""A classifier over frozen word vectors, which stay encoded: python examples/embedding_bag.py VECTORS.ibp

The vectors and texts are drawn here: two of three words of a text are of its class.
"""

import sys

import torch
import torch.nn.functional as F

from cohort_gnn import ibp

WORDS, COLUMNS, CLASSES, TEXTS, LENGTH = 20_000, 64, 4, 2_000, 12
generator = torch.Generator().manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

# word w is of class w % CLASSES
vectors = torch.randn(WORDS, COLUMNS, generator=generator) + 2 * F.one_hot(torch.arange(WORDS) % CLASSES, COLUMNS)
ibp.Table(vectors).save(sys.argv[1])

labels = torch.randint(CLASSES, (TEXTS,), generator=generator)
texts = torch.randint(WORDS, (TEXTS, LENGTH), generator=generator)
of_class = texts[:, : LENGTH * 2 // 3]
of_class += labels[:, None] - of_class % CLASSES
texts, labels = texts.to(device), labels.to(device)
train, test = torch.arange(TEXTS, device=device).split([TEXTS * 3 // 4, TEXTS // 4])

table = ibp.Table.load(sys.argv[1], place="pinned" if device == "cuda" else "cpu")
print(f"{len(table)} vectors: {table.profile.codec}, {table.stored_bytes / table.nbytes:.0%} of their bytes")
model = torch.nn.Sequential(ibp.EmbeddingBag(table, "mean"), torch.nn.Linear(COLUMNS, CLASSES)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for epoch in range(3):
    for batch in train[torch.randperm(len(train), device=device)].split(100):
        optimizer.zero_grad()
        F.cross_entropy(model(texts[batch]), labels[batch]).backward()
        optimizer.step()
    right = model(texts[test]).argmax(1) == labels[test]
    print(f"epoch {epoch}: accuracy {right.float().mean():.3f}, {table.stats().rows_fetched} rows read")
