"""How large a model may claim to be: bounds that any configuration is held to before anything is built from it."""

from typing import Final

MAX_INT32: Final = 2**31 - 1  # sizes and positions cross the native boundary as int32
MAX_LAYERS: Final = 1024  # the largest open models have 126; llama.cpp's own limit is 512
MAX_EXPERTS: Final = 1024  # the largest open models have 512, which is llama.cpp's own limit
MAX_HEAD_DIM: Final = 4096  # the largest published is 512
MAX_ROPE_FACTOR: Final = 1e6  # the largest published is 64; within it no frequency leaves float32's range
MAX_ROPE_THETA: Final = 1e15  # the largest published is 1e9
