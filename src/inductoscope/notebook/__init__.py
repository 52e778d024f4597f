"""`%%inductoscope`: records or examines a cell of a notebook, and shows what was found below it.

IPython is there when this is used, so it is imported only inside functions.
"""
