"""Non-local means as attention: a picture's pixels are the tokens.

A pixel's query and key are the patch around it in a lightly smoothed copy of the noisy picture. Its value is the noisy
patch. Non-local means weighs patch k for pixel q by exp(-|q - k|^2 / h^2). Because |q|^2 is the same for all keys of a
row,

    softmax_k(-|q - k|^2 / h^2) = softmax_k(2 (q.k - |k|^2 / 2) / h^2)

One more feature, 1 in the query and -|k|^2 / 2 in the key, makes that an attention job with scale 2 / h^2. Each output
row is a denoised patch. A denoised pixel is its mean in the patches that cover it.
"""
import numpy as np

PATCH = 7             # side of a patch, pixels
WIDTH = 56            # PATCH^2 + 1 features, filled up to the service's multiple of 8
SMOOTHING = 0.9       # standard deviation of the smoothing before patches are compared, pixels
STRENGTH = 0.25       # h, for grey values from 0 to 1
SCALE = 2.0 / STRENGTH**2

# SMOOTHING (0 to 1.3) and STRENGTH (0.15 to 0.7) were tuned on the demo's photograph, with noise of sigma 25 and
# segments of 1024. Without smoothing the best STRENGTH gives 27.6 dB in row-major and 28.3 dB in Hilbert order.


def add_noise(picture, sigma, seed):
    """Returns the picture with Gaussian noise, rounded to a sensor's bytes: float64 [rows, cols]."""
    noise = np.random.default_rng(seed).standard_normal(picture.shape)
    return np.rint(np.clip(picture + sigma * noise, 0, 255))


def psnr(picture, truth):
    """Returns the peak signal-to-noise ratio in dB."""
    return float(10 * np.log10(255**2 / np.mean((picture - truth) ** 2)))


def smooth(picture, deviation):
    """Applies Gaussian smoothing with mirrored borders."""
    reach = int(np.ceil(3 * deviation))
    weights = np.exp(-np.arange(-reach, reach + 1) ** 2 / (2 * deviation**2))
    weights /= weights.sum()
    rows, cols = picture.shape
    padded = np.pad(picture, reach, mode="reflect")
    padded = sum(w * padded[i:i + rows] for i, w in enumerate(weights))
    return sum(w * padded[:, i:i + cols] for i, w in enumerate(weights))


def patches(picture):
    """Returns the patch around each pixel, row-major with mirrored borders: [rows * cols, PATCH^2]."""
    rows, cols = picture.shape
    padded = np.pad(picture, PATCH // 2, mode="reflect")
    return np.stack([padded[i:i + rows, j:j + cols] for i in range(PATCH) for j in range(PATCH)],
                    axis=-1).reshape(rows * cols, PATCH * PATCH)


def attention_inputs(noisy):
    """Returns q, k, v of the job: float32 [tokens, 1, WIDTH]."""
    tokens = noisy.size
    # Centred grey values of span 1 give small scores, which float32 represents accurately.
    compared = patches((smooth(noisy, SMOOTHING) - noisy.mean()) / 255)
    q, k, v = (np.zeros((tokens, 1, WIDTH), np.float32) for _ in range(3))
    size = PATCH * PATCH
    q[:, 0, :size] = k[:, 0, :size] = compared
    q[:, 0, size] = 1
    k[:, 0, size] = -0.5 * np.sum(compared**2, axis=1)
    v[:, 0, :size] = patches((noisy - noisy.mean()) / 255)
    return q, k, v


def denoised_picture(out, noisy):
    """Returns the picture of the job's output [tokens, 1, WIDTH]: each pixel's mean over its patches."""
    rows, cols = noisy.shape
    reach = PATCH // 2
    size = PATCH * PATCH
    estimates = np.asarray(out[:, 0, :size], np.float64).reshape(rows, cols, size)
    total = np.zeros((rows + 2 * reach, cols + 2 * reach))
    count = np.zeros_like(total)
    for place in range(size):
        i, j = divmod(place, PATCH)
        total[i:i + rows, j:j + cols] += estimates[:, :, place]
        count[i:i + rows, j:j + cols] += 1
    inside = slice(reach, -reach)
    mean = total[inside, inside] / count[inside, inside]
    return np.rint(np.clip(mean * 255 + noisy.mean(), 0, 255))
