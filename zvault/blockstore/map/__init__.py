"""Where each block of a block store lies: the map, its parts, and the roots that name them."""
