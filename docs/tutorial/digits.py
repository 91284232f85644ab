"""Learn to read handwritten digits: a PCA in NumPy, then a small classifier in PyTorch.

Prints a digest of what was learned, so that two runs can be compared to the last bit.
"""

import hashlib
import time

import numpy as np
from sklearn.datasets import load_digits

SEED = 0
COMPONENTS = 32
DIRECTIONS = {"left", "right", "up", "down"}


def shift(images: np.ndarray, direction: str) -> np.ndarray:
    """The images moved by one pixel."""
    axis = 1 if direction in {"up", "down"} else 2
    return np.roll(images, -1 if direction in {"up", "left"} else 1, axis)


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows and labels: 1500 images and their shifted copies to train on, 297 to test."""
    rows, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(rows))
    images, labels = rows[order].reshape(-1, 8, 8) / 16.0, labels[order]
    train = [images[:1500], *(shift(images[:1500], direction) for direction in DIRECTIONS)]
    return (
        np.concatenate(train).reshape(-1, 64),
        np.tile(labels[:1500], len(train)),
        images[1500:].reshape(-1, 64),
        labels[1500:],
    )


def principal_components(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean of the rows, and their leading principal components as columns."""
    mean = rows.mean(axis=0)
    covariance = (rows - mean).T @ (rows - mean) / (len(rows) - 1)
    _, vectors = np.linalg.eigh(covariance)
    return mean, vectors[:, ::-1][:, :COMPONENTS]


def train_classifier(inputs, targets):  # noqa: ANN001, ANN201
    """A network with one hidden layer, trained by Adam on shuffled batches."""
    import torch

    torch.manual_seed(SEED)
    model = torch.nn.Sequential(
        torch.nn.Linear(COMPONENTS, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(8):
        for batch in torch.randperm(len(inputs)).split(500):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs[batch]), targets[batch]).backward()
            optimizer.step()
    return model


def digest(*arrays: np.ndarray) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the arrays' bytes."""
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]


def main() -> None:
    """Learn, and print the digests, the accuracy on unseen digits, and the seconds it took."""
    try:
        import torch
    except ImportError:
        torch = None

    start = time.perf_counter()
    train, labels, test, test_labels = load()
    mean, components = principal_components(train)
    print(f"components {digest(mean, components)}")
    if torch is None:
        print("PyTorch is not installed: no classifier")
        return
    inputs = torch.from_numpy((train - mean) @ components).float()
    size = inputs.abs().mean()  # the network gets numbers of about 1
    model = train_classifier(inputs / size, torch.from_numpy(labels))
    print(f"weights    {digest(*(p.detach().numpy() for p in model.parameters()))}")
    with torch.no_grad():
        unseen = torch.from_numpy((test - mean) @ components).float()
        guesses = model(unseen / size).argmax(dim=1)
    print(f"accuracy   {(guesses.numpy() == test_labels).mean():.4f}")
    print(f"seconds    {time.perf_counter() - start:.2f}")


if __name__ == "__main__":
    main()
