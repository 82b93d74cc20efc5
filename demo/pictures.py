"""Reads and writes the demos' pictures."""
import numpy as np
from PIL import Image, ImageDraw, ImageFont

CAPTION = 36  # height of the line above each picture
GAP = 8
DETAIL = (150, 60, 320, 230)  # left, top, right, bottom of the enlarged detail: face and camera
FONTS = ("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
         "/usr/share/fonts/truetype/liberation/LiberationSans-Regular.ttf")


def load(path):
    """Returns a grey picture, float64 [rows, cols]."""
    return np.asarray(Image.open(path).convert("L")).astype(np.float64)


def save(path, picture):
    Image.fromarray(picture.astype(np.uint8)).save(path, optimize=True)


def caption(text, width):
    for name in FONTS:
        try:
            font, factor = ImageFont.truetype(name, 20), 1
            break
        except OSError:
            continue
    else:
        font, factor = ImageFont.load_default(), 2  # a small bitmap font, enlarged below
    line = Image.new("L", (width // factor, CAPTION // factor), 255)
    ImageDraw.Draw(line).text((4 // factor, 6 // factor), text, fill=0, font=font)
    return line.resize((width, CAPTION), Image.NEAREST)


def save_beside(path, titled):
    """Saves pictures side by side below their titles, with an enlarged detail of each.

    titled: [(title, picture)], pictures of the same size.
    """
    rows, cols = titled[0][1].shape
    sheet = Image.new("L", (len(titled) * (cols + GAP) - GAP, CAPTION + 2 * rows + GAP), 255)
    for place, (title, picture) in enumerate(titled):
        image = Image.fromarray(picture.astype(np.uint8))
        left = place * (cols + GAP)
        sheet.paste(caption(title, cols), (left, 0))
        sheet.paste(image, (left, CAPTION))
        sheet.paste(image.crop(DETAIL).resize((cols, rows), Image.NEAREST),
                    (left, CAPTION + rows + GAP))
    sheet.save(path, optimize=True)
