"""Accuracy over bytes up, as SVG."""

import math
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1060, 520, 64, 440, 24, 52
COLOURS = {"iid": "#0072b2", "dirichlet:0.3": "#d55e00"}  # Okabe and Ito's


def picture(points):
    """points: partition, pipeline, bytes up, accuracy as a share. Bytes have a logarithmic axis."""
    low = math.floor(math.log10(min(point[2] for point in points)))
    high = math.ceil(math.log10(max(point[2] for point in points)))
    least = math.floor(20 * min(point[3] for point in points)) / 20
    most = math.ceil(20 * max(point[3] for point in points)) / 20

    def x(size):
        return LEFT + (math.log10(size) - low) / max(high - low, 1) * (WIDTH - LEFT - RIGHT)

    def y(accuracy):
        return HEIGHT - BOTTOM - (accuracy - least) / (most - least or 1) * (HEIGHT - TOP - BOTTOM)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for power in range(low, high + 1):
        at = x(10 ** power)
        text = f"{10 ** power / 1e6:g} MB"
        out.append(f'<path d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>'
                   f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{text}</text>')
    for step in range(round((most - least) * 20) + 1):
        share = least + step / 20
        out.append(f'<path d="M{LEFT} {y(share):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 8}" y="{y(share) + 4:.1f}" text-anchor="end">{100 * share:.0f} %</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">bytes up, all rounds</text>')
    names = list(dict.fromkeys(point[1] for point in points))
    for number, name in enumerate(names):
        out.append(f'<text x="{WIDTH - RIGHT + 16}" y="{TOP + 12 + 17 * number}">{number + 1}  {escape(name)}</text>')
    drawn = {partition: colour for partition, colour in COLOURS.items() if any(partition == point[0] for point in points)}
    for number, (partition, colour) in enumerate(drawn.items()):
        at = TOP + 26 + 17 * (len(names) + number)
        out.append(f'<circle cx="{WIDTH - RIGHT + 20}" cy="{at}" r="5" fill="{colour}"/>'
                   f'<text x="{WIDTH - RIGHT + 32}" y="{at + 4}">{partition}</text>')
    for partition, name, size, accuracy in points:
        out.append(f'<circle cx="{x(size):.1f}" cy="{y(accuracy):.1f}" r="5" fill="{COLOURS[partition]}"/>'
                   f'<text x="{x(size) + 7:.1f}" y="{y(accuracy) + 4:.1f}" font-size="11">{names.index(name) + 1}</text>')
    return "\n".join(out) + "\n</svg>\n"
