"""inductoscope beside AOTInductor's debugging guide done by hand: make bench-aoti."""
