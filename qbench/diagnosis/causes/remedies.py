"""What to do about a cause, in one sentence."""

from collections.abc import Mapping
from types import MappingProxyType

from qbench.judging import Cause

_REMEDIES: Mapping[Cause, str] = MappingProxyType(
    {
        Cause.RANGE_OUTLIER: "Choose a range method that cuts outliers (percentile, mse), 16 bits, or float.",
        Cause.CLIPPING: "Calibrate on samples like those that are scored, or by a range method that keeps the ends.",
        Cause.DEAD_RANGE: "Choose an asymmetric or unsigned grid, and calibrate anew if the profile is an old one.",
        Cause.CHANNELS_DIFFER: "Quantize the weights per channel, or equalize the channels across layers before.",
        Cause.BIAS_SATURATION: "Give the bias 32 bits, or the weights a larger scale; or keep the node in float.",
        Cause.WRONG_BIAS: "Compare the bias that the engine reads, its order and its scale s_x · s_w with fp32's.",
        Cause.WRONG_SCALE: "Compare the multiplier of each channel with s_x · s_w / s_y, and the bits it is held in.",
        Cause.PAIR_SATURATION: "Use weights of 7 bits, unsigned weights, or the engine's precise mode here.",
        Cause.ACCUMULATOR: "Sum in a wider register or in parts, and saturate where a sum becomes a level.",
        Cause.ROUNDING: "Compare the kernel's last rounding, and where it adds the zero point, with the arithmetic's.",
        Cause.ABSORBED_CLIP: "Keep the Clip behind the grid (there fusion leaves it), or let the grid end there.",
        Cause.PADDING: "Let the kernel pad with the input's zero point, on the sides and in the counts that ONNX says.",
        Cause.LAYOUT: "Check the axis, the order of channels and operands, and the layout that the kernel reads.",
        Cause.NOT_WRITTEN: "Check the loop's ends and tails, and what buffers hold that are used again.",
        Cause.TABLE: "Make the table anew with an entry a level, or one of more bits, from exact values.",
        Cause.NONDETERMINISM: "Run the node alone with one thread and with all, and look for writes that race.",
        Cause.CRASH: "Report the piece with its input to the engine, and keep the node in float until then.",
        Cause.WRONG_KERNEL: "Report the smallest failing input to the engine, or name the arithmetic it counts by.",
        Cause.CALIBRATION: "Compare the calibration data, their order and preprocessing with the accepted run's.",
        Cause.GRID: "Give the node more bits (its weights 8, its values 16), or keep it in float.",
    }
)


def remedy_of(cause: Cause) -> str:
    """What to do about ``cause``."""
    return _REMEDIES[cause]
